// The page: asks the server for the state of all processes and shows it.

import { drawFlame } from "./flame.js";
import { drawMemory } from "./plots.js";
import { Table } from "./table.js";
import { age, ask, at, count, element, percent, Refused, show, size } from "./view.js";

const PERIOD = 2000; // milliseconds between two updates
const RATE = 512 * 1024; // bytes for each sample

const state = {
  session: { control: false, token: false, private: false, logged_in: false },
  pid: null,
  processes: [],
  history: null,
  profile: null,
  flamePid: null,
  updates: 0,
};

const processTable = new Table(at("process-table"), [
  { key: "pid", title: "PID", text: true, value: (row) => row.pid, once: true,
    cell: (row) => element("button", { type: "button", class: "link", onclick: () => choose(row.pid, true),
      "aria-label": `Show process ${row.pid}, ${row.program}` }, String(row.pid)) },
  { key: "program", title: "Program", text: true, name: true, value: (row) => row.program, cell: (row) => row.program },
  { key: "live", title: "Live", help: "memory that the program has allocated", value: (row) => row.live_bytes,
    cell: (row) => size(row.live_bytes) },
  { key: "warm", title: "Warm", help: "memory that is free but possibly resident", value: (row) => row.warm_bytes,
    cell: (row) => size(row.warm_bytes) },
  { key: "resident", title: "Resident", help: "resident memory of the whole process", value: (row) => row.resident_bytes,
    cell: (row) => size(row.resident_bytes) },
  { key: "running", title: "Running", value: (row) => -row.start_time_ns, cell: (row) => age(row.start_time_ns) },
  { key: "mode", title: "Mode", text: true, value: (row) => row.mode, cell: (row) => row.mode },
], (row) => `${row.pid}.${row.start_time_ns}`, "resident");

function used(row) {
  const share = row.used_share ?? 0;
  const bar = element("span", { class: "share", "aria-hidden": "true" }, element("i", {}));
  bar.firstChild.style.width = `${Math.round(100 * share)}%`;
  return element("span", {}, bar, percent(row.used_share));
}

const cacheTable = new Table(at("cache-table"), [
  { key: "name", title: "Cache", text: true, name: true, value: (row) => row.name, cell: (row) => row.name },
  { key: "object", title: "Object", help: "bytes of an object", value: (row) => row.object_size_bytes,
    cell: (row) => count(row.object_size_bytes) },
  { key: "in_use", title: "In use", help: "objects in use", value: (row) => row.in_use, cell: (row) => count(row.in_use) },
  { key: "sheaves", title: "Sheaves", help: "free objects in sheaves", value: (row) => row.in_sheaves,
    cell: (row) => count(row.in_sheaves) },
  { key: "barns", title: "Barns", help: "free objects in barns", value: (row) => row.in_barns, cell: (row) => count(row.in_barns) },
  { key: "free", title: "Free", help: "free objects in slabs", value: (row) => row.free_in_slabs,
    cell: (row) => count(row.free_in_slabs) },
  { key: "memory", title: "Memory", help: "bytes of all slabs", value: (row) => row.memory_bytes,
    cell: (row) => size(row.memory_bytes) },
  { key: "used", title: "Used", help: "share of the memory in objects in use", value: (row) => row.used_share, cell: used },
  { key: "fast", title: "Fast", help: "share of operations that took the fast path", value: (row) => row.fast_share,
    cell: (row) => percent(row.fast_share, 1) },
], (row) => row.name, "memory");

function fail(text) {
  at("error").textContent = text;
  show(at("error"), text !== "");
}

function tiles(summary) {
  const sum = (key) => summary.programs.reduce((total, one) => total + one[key], 0);
  const pairs = [
    ["Processes", count(summary.processes)],
    ["Live", size(sum("live_bytes"))],
    ["Warm", size(sum("warm_bytes"))],
    ["Resident", size(sum("resident_bytes"))],
    ["Ended", count(sum("ended"))],
  ];
  at("tiles").replaceChildren(...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  show(at("tiles"), true);
}

function notes(summary) {
  const lines = [...summary.problems];
  if (summary.unrecorded_count > 0) {
    const names = summary.unrecorded.slice(0, 5).map((one) => `${one.program} (${one.pid})`).join(", ");
    const what = summary.unrecorded_count === 1 ? "process runs" : "processes run";
    lines.push(`${count(summary.unrecorded_count)} ${what} on Sheaf without a record: ${names}. Start with sheaf run --record.`);
  }
  if (summary.unreadable_count > 0) {
    const what = summary.unreadable_count === 1 ? "process" : "processes";
    lines.push(`This server may not look into ${count(summary.unreadable_count)} ${what}, for instance those of other users.`);
  }
  at("problems").replaceChildren(...lines.map((line) => element("li", {}, line)));
}

function subjects(summary) {
  const select = at("subject");
  const chosen = select.value;
  const options = [["all:", "all processes"]];
  for (const one of summary.programs) options.push([`program:${one.program}`, one.program]);
  for (const one of state.processes.filter((process) => process.shown)) {
    options.push([`pid:${one.pid}`, `${one.program} (${one.pid})`]);
  }
  const same = options.length === select.options.length && options.every(([value], i) => value === select.options[i].value);
  if (same) return;
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  select.value = options.some(([value]) => value === chosen) ? chosen : "all:";
}

async function memory() {
  const [kind, ...rest] = at("subject").value.split(":");
  const query = new URLSearchParams({ range: at("range").value });
  if (kind !== "all" && kind !== "") query.set(kind, rest.join(":"));
  try {
    state.history = await ask(`api/history?${query}`);
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) throw error;
    at("subject").value = "all:"; // the process has ended
    return;
  }
  drawMemory(at("memory"), state.history);
  const last = (name) => size(state.history[name].at(-1) ?? 0);
  at("memory-text").textContent =
    `Now ${last("live_bytes")} live, ${last("warm_bytes")} warm, ${last("resident_bytes")} resident.`;
}

function listProcesses() {
  const words = at("filter").value.trim().toLowerCase();
  const rows = state.processes.filter((row) => `${row.pid} ${row.program}`.toLowerCase().includes(words));
  const chosen = rows.find((row) => row.pid === state.pid);
  processTable.update(rows, chosen ? processTable.key(chosen) : null);
  at("count").textContent = words === "" ? `${count(rows.length)} running` : `${count(rows.length)} of ${count(state.processes.length)}`;
}

async function detail() {
  if (state.pid === null) return;
  const pid = state.pid;
  let one;
  try {
    one = await ask(`api/processes/${pid}`);
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) throw error;
    at("result").textContent = `Process ${pid} has ended.`;
    show(at("actions"), false);
    state.pid = null;
    return;
  }
  if (pid !== state.pid) return;
  at("process-title").textContent = `${one.program} (${one.pid})`;
  at("process-text").textContent = [
    `live ${size(one.live_bytes)}`, `warm ${size(one.warm_bytes)}`, `resident ${size(one.resident_bytes)}`,
    `returned ${size(one.memory.returned_bytes ?? 0)} in total`, one.mode, `Sheaf ${one.sheaf_version}`, one.record,
  ].join(" · ");
  cacheTable.update(one.caches);
  show(at("process"), true);
}

async function flame() {
  const pid = state.pid;
  if (pid === null) return;
  at("pprof").href = `debug/pprof/heap?pid=${pid}`;
  try {
    state.profile = await ask(`api/processes/${pid}/profile?kind=${at("kind").value}`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    state.profile = null;
    at("flame-text").textContent = error.message;
  }
  if (pid !== state.pid) return;
  const profile = state.profile;
  show(at("flame"), profile !== null);
  show(at("pprof"), profile !== null);
  at("sample").textContent = profile?.sampling ? "Stop profiling" : "Profile";
  if (profile === null) return;
  const error = profile.error_bytes === null ? "" : ` ± ${size(profile.error_bytes)}`;
  at("flame-text").textContent =
    [`${profile.title}: ${size(profile.tree.value)}${error}, ${count(profile.samples)} samples.`, ...profile.notes].join(" ");
  drawFlame(at("flame"), profile.tree, size);
}

async function choose(pid, focus) {
  state.pid = pid;
  at("result").textContent = "";
  listProcesses();
  location.hash = `pid=${pid}`;
  await guarded(async () => {
    await detail();
    await flame();
    login();
    if (focus) at("process").focus();
  });
}

function login() {
  const { session } = state;
  const allowed = session.control && session.logged_in;
  show(at("actions"), allowed && state.pid !== null);
  show(at("login"), session.token && !session.logged_in && (session.control || session.private));
  show(at("logout"), session.logged_in);
}

async function act(button, text, path, body, done) {
  button.disabled = true;
  at("result").textContent = text;
  try {
    at("result").textContent = done(await ask(path, body));
  } catch (error) {
    at("result").textContent = error.message;
    if (error instanceof Refused && error.status === 401) await session();
  } finally {
    button.disabled = false;
  }
}

async function session() {
  state.session = await ask("api/session");
  login();
}

/** Run an update; a refusal or a lost connection is shown and does not stop the next one. */
async function guarded(work) {
  try {
    await work();
    fail("");
    return true;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      fail("Log in to see this server.");
      state.session.logged_in = false;
      login();
    } else fail(error instanceof TypeError ? "The server does not answer." : error.message);
    at("status").textContent = "Not connected";
    return false;
  }
}

async function update() {
  const good = await guarded(async () => {
    const [summary, list] = await Promise.all([ask("api/summary"), ask("api/processes?limit=10000")]);
    state.processes = list.processes;
    tiles(summary);
    notes(summary);
    subjects(summary);
    listProcesses();
    await memory();
    await detail();
    at("version").textContent = `sheaf ${summary.version}`;
  });
  if (good) {
    state.updates += 1;
    at("status").textContent = `Live, updated ${new Date().toLocaleTimeString()}`;
    document.documentElement.dataset.updates = state.updates;
  }
}

async function loop() {
  if (!document.hidden) await update();
  setTimeout(loop, PERIOD);
}

at("filter").addEventListener("input", listProcesses);
for (const id of ["subject", "range"]) at(id).addEventListener("change", () => guarded(memory));
at("kind").addEventListener("change", () => guarded(flame));
at("refresh").addEventListener("click", () => guarded(flame));
at("close").addEventListener("click", () => {
  state.pid = null;
  show(at("process"), false);
  history.replaceState(null, "", location.pathname);
  listProcesses();
});
at("trim").addEventListener("click", () => act(at("trim"), "Trimming", `api/processes/${state.pid}/trim`, {},
  (answer) => `The process returned at most ${size(answer.returned_bytes)} to the system.`));
at("sample").addEventListener("click", async () => {
  const rate = state.profile?.sampling ? 0 : RATE;
  await act(at("sample"), "Asking the process", `api/processes/${state.pid}/profile`, { rate_bytes: rate },
    () => (rate > 0 ? "The process samples its allocations. Press Refresh after a while." : "Profiling has stopped."));
  await guarded(flame);
});
at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask("api/login", { token: at("token").value });
    at("token").value = "";
    at("login-error").textContent = "";
    await session();
  } catch (error) {
    at("login-error").textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  }
});
at("logout").addEventListener("click", () => guarded(async () => {
  await ask("api/logout", {});
  await session();
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (state.history) drawMemory(at("memory"), state.history);
  if (state.profile) drawFlame(at("flame"), state.profile.tree, size);
});

await guarded(session);
const wanted = /^#pid=([0-9]{1,7})$/.exec(location.hash);
if (wanted) await choose(Number(wanted[1]), false);
await loop();
