#!/usr/bin/env python3
"""Checks all pages (*.md): what relative links lead to exists, docs/README.md leads to each page of docs/, and the files
and functions that pages name are there. Also checks that the pages and sections that sources refer to exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tree import ROOT, listed

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img [^>]*src=\"([^\"]+)\"")
INDEX, INDEXED = "docs/README.md", "docs"
FILE = re.compile(r"`((?:lib|preload|cli|tests|bench|docs)/[\w./+-]+\w)`")
FUNCTION = re.compile(r"`(\w+_\w+)\(\)`")
# In sources: a page, perhaps followed by the name of a section, which may be continued on the next line of a comment.
REFERENCE = re.compile(r'\bdocs/([\w./-]*\w\.md)(?:,[\s*/#]*"([^"]+)")?')
SOURCES = ("*.c", "*.h", "*.def", "*.cpp", "*.py", "*.ld", "*.build")
# Functions of libraries that pages name.
FOREIGN = {"pthread_create", "call_rcu_before_fork"}


def pages() -> list[Path]:
    return listed("*.md")


def prose(page: Path) -> str:
    """The page without code, where brackets are no links and # is no heading."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    text = re.sub(r"^( {4}|\t)(?![ ]*[-*|]).*$", "", text, flags=re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The names that forges give to headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    names: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{name}-{names[name]}" if name in names else name)
        names[name] = names.get(name, 0) + 1
    return found


def wrong_links(page: Path, linked: set[Path]) -> list[str]:
    wrong = []
    for match in LINK.finditer(prose(page)):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        linked.add(target)
        if not target.exists():
            wrong.append(f"{page.relative_to(ROOT)}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{page.relative_to(ROOT)}: {link}: no such heading; there are {', '.join(sorted(anchors(target)))}")
    return wrong


def sources() -> set[str]:
    """Every word of the sources."""
    words: set[str] = set()
    for folder in ("lib", "preload", "cli"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".c", ".h", ".py", ".def"}:
                words |= set(re.findall(r"\w+", file.read_text()))
    return words


def exists(name: str) -> bool:
    """A file, or a program of the tests that is built from one source."""
    return (ROOT / name).exists() or (ROOT / f"{name}.c").exists()


def wrong_names(page: Path, words: set[str]) -> list[str]:
    name, text = page.relative_to(ROOT), page.read_text()
    wrong = [f"{name}: {file}: no such file" for file in FILE.findall(text) if not exists(file)]
    functions = set(FUNCTION.findall(text)) - words - FOREIGN
    return wrong + [f"{name}: {function}(): no such function" for function in sorted(functions)]


def sections(page: Path) -> set[str]:
    """The headings, and the bold words that begin a paragraph, without what they have in parentheses."""
    found = re.findall(r"^(?:#{1,6} +(.*?) *$|\*\*(.*?)[.:]?\*\*)", page.read_text(), re.M)
    return {re.sub(r" \(.*\)\.?$", "", heading or bold) for heading, bold in found}


def wrong_references(source: Path) -> list[str]:
    name, wrong = source.relative_to(ROOT), []
    for page, section in REFERENCE.findall(source.read_text()):
        target = ROOT / "docs" / page
        wanted = re.sub(r"[\s*]+", " ", section)
        if not target.exists() and target.stem != "NAME":  # NAME.md stands for any page
            wrong.append(f"{name}: docs/{page}: no such page")
        elif wanted and wanted not in sections(target):
            wrong.append(f"{name}: docs/{page}: no section {wanted!r}; there are {', '.join(sorted(sections(target)))}")
    return wrong


def main() -> int:
    wrong: list[str] = []
    for source in listed(*SOURCES):
        if source.parts[len(ROOT.parts)] != "tests" or "check" not in source.parts:
            wrong += wrong_references(source)
    led: set[Path] = set()
    words = sources()
    for page in pages():
        wrong += wrong_names(page, words)
        wrong += wrong_links(page, led if str(page.relative_to(ROOT)) == INDEX else set())
    for page in pages():
        name = page.relative_to(ROOT)
        if str(name.parent) == INDEXED and str(name) != INDEX and page not in led:
            wrong.append(f"{INDEX}: does not lead to {name}")
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
