"""The options of the preloaded object, read from the same table that it is built from (options.def)."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sheaf.errors import SheafError

_ROW = re.compile(r'^X\((\w+), (\w+), "([^"]*)", (\d+), (\d+), "((?:[^"\\]|\\.)*)"\)', re.MULTILINE)
_SIZE = re.compile(r"(\d+)([KMGT](i?B)?)?", re.IGNORECASE)


@dataclass
class Option:
    """One row of the table."""

    name: str
    kind: str
    default: str
    least: int
    most: int
    help: str

    @property
    def variable(self) -> str:
        """The environment variable that carries it."""
        return "SHEAF_" + self.name.upper()


def _table_file() -> Path:
    here = Path(__file__).parent
    for place in (here / "options.def", here.parents[1] / "preload" / "options.def"):
        if place.exists():
            return place
    raise SheafError(f"{here / 'options.def'}: missing; reinstall Sheaf", 125)


@cache
def table() -> dict[str, Option]:
    """All options by name."""
    rows = _ROW.findall(_table_file().read_text())
    return {row[0]: Option(row[0], row[1], row[2], int(row[3]), int(row[4]), row[5]) for row in rows}


def _number(option: Option, value: str) -> int | None:
    match = _SIZE.fullmatch(value)
    if match is None or (match[2] and option.kind != "size"):
        return None
    shift = 10 * ("KMGT".index(match[2][0].upper()) + 1) if match[2] else 0
    return int(match[1]) << shift


def parse(setting: str) -> tuple[str, str]:
    """NAME=VALUE as an environment variable and its value; SheafError tells what is wrong with it."""
    name, equals, value = setting.partition("=")
    option = table().get(name.lower().replace("-", "_"))
    if not equals:
        raise SheafError(f"--option {setting}: wants NAME=VALUE", 125)
    if option is None:
        near = difflib.get_close_matches(name.lower(), table(), 1)
        hint = f"did you mean {near[0]}?" if near else "see `sheaf run --help`"
        raise SheafError(f"--option {name}: there is no such option; {hint}", 125)
    if option.kind == "choice":
        words = option.help.split(":", 1)[0].split("|")
        if value not in words:
            raise SheafError(f"--option {setting}: wants one of {', '.join(words)}", 125)
    elif option.kind != "text":
        number = _number(option, value)
        if number is None or not option.least <= number <= option.most:
            wanted = "a size such as 64K or 1G" if option.kind == "size" else "a number"
            raise SheafError(f"--option {setting}: wants {wanted} from {option.least} to {option.most}", 125)
    return option.variable, value


def shown_default(option: Option) -> str:
    """The default, as one would write it."""
    if option.kind == "size":
        for shift, unit in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
            if int(option.default) and int(option.default) % (1 << shift) == 0:
                return f"{int(option.default) >> shift}{unit}"
    return option.default or "none"


def help_text() -> str:
    """The options as a list for --help."""
    return "\n".join(f"  {option.name} (default {shown_default(option)})\n      {option.help}" for option in table().values())
