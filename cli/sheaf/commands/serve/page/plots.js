// The plot of memory over time: two stacked areas, a line, axes, and the values under the pointer.

import { scale } from "./view.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 64, right: 12, top: 26, bottom: 26 };

function part(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Round numbers from 0 up to at least the largest one. */
export function ticks(largest, most = 5) {
  const raw = largest / most;
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw) ?? power;
  return Array.from({ length: Math.ceil(largest / step - 1e-9) + 1 }, (_, i) => i * step);
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** Draw memory over time; `history` is what api/history returns. */
export function drawMemory(node, history) {
  const { times, live_bytes: live, warm_bytes: warm, resident_bytes: resident } = history;
  const held = live.map((value, i) => value + warm[i]);
  const { divisor, unit } = scale(Math.max(1, ...resident, ...held));
  const marks = ticks(Math.max(1, ...resident, ...held) / divisor);
  const width = Math.max(200, node.clientWidth), height = Math.max(120, node.clientHeight);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const first = times[0] ?? 0, span = Math.max(1, (times.at(-1) ?? 1) - first);
  const x = (seconds) => MARGIN.left + (inner.width * (seconds - first)) / span;
  const y = (bytes) => MARGIN.top + inner.height * (1 - bytes / divisor / marks.at(-1));
  const points = (values) => values.map((value, i) => `${x(times[i]).toFixed(1)},${y(value).toFixed(1)}`);
  const area = (lower, upper) => `M${[...points(upper), ...points(lower).reverse()].join("L")}Z`;
  const quiet = { fill: "var(--quiet)", "font-size": 12 };

  const drawn = part("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  for (const mark of marks) {
    const at = y(mark * divisor);
    drawn.append(part("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at, stroke: "var(--line)" }),
      part("text", { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end", ...quiet }, `${+mark.toPrecision(3)} ${unit}`));
  }
  const labels = inner.width < 440 ? 3 : 7;
  for (let i = 0; times.length > 1 && i < labels; i++) {
    const seconds = first + (span * (i + 0.5)) / labels;
    drawn.append(part("text", { x: x(seconds), y: height - 8, "text-anchor": "middle", ...quiet }, clock(seconds)));
  }
  if (times.length > 0) {
    const zeros = live.map(() => 0);
    drawn.append(part("path", { class: "series", d: area(zeros, live), fill: "var(--live)" }),
      part("path", { class: "series", d: area(live, held), fill: "var(--warm)" }),
      part("path", { class: "series", d: `M${points(resident).join("L")}`, fill: "none", stroke: "var(--resident)",
        "stroke-width": 2, "stroke-dasharray": "2 3" }));
  }
  ["live", "warm", "resident"].forEach((name, i) => {
    drawn.append(part("rect", { x: MARGIN.left + 90 * i, y: 4, width: 12, height: 12, fill: `var(--${name})` }),
      part("text", { x: MARGIN.left + 90 * i + 17, y: 14, fill: "var(--text)", "font-size": 12 }, name));
  });
  const line = part("line", { y1: MARGIN.top, y2: height - MARGIN.bottom, stroke: "var(--quiet)", visibility: "hidden" });
  drawn.append(line);
  const title = part("title", {});
  drawn.append(title);
  drawn.addEventListener("pointermove", (event) => {
    if (times.length === 0) return;
    const seconds = first + (span * (event.clientX - drawn.getBoundingClientRect().left - MARGIN.left)) / inner.width;
    const i = times.reduce((best, time, at) => (Math.abs(time - seconds) < Math.abs(times[best] - seconds) ? at : best), 0);
    const said = (bytes) => `${(bytes / divisor).toFixed(1)} ${unit}`;
    title.textContent = `${clock(times[i])}: live ${said(live[i])}, warm ${said(warm[i])}, resident ${said(resident[i])}`;
    line.setAttribute("x1", x(times[i]));
    line.setAttribute("x2", x(times[i]));
    line.setAttribute("visibility", "visible");
  });
  drawn.addEventListener("pointerleave", () => line.setAttribute("visibility", "hidden"));
  node.replaceChildren(drawn);
}
