#!/usr/bin/env python3
"""Writes docs/figures/architecture.dot, the folders of lib/ and what each includes, and draws it with graphviz's dot.

    python3 docs/figures/architecture.py            writes both files
    python3 docs/figures/architecture.py --check    exits with 1 where they are out of date; does not need dot

The order of the folders is that of tests/check/tree.py. An arrow that follows from others is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "check"))

import tree  # noqa: E402

# What each folder does. docs/architecture.md has the same in full sentences.
ROLES = {
    "rcu": "libsheaf-rcu.so: grace periods, kfree_rcu",
    "front/api": "what libsheaf exports beside kmem_cache_*",
    "diagnostics/leak": "lost blocks at exit: stop, scan, report",
    "front/malloc": "size classes, large blocks, malloc and free",
    "cache/kmem": "kmem_cache_*: create, prefilled sheaves, reserve",
    "process": "start, decay, fork, helper thread, limits",
    "cache/deferred": "sheaves that wait for a grace period",
    "cache/node": "memory nodes",
    "diagnostics/profile": "sampled allocations with their call stacks",
    "diagnostics/v8": "functions of JavaScript",
    "diagnostics/ruby": "frames of a Ruby interpreter",
    "diagnostics/python": "frames of a Python interpreter",
    "diagnostics/script": "what interpreters have in common",
    "diagnostics/feature": "debugging, hardening, fault injection, sampling",
    "cache": "descriptor, refill and flush, remote drains, sparse caches",
    "cache/slot": "per-CPU words, sheaves, barns, counters",
    "memory/slab": "objects of one cache in a span",
    "memory/region": "slices of 64 KiB: arenas, free spans, purging",
    "memory/space": "address space, tables, numbers of locks",
    "platform/config": "the options as a structure",
    "platform/rseq": "sections and their registration",
    "platform/os": "system calls, locks, memory, hooks",
    "platform/arch": "the CPU: assembly, a folder for each",
}
# Outside of the folders' order: (name, role, the folders that it uses).
OUTSIDE = [("preload", "libsheaf-preload.so: malloc for unmodified programs", ("diagnostics/leak",))]
STYLE = """<style>
  svg { color: #1f2328 }
  .paper { fill: #ffffff }
  .box { fill: #f6f8fa }
  @media (prefers-color-scheme: dark) { svg { color: #d1d7e0 } .paper { fill: #151b23 } .box { fill: #262c36 } }
</style>"""


def includes() -> dict[str, set[str]]:
    """The folders below it that each folder includes; tests/check/tree.py refuses others."""
    order = tree.LAYERS
    below: dict[str, set[str]] = {folder: set() for folder in order}
    for file in sorted((ROOT / "lib").rglob("*.[ch]")):
        folder = file.parent.relative_to(ROOT / "lib").as_posix()
        if folder in below:
            found = re.findall(r'^\s*#\s*include\s*"([\w/]+)/', file.read_text(), re.M)
            below[folder] |= {name for name in found if name in order and order.index(name) > order.index(folder)}
    return below


def reduced(below: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that do not follow from others."""
    reach: dict[str, set[str]] = {}
    for folder in reversed(tree.LAYERS):
        reach[folder] = below[folder].union(*(reach[name] for name in below[folder]))
    return [
        (folder, name)
        for folder in tree.LAYERS
        for name in sorted(below[folder], key=tree.LAYERS.index)
        if not any(name in reach[other] for other in below[folder])
    ]


def box(name: str, role: str, shape: str) -> str:
    title = f"lib/{name}" if name in ROLES else name
    return f'  "{name}" [label=<<b>{title}</b><br/><font point-size="9">{escape(role)}</font>>{shape}]'


def source() -> str:
    if missing := set(tree.LAYERS) ^ set(ROLES):
        raise SystemExit(
            f"docs/figures/architecture.py: ROLES and LAYERS of tests/check/tree.py differ: {', '.join(sorted(missing))}"
        )
    lines = [
        "// Made by docs/figures/architecture.py from the includes of lib/; do not edit.",
        "digraph architecture {",
        '  graph [rankdir=TB, ranksep=0.35, nodesep=0.3, bgcolor="#fdfcfb", fontname="sans-serif"]',
        '  node [shape=box, style=filled, fillcolor="#fafbfc", color="#010203", fontcolor="#010203"]',
        '  node [fontname="sans-serif", fontsize=12]',
        '  edge [color="#010203", arrowsize=0.6]',
    ]
    lines += [box(name, role, ', style="filled,rounded"') for name, role, _ in OUTSIDE]
    lines += [box(folder, ROLES[folder], "") for folder in tree.LAYERS]
    lines += [f'  "{name}" -> "{used}"' for name, _, uses in OUTSIDE for used in uses]
    lines += [f'  "{folder}" -> "{name}"' for folder, name in reduced(includes())]
    return "\n".join([*lines, "}"]) + "\n"


def picture(dot: str) -> str:
    """The SVG, with colours from a style sheet that follows the reader's light or dark theme."""
    ran = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True, check=True)
    svg = re.sub(r"<!--.*?-->\n?", "", ran.stdout, flags=re.S)
    svg = svg.replace("#010203", "currentColor")
    svg = svg.replace('fill="#fdfcfb" stroke="transparent"', 'class="paper"').replace(
        'fill="#fdfcfb" stroke="none"', 'class="paper"'
    )
    svg = svg.replace('fill="#fafbfc"', 'class="box"').replace('fill="#000000"', 'fill="currentColor"')
    at = svg.index("<g id=")
    return svg[:at] + STYLE + "\n" + svg[at:]


def drawn(text: str) -> set[str]:
    """The titles of all arrows, as in a->b."""
    titles = re.findall(r"<title>(.*?)</title>", text)
    return {title.replace("&#45;", "-").replace("&gt;", ">") for title in titles if "&gt;" in title}


def check(dot: str) -> int:
    arrows = {line.strip().replace(" ", "").replace('"', "") for line in dot.splitlines() if "->" in line and "//" not in line}
    for path, good in (
        (HERE / "architecture.dot", lambda text: text == dot),
        (HERE / "architecture.svg", lambda text: drawn(text) == arrows),
    ):
        if not path.exists() or not good(path.read_text()):
            print(f"docs/figures/{path.name}: out of date; run docs/figures/architecture.py (it needs graphviz)", file=sys.stderr)
            return 1
    return 0


def main() -> int:
    dot = source()
    if "--check" in sys.argv[1:]:
        return check(dot)
    (HERE / "architecture.dot").write_text(dot)
    (HERE / "architecture.svg").write_text(picture(dot))
    return 0


if __name__ == "__main__":
    sys.exit(main())
