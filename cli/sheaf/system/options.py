"""The options of the preloaded object for `sheaf run`, from the table from which the object is built."""

from __future__ import annotations

import difflib
import re
from functools import cache

from sheaf.errors import SheafError
from sheaf.system import optiontable
from sheaf.system.optiontable import Option

_SIZE = re.compile(r"([0-9]+)(?:([KMGTkmgt])(?:iB|B)?)?")


@cache
def table() -> dict[str, Option]:
    """All options by name. Raises SheafError if the table cannot be read."""
    file = optiontable.table_file()
    try:
        return optiontable.parse(file.read_text())
    except OSError as error:
        raise SheafError(f"{file}: {error.strerror}; reinstall Sheaf", 125) from error


def number(option: Option, value: str) -> int | None:
    """The value as an integer, suffixes of sizes applied; None if it does not parse."""
    match = _SIZE.fullmatch(value)
    if match is None or (match[2] and option.kind != "size"):
        return None
    return int(match[1]) << (10 * ("KMGT".index(match[2].upper()) + 1) if match[2] else 0)


def wrong(option: Option, value: str) -> str | None:
    """The error in a value, in the words of preload/options.c; None if there is none. The object itself checks lists."""
    if option.kind == "boolean":
        return None if value in ("0", "1") else "neither 0 nor 1"
    if option.kind == "choice":
        return None if value in option.words else "no such choice"
    if option.kind == "string":
        return None if len(value.encode(errors="surrogateescape")) <= option.most else "too long"
    if option.kind == "list":
        return None
    found = number(option, value)
    if found is None:
        return f"not a {option.kind}"
    return None if option.least <= found <= option.most else "out of range"


def parse(setting: str) -> tuple[str, str]:
    """Translate NAME=VALUE into an environment variable and its value. Raises SheafError if name or value is wrong."""
    name, equals, value = setting.partition("=")
    option = table().get(name.lower().replace("-", "_"))
    if not equals:
        raise SheafError(f"--option {setting}: no value; give NAME=VALUE", 125)
    if option is None:
        near = difflib.get_close_matches(name.lower(), table(), 1)
        hint = f"did you mean {near[0]}?" if near else "see `sheaf run --help`"
        raise SheafError(f"--option {name}: no such option; {hint}", 125)
    error = wrong(option, value)
    if error:
        raise SheafError(f"--option {setting}: {error}; give {option.values}", 125)
    return option.variable, value


def shown_default(option: Option) -> str:
    """The default as a user would write it."""
    return option.default or "none"


def help_text() -> str:
    """The options as a list for --help."""
    return "\n".join(f"  {option.name} (default {shown_default(option)})\n      {option.help}" for option in table().values())
