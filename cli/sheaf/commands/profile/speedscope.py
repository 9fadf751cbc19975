"""Profiles in the file format of speedscope (www.speedscope.app/file-format-schema.json), of its type `sampled`."""

from __future__ import annotations

import json
from typing import Any

from sheaf.commands.profile.symbols import Symbolizer
from sheaf.commands.profile.views import Profile

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def dump(profile: Profile, symbolizer: Symbolizer) -> bytes:
    """One profile for each column, the main one active. Values below 0, which the viewer cannot draw, are left out."""
    symbolizer.prepare(profile.pcs)
    frames: dict[tuple[str, str], int] = {}  # without lines, so that a function is one frame
    stacks = []
    for row in profile.rows:
        keys = [(frame.function, frame.file) for frame in symbolizer.stack(row)]
        stacks.append([frames.setdefault(key, len(frames)) for key in keys])
    profiles: list[dict[str, Any]] = []
    for i, column in enumerate(profile.columns):
        pairs = [(stack, row.values[i]) for stack, row in zip(stacks, profile.rows, strict=True) if row.values[i] > 0]
        profiles.append(
            {
                "type": "sampled",
                "name": column.heading,
                "unit": "bytes" if column.unit == "bytes" else "none",
                "startValue": 0,
                "endValue": sum(value for _, value in pairs),
                "samples": [stack for stack, _ in pairs],
                "weights": [value for _, value in pairs],
            }
        )
    shared = [{"name": name, "file": file} if file else {"name": name} for name, file in frames]
    snapshot = profile.snapshot
    few = next((f" {note}" for note in profile.notes if "unreliable" in note), "")
    document = {
        "$schema": _SCHEMA,
        "name": f"{snapshot.who}: {profile.title}.{few}",
        "exporter": "sheaf",
        "activeProfileIndex": profile.main,
        "shared": {"frames": shared},
        "profiles": profiles,
    }
    return json.dumps(document).encode("utf-8", "replace")
