#!/usr/bin/env python3
"""Checks that the messages quoted by pages occur in the sources: in the first column of a table whose heading is "message",
and, in the page of troubleshooting, in double quotes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tree import ROOT, listed

TROUBLESHOOTING = "docs/troubleshooting.md"
SOURCES = ("lib/*.c", "lib/*.h", "lib/*.def", "preload/*.c", "preload/*.h", "cli/*.py")
TABLE = re.compile(r"^\| messages?\b[^|]*\|.*\n\|[-| :]+\|\n((?:\|.*\n?)+)", re.M)
QUOTE = re.compile(r"`([^`]+)`")
BY = re.compile(r"\(by ([^)]*)\)")  # the program whose message it is
# What stands for something else in a quoted message: an ellipsis, a number, or a word in capitals.
PLACEHOLDER = re.compile(r"\.\.\.|\b\d+\b|\b[A-Z]{2,}\b")
# Between the parts of one literal in a source: a quote, white space with comments, and a quote.
JOINT = re.compile(r'"\s*(?:\\\n\s*)?(?:f?r?")')


def quoted(page: Path, text: str) -> list[str]:
    """The messages that a page quotes."""
    found = []
    for table in TABLE.findall(text):
        for cell in (row.split("|")[1] for row in table.splitlines()):
            by = BY.search(cell)
            if not by or by[1].startswith("`sheaf"):
                found += QUOTE.findall(BY.sub("", cell))
    if page == ROOT / TROUBLESHOOTING:
        found += re.findall(r'"([^"\n]+)"', re.sub(r"`[^`\n]*`", "", text))
    return found


def pieces(message: str) -> list[str]:
    """The parts of a message that a source has as they are."""
    return [piece for part in PLACEHOLDER.split(message) if len(piece := part.strip(" ;:,")) > 2]


def missing(messages: dict[str, str], sources: str) -> list[str]:
    """A line for each message of which a part is not in the sources; `messages` has the page of each."""
    return [
        f'{page}: `{message}` is no message any more: no source has "{piece}"'
        for message, page in messages.items()
        for piece in pieces(message)
        if piece not in sources
    ]


def literals(text: str) -> str:
    """The strings of a source, a line for each, without comments and docstrings."""
    plain = re.sub(r'/\*[\s\S]*?\*/|"""[\s\S]*?"""|^ *# .*', "", text, flags=re.M)
    return "\n".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', JOINT.sub("", plain)))


def main() -> int:
    sources = "\n".join(literals(path.read_text()) for path in listed(*SOURCES))
    messages = {quote: str(page.relative_to(ROOT)) for page in listed("*.md") for quote in quoted(page, page.read_text())}
    wrong = missing(messages, sources) if messages else ["no page quotes a message; look at the pattern of tables"]
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
