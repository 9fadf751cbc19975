#!/usr/bin/env python3
"""Draws docs/figures/results.svg for README.md: time and memory of a few allocators, from docs/results/NAME.json.

    python3 docs/figures/results.py [docs/results/zen-5.json]

It needs matplotlib and click. Text and lines take their colours from a style sheet in the file, which follows the reader's
light or dark theme and brings its own background, so that the figure is readable on any page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "cli"))

from sheaf.commands.bench.plots import compact  # noqa: E402

SHOWN = {"glibc": "glibc", "mimalloc2": "mimalloc 2", "mimalloc3": "mimalloc 3", "tcmalloc": "tcmalloc", "sheaf": "Sheaf"}
COLOURS = {"glibc": "#8c959f", "mimalloc2": "#54aeff", "mimalloc3": "#218bff", "tcmalloc": "#a475f9", "sheaf": "#e5534b"}
SUITES = {"micro": "single operations", "programs": "models of programs", "real": "real programs"}
PANELS = (("time", "time (glibc = 1; less is better)"), ("memory", "peak memory (glibc = 1; less is better)"))
BAR = 0.16
# Stand for the theme's colours until the file is written: matplotlib knows no style sheets.
INK, PAPER = "#010203", "#fdfcfb"
STYLE = """<style>
  svg { color: #1f2328 }
  .paper { fill: #ffffff }
  @media (prefers-color-scheme: dark) { svg { color: #d1d7e0 } .paper { fill: #151b23 } }
  text { font-family: system-ui, sans-serif }
</style>"""


def read(path: Path) -> tuple[dict[tuple[str, str], dict[str, float]], dict[str, int]]:
    """The geometric means by suite and allocator, and the number of tests of each suite."""
    page: dict[str, Any] = json.loads(path.read_text())
    (*_, names), *lines = page["means"]
    means, tests = {}, {}
    for suite, count, found in lines:
        tests[suite] = count
        for contestant, values in found.items():
            means[suite, contestant] = dict(zip(names, values, strict=True))
    return means, tests


def draw(means: dict[tuple[str, str], dict[str, float]], tests: dict[str, int]) -> Any:
    figure, panels = pyplot.subplots(1, 2, figsize=(9.5, 3.9), sharey=True)
    for axes, (key, title) in zip(panels, PANELS, strict=True):
        for place, name in enumerate(SHOWN):
            y = [group + (place - (len(SHOWN) - 1) / 2) * BAR for group in range(len(SUITES))]
            x = [means[suite, name][key] for suite in SUITES]
            axes.barh(y, x, BAR * 0.86, color=COLOURS[name], label=SHOWN[name])
            for at, value in zip(y, x, strict=True):
                axes.annotate(
                    f"{value:.2f}", (value, at), (3, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK
                )
        axes.set_title(title, fontsize=10, color=INK, loc="left")
        axes.tick_params(colors=INK, labelsize=9, length=0)
        axes.set_xlim(0, 1.1 * max(means[suite, name][key] for suite in SUITES for name in SHOWN))
        axes.set_xticks([])
        for side in axes.spines.values():
            side.set_visible(False)
        axes.axvline(1, color=INK, linewidth=0.6, linestyle=(0, (3, 3)), zorder=0)
    panels[0].set_yticks(range(len(SUITES)), [f"{label}\n({tests[suite]} tests)" for suite, label in SUITES.items()])
    panels[0].invert_yaxis()
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="lower center", ncols=len(SHOWN), frameon=False, fontsize=9, labelcolor=INK)
    figure.set_facecolor(PAPER)
    for axes in panels:
        axes.set_facecolor("none")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    return figure


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "results" / "zen-5.json"
    out = HERE / "results.svg"
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sheaf"}):
        draw(*read(source)).savefig(out, metadata={"Date": None, "Creator": None})
    text = out.read_text().replace(INK, "currentColor").replace(f'style="fill: {PAPER}"', 'class="paper"')
    at = text.index("<defs>")
    out.write_text(compact(text[:at] + STYLE + "\n " + text[at:]))


if __name__ == "__main__":
    main()
