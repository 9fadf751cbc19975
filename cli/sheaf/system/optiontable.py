"""Read the table of options, lib/platform/config/options.def, for the command and the checks. Needs only the standard library."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_ROW = re.compile(r"^OPTION_([A-Z_]+)\(", re.MULTILINE)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(),]|[^"(),]+')
_SIZES = ((40, "T"), (30, "G"), (20, "M"), (10, "K"))
KINDS = {"BOOLEAN": 4, "NUMBER": 7, "SIZE": 6, "CHOICE": 5, "STRING": 4, "LIST": 5}  # number of arguments by kind of row
NOTES = {"WORD": 4, "PRELOADED": 3, "IMPLIES": 3, "IMPLIES_BY": 5, "NO_EFFECT": 3, "NO_EFFECT_AT_EXIT": 3}


def shown_size(number: int) -> str:
    """A size with the largest suffix that divides it."""
    for shift, unit in _SIZES:
        if number and number % (1 << shift) == 0:
            return f"{number >> shift}{unit}"
    return str(number)


@dataclass
class Option:
    """
    One option. `default` is that of the preloaded object, as a user writes it; empty if there is none. `least` and `most` are
    in `unit`.
    """

    name: str
    kind: str
    text: str
    default: str = ""
    default_number: int = 0
    least: int = 0
    most: int = 0
    unit: str = ""
    words: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def variable(self) -> str:
        """The environment variable from which the object reads the option."""
        return "SHEAF_" + self.name.upper()

    @property
    def help(self) -> str:
        """The help text: description, words of a choice with their meaning, implications, and conditions for no effect."""
        words = "; ".join(f"{word}: {text}" for word, text in self.words.items())
        return "; ".join([self.text + (f" ({words})" if words else ""), *self.notes])

    @property
    def values(self) -> str:
        """The accepted values in words."""
        if self.kind == "boolean":
            return "0 or 1"
        if self.kind == "number":
            return f"a number from {self.least} to {self.most}" + (f", in {self.unit}" if self.unit else "")
        if self.kind == "size":
            return f"a size such as 1M, from {shown_size(self.least)} to {shown_size(self.most)}"
        if self.kind == "choice":
            *others, last = self.words
            return f"{', '.join(others)} or {last}"
        return f"at most {self.most} characters" if self.kind == "string" else "a list"


def _arguments(text: str, at: int) -> list[str]:
    """The arguments of a macro; `at` follows its parenthesis. Adjacent string literals are joined. Raises ValueError."""
    found, now, depth = [], "", 0
    while True:
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError("a row has no closing parenthesis")
        at = token.end()
        if token[0] in ",)" and depth == 0:
            literals = re.findall(r'"((?:[^"\\]|\\.)*)"', now)
            found.append("".join(literals) if literals else " ".join(now.split()))
            now = ""
            if token[0] == ")":
                return found
        else:
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            now += token[0]


def _number(text: str) -> int:
    match = re.fullmatch(r"(\d+)(?:ull)?(?: << (\d+))?", text)
    if match is None:
        raise ValueError(f"{text}: not a number; write a number or a shift such as 64ull << 20")
    return int(match[1]) << int(match[2] or 0)


def _option(kind: str, row: list[str]) -> Option:
    option = Option(row[0], kind.lower(), row[-1])
    if kind == "BOOLEAN":
        option.default = {"false": "0", "true": "1"}[row[2]]
    elif kind in ("NUMBER", "SIZE"):
        option.least, option.most = _number(row[3]), _number(row[4])
        option.default_number = _number(row[2])
        option.default = shown_size(option.default_number) if kind == "SIZE" else str(option.default_number)
        option.unit = row[5] if kind == "NUMBER" else "bytes"
    elif kind == "CHOICE":
        option.default = row[3]  # a constant, which parse() replaces by its word
    elif kind == "STRING":
        option.most = _number(row[2])
    return option


def _annotate(table: dict[str, Option], kind: str, row: list[str]) -> None:
    option = table[row[0]]
    if kind == "IMPLIES":
        option.notes.append(f"implies {row[1]}={row[2]} unless {row[1]} is set")
    elif kind == "IMPLIES_BY":
        option.notes.append(f"{row[1]} implies {row[3]}={row[4]} unless {row[3]} is set")
    elif kind in ("NO_EFFECT", "NO_EFFECT_AT_EXIT"):
        option.notes.append(f"no effect {row[2]}")


def parse(text: str) -> dict[str, Option]:
    """All options by name, in the order of the table. Raises ValueError if a row breaks the rules at the head of the table."""
    table: dict[str, Option] = {}
    constants: dict[str, dict[str, str]] = {}
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    for match in _ROW.finditer(text):
        kind, row = match[1], _arguments(text, match.end())
        line = text.count("\n", 0, match.start()) + 1
        if len(row) != {**KINDS, **NOTES}.get(kind):
            raise ValueError(f"line {line}: OPTION_{kind} with {len(row)} arguments: no such row; see the head of the table")
        if kind in KINDS:
            if row[0] in table:
                raise ValueError(f"line {line}: {row[0]}: duplicate option; remove one row")
            table[row[0]] = _option(kind, row)
        elif row[0] not in table:
            raise ValueError(f"line {line}: {row[0]}: no such option above this row; move the row below its option")
        elif kind == "WORD":
            table[row[0]].words[row[1]] = row[3]
            constants.setdefault(row[0], {})[row[2]] = row[1]
        elif kind == "PRELOADED":
            table[row[0]].default = row[2]
        else:
            _annotate(table, kind, row)
    for name, words in constants.items():
        if table[name].default not in words:
            raise ValueError(f"{name}: the default {table[name].default} is not one of its words; correct the row")
        table[name].default = words[table[name].default]
    return table


def table_file() -> Path:
    """The path of the table: in the installed package, or else in the source tree."""
    here = Path(__file__).parents[1]
    installed = here / "options.def"
    return installed if installed.exists() else here.parents[1] / "lib" / "platform" / "config" / "options.def"
