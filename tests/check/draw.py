#!/usr/bin/env python3
"""Draws comments and paragraphs of documentation at random, to be read critically before a release.

Comments come from the C sources, one draw for each comment of at least six words; paragraphs come from the pages under
docs/ and the README, without tables, code and lists. The same seed draws the same texts from the same tree.
"""

import argparse
import random
import re

from tree import ROOT, listed

WORDS = 6


def comments() -> list[str]:
    found = []
    for file in listed("lib/*.c", "lib/*.h", "preload/*.c", "preload/*.h", "tests/*.c", "tests/*.h", "bench/*.c"):
        text = file.read_text()
        for match in re.finditer(r"/\*(.*?)\*/", text, re.DOTALL):
            words = re.sub(r"\n\s*\*", " ", match[1]).split()
            if len(words) >= WORDS and words[0] != "----":
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{file.relative_to(ROOT)}:{line}: {' '.join(words)}")
    return found


def paragraphs() -> list[str]:
    found = []
    for file in listed("README.md", "CONTRIBUTING.md", "docs/*.md"):
        text = re.sub(r"```.*?```", "", file.read_text(), flags=re.DOTALL)
        for block in re.split(r"\n\s*\n", text):
            if block.strip() and not re.match(r"\s*([#|>\-*!]|\d+\.|    )", block):
                found.append(f"{file.relative_to(ROOT)}: {' '.join(block.split())}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--comments", type=int, default=20)
    parser.add_argument("--paragraphs", type=int, default=10)
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    for text in draw.sample(comments(), chosen.comments) + draw.sample(paragraphs(), chosen.paragraphs):
        print(f"- {text}")


if __name__ == "__main__":
    main()
