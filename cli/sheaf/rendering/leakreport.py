"""The leak reports of `sheaf run --leaks`: read them, suppress what is known, and print the rest with source positions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from sheaf.errors import SheafError
from sheaf.rendering import frames
from sheaf.rendering.frames import Found
from sheaf.system.places import Places

_LONGEST = 16 << 10  # characters of a line of a report; Sheaf writes none that is longer
_LARGEST = 1 << 20  # characters of a file of suppressions
SHOWN = 50  # groups that are printed at most
_HEAD = re.compile(
    r"sheaf: leak: (\d{1,20}) bytes? in (\d{1,20}) blocks? of (.+), lost"
    r"(?:, and (\d{1,20}) bytes? in (\d{1,20}) blocks? through (?:it|them))?:?"
)
_SUM = re.compile(r"sheaf: (lost|nothing lost)\b.* \(process \d+, .*\)")
# The functions through which CPython allocates the memory of its objects (Objects/obmalloc.c, Modules/gcmodule.c).
_CPYTHON = re.compile(r"_?PyObject_(Malloc|Calloc|Realloc)|_?PyMem_\w+|_?PyObject_GC_\w+|gc_alloc|new_arena|pymalloc_\w+")
_INNERMOST = 4  # frames in which a function of _CPYTHON is looked for
_INTERPRETER = re.compile(r"(.*/)?(python3(\.\d+)?|libpython3[^/]*\.so[^/]*)")


@dataclass
class Amount:
    """A number of blocks and their bytes."""

    bytes: int = 0
    blocks: int = 0
    groups: int = 0

    def add(self, group: Group) -> None:
        """Add a group, with what was lost through its blocks."""
        self.bytes += group.bytes
        self.blocks += group.blocks
        self.groups += 1

    def __str__(self) -> str:
        return f"{self.bytes} byte{'s' * (self.bytes != 1)} in {self.blocks} block{'s' * (self.blocks != 1)}"


@dataclass
class Group:
    """Lost blocks of one stack or one cache. `bytes` and `blocks` include what was lost through them, `own` does not."""

    head: str
    bytes: int
    blocks: int
    cache: str
    own: Amount
    frames: list[str] = field(default_factory=list)  # lines


@dataclass
class Process:
    """The report of one process: `notes` are its other lines, `sum` is the last one."""

    groups: list[Group]
    notes: list[str]
    sum: str


@dataclass
class Reports:
    """All reports of a run, and the lines that belong to none, such as reports of SHEAF_DEBUG."""

    processes: list[Process]
    others: list[str]


def parse(lines: Iterable[str]) -> Reports:
    """Read the lines of a log. The lines of a process are contiguous; a report without its last line is kept as others."""
    reports = Reports([], [])
    groups: list[Group] = []
    notes: list[str] = []
    for line in lines:
        if len(line) > _LONGEST:
            reports.others.append(line)
        elif match := _HEAD.fullmatch(line):
            sizes = [int(number or 0) for number in match.group(1, 2, 4, 5)]
            groups.append(Group(line, sizes[0] + sizes[2], sizes[1] + sizes[3], match[3], Amount(sizes[0], sizes[1])))
        elif groups and groups[-1].head.endswith(":") and line.startswith("sheaf:     "):
            groups[-1].frames.append(line)
        elif _SUM.fullmatch(line):
            reports.processes.append(Process(groups, notes, line))
            groups, notes = [], []
        elif line.startswith("sheaf: leaks: "):
            notes.append(line)
        else:
            reports.others.append(line)
    for group in groups:
        reports.others += [group.head, *group.frames]
    reports.others += notes
    return reports


# ---- suppressions ----


def read_suppressions(name: str) -> list[str]:
    """The patterns of a file of lines leak:PATTERN, with blank lines and # comments. Raises SheafError."""
    try:
        with open(name, errors="surrogateescape") as file:
            lines = file.read(_LARGEST).splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SheafError(f"--suppress {name}: {why}; name a file of lines leak:PATTERN", 125) from error
    patterns = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        kind, colon, pattern = text.partition(":")
        if kind != "leak" or not colon or not pattern.strip("^$* "):
            raise SheafError(f"--suppress {name}: line {number}: {text}: no suppression; write leak:PATTERN", 125)
        patterns.append(pattern.strip())
    return patterns


def _glob(pattern: str) -> str:
    """The pattern for fnmatch: it matches anywhere in a name, unless ^ or $ ties it to the start or the end."""
    start = "" if pattern.startswith("^") else "*"
    end = "" if pattern.endswith("$") else "*"
    return start + pattern.removeprefix("^").removesuffix("$") + end


def globs(patterns: list[str]) -> list[str]:
    """The patterns of suppressions for fnmatch."""
    return [_glob(pattern) for pattern in patterns]


def _names(line: str, places: Found) -> Iterator[str]:
    """What a suppression may match in the line of a frame: function names, the source file, the module."""
    frame = frames.frame_of(line)
    if frame is None:
        return
    yield frame.symbol.rpartition("+")[0]
    yield frame.module
    for place in places.get((frame.module, frame.offset), ()):
        yield place.function
        yield place.file


def matches(group: Group, globs: list[str], places: Found) -> bool:
    """Whether the stack of a group matches one of the patterns, as globs() made them."""
    names = [name for line in group.frames for name in _names(line, places) if name]
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def _of_cpython(group: Group, places: Found) -> bool:
    """
    Whether the blocks come from CPython's object allocator. Its functions end in jumps to malloc, and their names may be
    stripped, so a stack that begins in the interpreter itself counts as well.
    """
    innermost = frames.frame_of(group.frames[0]) if group.frames else None
    if innermost and _INTERPRETER.fullmatch(innermost.module):
        return True
    names = (name for line in group.frames[:_INNERMOST] for name in _names(line, places))
    return any(_CPYTHON.fullmatch(name) for name in names)


# ---- the text ----


@dataclass(frozen=True)
class Advice:
    """What to do for all groups, and for stacks."""

    more: str = "name a file with --option debug_log=FILE for all of them"
    stacks: str = "add --stacks"


@dataclass
class Result:
    """What to print, and what was lost and not suppressed."""

    lines: list[str]
    lost: Amount


class _Printer:
    """Collects the lines. At most `most` groups are printed over all processes; None: all."""

    def __init__(self, places: Found, patterns: list[str], most: int | None, advice: Advice) -> None:
        self.places, self.most, self.advice = places, most, advice
        self.globs = globs(patterns)
        self.result = Result([], Amount())
        self.shown = 0
        self.suppressed = Amount()
        self.stackless = Amount()
        self.rest = Amount()

    def process(self, process: Process) -> None:
        python = Amount()
        for group in process.groups:
            if matches(group, self.globs, self.places):
                self.suppressed.add(group)
                continue
            self.result.lost.add(group)
            if not group.frames:
                self.stackless.add(group)
            if _of_cpython(group, self.places):
                python.add(group)
            elif self.most is None or self.shown < self.most:
                self.shown += 1
                self.result.lines.append(group.head)
                self.result.lines += [frames.with_place(line, self.places) for line in group.frames]
            else:
                self.rest.add(group)
        if python.groups:
            self.result.lines.append(f"sheaf: leak: {python} of CPython's object allocator, lost: memory of Python objects")
        self.result.lines += [*process.notes, process.sum]

    def end(self) -> Result:
        lines = self.result.lines
        if self.rest.groups:
            lines.append(f"sheaf: leak: and {self.rest} in {self.rest.groups} smaller groups; {self.advice.more}")
        if self.globs:
            lines.append(f"sheaf: suppressed: {self.suppressed}")
        if self.globs and self.stackless.groups:
            lines.append(f"sheaf: no stack is known of {self.stackless}, so no suppression can match; {self.advice.stacks}")
        return self.result


def _quiet(process: Process) -> bool:
    return not process.groups and not process.notes


def text(lines: list[str], patterns: list[str], most: int | None = SHOWN, advice: Advice = Advice()) -> Result:
    """
    What to print of the reports in a log, given the patterns of suppressions, with at most so many groups. Where several
    processes have reported, those that lost nothing share one line.
    """
    reports = parse(lines)
    with Places() as known:
        places = frames.places_of(lines, known)
    printer = _Printer(places, patterns, most, advice)
    printer.result.lines += [frames.with_place(line, places) for line in reports.others]
    quiet = [process for process in reports.processes if _quiet(process)]
    few = len(quiet) < 2
    for process in reports.processes:
        if few or not _quiet(process):
            printer.process(process)
    if not few:
        printer.result.lines.append(f"sheaf: {len(quiet)} processes lost nothing")
    if not reports.processes:
        printer.result.lines.append(
            "sheaf: no leak report: no process that runs on Sheaf ended by exit() or by returning from main"
        )
    return printer.end()
