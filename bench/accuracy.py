#!/usr/bin/env python3
"""Run programs that know what they hold, and compare the figures of heap profiles with that; see bench/README.md.

python3 bench/accuracy.py BUILD [--runs N] [--only NAME ...] [--peers] [--json FILE]
"""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_suffix("")), run_name="__main__")
