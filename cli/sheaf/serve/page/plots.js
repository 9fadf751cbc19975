// The plot of memory over time, drawn by Plotly.

import { scale } from "./view.js";

const OPTIONS = { displayModeBar: false, responsive: true, displaylogo: false };

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
