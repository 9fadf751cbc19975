"""Ages as users write them, such as 12h or 7d."""

from __future__ import annotations

import re

from sheaf.errors import SheafError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGE = re.compile(r"(\d{1,9})([smhdw])")


def seconds(option: str, value: str) -> int:
    """The seconds of an age that an option has as its value. Raises SheafError if it is none."""
    found = _AGE.fullmatch(value)
    if not found:
        raise SheafError(f"{option} {value}: not an age; give a number and s, m, h, d or w, such as 12h or 7d", 2)
    return int(found[1]) * SECONDS[found[2]]
