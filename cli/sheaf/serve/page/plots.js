// The plot of memory over time, and flame graphs, drawn by Plotly.

import { scale, size } from "./view.js";

const OPTIONS = { displayModeBar: false, responsive: true, displaylogo: false };
const ROW = 24; // pixels of a function in a flame graph
const PALETTE = ["#4c78a8", "#c9691a", "#b8474a", "#3f8f8a", "#4b8f43", "#8f7410", "#94628c", "#b5566e", "#85674f", "#6b6b78"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function base() {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("quiet") },
    hoverlabel: { align: "left", namelength: -1, bgcolor: colour("card"), bordercolor: colour("line"),
      font: { color: colour("text") } },
  };
}

/** Draw memory over time; `history` is what api/history returns. */
export function drawMemory(node, history) {
  const dates = history.times.map((seconds) => new Date(seconds * 1000));
  const largest = Math.max(1, ...history.resident_bytes, ...history.live_bytes.map((live, i) => live + history.warm_bytes[i]));
  const { divisor, unit } = scale(largest);
  const series = (name, values, more) => ({
    x: dates, y: values.map((value) => value / divisor), name, type: "scatter", mode: "lines",
    hovertemplate: `%{y:.1f} ${unit}`, ...more,
  });
  const area = (name) => ({ stackgroup: "held", line: { width: 1, color: colour(name) }, fillcolor: colour(name) });
  Plotly.react(node, [
    series("live", history.live_bytes, area("live")),
    series("warm", history.warm_bytes, area("warm")),
    series("resident", history.resident_bytes, { line: { color: colour("resident"), width: 2, dash: "dot" } }),
  ], {
    ...base(),
    margin: { l: 64, r: 12, t: 8, b: 32 },
    hovermode: "x unified",
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.14, font: { color: colour("text") } },
    xaxis: { gridcolor: colour("line"), linecolor: colour("line"), fixedrange: true, nticks: node.clientWidth < 500 ? 4 : 9 },
    yaxis: { gridcolor: colour("line"), zerolinecolor: colour("line"), rangemode: "tozero", fixedrange: true,
      ticksuffix: ` ${unit}` },
  }, OPTIONS);
}

// Plotly takes tags and entities in texts as markup.
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function shade(node) {
  const name = (node.module || node.place || "").split("/").pop();
  if (!name) return "#75757f";
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0);
  return PALETTE[sum % PALETTE.length];
}

/** Draw a flame graph; `profile` is what api/processes/PID/profile returns. */
export function drawFlame(node, profile) {
  let deepest = 0;
  const columns = { ids: [], labels: [], parents: [], values: [], text: [], colors: [] };
  const total = profile.tree.value || 1;
  const waiting = [[profile.tree, "", "0", 1]];
  while (waiting.length > 0) {
    const [one, parent, id, depth] = waiting.pop();
    deepest = Math.max(deepest, depth);
    columns.ids.push(id);
    columns.labels.push(plain(one.name));
    columns.parents.push(parent);
    columns.values.push(one.value);
    columns.colors.push(shade(one));
    const error = one.error ? ` ± ${size(one.error)}${one.unreliable ? ", unreliable: too few samples" : ""}` : "";
    const lines = [`${size(one.value)}${error} (${((100 * one.value) / total).toFixed(1)}%)`, one.function ?? one.name];
    if (one.place) lines.push(one.place);
    if (one.module) lines.push(one.module);
    columns.text.push(lines.map((line) => plain(line.length > 160 ? `${line.slice(0, 159)}…` : line)).join("<br>"));
    one.children.forEach((child, i) => waiting.push([child, id, `${id}.${i}`, depth + 1]));
  }
  Plotly.react(node, [{
    type: "icicle", branchvalues: "total", sort: false, tiling: { orientation: "v", pad: 1 },
    ids: columns.ids, labels: columns.labels, parents: columns.parents, values: columns.values,
    hovertext: columns.text, hoverinfo: "text", textposition: "middle left",
    textfont: { color: "#ffffff" }, marker: { colors: columns.colors, line: { width: 0 } },
    pathbar: { thickness: ROW, textfont: { color: "#ffffff" } }, root: { color: "#75757f" }, leaf: { opacity: 1 },
  }], { ...base(), height: ROW * Math.max(6, deepest) + 36, margin: { l: 4, r: 4, t: 28, b: 8 }, uniformtext: { minsize: 9, mode: "hide" } }, OPTIONS);
}
