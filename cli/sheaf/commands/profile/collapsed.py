"""Collapsed stacks, as flame graph tools read them: frames from the outermost in, joined by semicolons, and a number."""

from __future__ import annotations

from collections import defaultdict

from sheaf.commands.profile.symbols import Symbolizer
from sheaf.commands.profile.views import Profile


def dump(profile: Profile, symbolizer: Symbolizer) -> bytes:
    """A line for each stack with the main value as a whole number; stacks that round to 0 are left out."""
    symbolizer.prepare(profile.pcs)
    lines: defaultdict[str, float] = defaultdict(float)
    for row in profile.rows:
        frames = symbolizer.stack(row)
        lines[";".join(frame.function.replace(";", ":") for frame in frames)] += row.values[profile.main]
    ordered = sorted(lines.items(), key=lambda item: (-item[1], item[0]))
    return "".join(f"{stack} {round(value)}\n" for stack, value in ordered if round(value)).encode("utf-8", "replace")
