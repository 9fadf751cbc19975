#!/usr/bin/env python3
"""Writes the pages of results and their summary from the figures beside them: python3 docs/results/write.py (needs click).

`sheaf bench --page docs/results/NAME.md` makes the figures of a page and then does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "cli"))

from sheaf.commands.bench import pages  # noqa: E402
from sheaf.errors import SheafError  # noqa: E402

if __name__ == "__main__":
    try:
        pages.write_all(HERE)
    except SheafError as error:
        sys.exit(f"write.py: {error.message}")
