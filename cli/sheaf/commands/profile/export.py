"""Write a profile to a file in one of several formats."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from sheaf.commands.profile import table, treetext, views
from sheaf.commands.profile.observe import Observed
from sheaf.commands.profile.select import Choice, selected
from sheaf.commands.profile.symbols import Symbolizer
from sheaf.commands.profile.views import Profile
from sheaf.errors import SheafError, printable
from sheaf.system import extras

FORMATS = ("table", "pprof", "collapsed", "speedscope", "html", "json")
_SUFFIXES = (
    (".pb.gz", "pprof"),
    (".pprof", "pprof"),
    (".collapsed", "collapsed"),
    (".txt", "collapsed"),
    (".speedscope.json", "speedscope"),
    (".html", "html"),
    (".json", "json"),
)
_HEAP = ("live", "allocated", "peak", "growth")  # the views that one pprof file holds
MAIN = {"live": "inuse_space", "growth": "inuse_space", "allocated": "alloc_space", "peak": "peak_space"}


def suffix_of(output: str) -> str:
    """The suffix of a file name that chooses a format; empty if it has none of these."""
    return next((suffix for suffix, _ in _SUFFIXES if output.endswith(suffix)), "")


def format_of(output: str | None, form: str | None, status: int = 2, option: str = "--output") -> str:
    """The format that the user named, or that of the file's suffix."""
    if form:
        return form
    if output is None:
        return "table"
    found = dict(_SUFFIXES).get(suffix_of(output))
    if found is None:
        known = ", ".join(suffix for suffix, _ in _SUFFIXES)
        more = ", or add --format" if option == "--output" else ""
        raise SheafError(f"{option} {output}: no format has this suffix; use one of {known}{more}", status)
    return found


class Output:
    """
    A file that is opened before the work begins, so that a wrong name is an error at once. Its old contents are kept until
    the new ones are written, and a file that was created is removed if nothing is written.
    """

    def __init__(self, name: str, option: str = "--output", status: int = 1) -> None:
        self.name, self._option, self._status = name, option, status
        self._new = not os.path.exists(name)
        self._written = False
        try:
            self._file = open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb")  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> SheafError:
        why = error.strerror if isinstance(error, OSError) else error
        return SheafError(f"{self._option} {self.name}: {why}; name a file that can be written", self._status)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        if self._new and not self._written:
            with contextlib.suppress(OSError):
                os.unlink(self.name)

    def write(self, data: bytes) -> None:
        """Replace the contents."""
        try:
            if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._file.truncate(0)
            self._file.write(data)
            self._file.close()
        except OSError as error:
            raise self._failure(error) from error
        self._written = True


def _with(profile: Profile, notes: Sequence[str]) -> Profile:
    return replace(profile, notes=(*notes, *profile.notes))


def view(observed: Observed, name: str) -> Profile:
    """One view of what was observed, with its notes."""
    return _with(views.VIEWS[name](observed.snapshot, observed.first), observed.notes)


def heap(observed: Observed, name: str) -> Profile:
    """All columns of a heap profile, with the one of the view `name` as the main one."""
    profile = views.heap(observed.snapshot, observed.first if name in ("growth", "allocated") else None)
    main = next((i for i, column in enumerate(profile.columns) if column.name == MAIN[name]), profile.main)
    return replace(_with(profile, observed.notes), main=main)


def dump(
    observed: Observed, name: str, form: str, symbolizer: Symbolizer, width: int = 100, choice: Choice | None = None
) -> bytes:
    """
    The view `name` in a format, of the stacks that are chosen. A page has all views, and a pprof file all values of a heap
    profile. Raises SheafError if the format needs a Python module that is not installed.
    """
    with needs_modules(form):
        return _dump(observed, name, form, symbolizer, width, choice or Choice())


@contextlib.contextmanager
def needs_modules(form: str) -> Iterator[None]:
    """Raise SheafError where a Python module that a format needs is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0].replace("google", "protobuf")
        raise SheafError(f"{form}: the Python module {module} is missing; run {extras.install_module(module)}") from error


def _dump(observed: Observed, name: str, form: str, symbolizer: Symbolizer, width: int, choice: Choice) -> bytes:
    if form == "table":
        return terminal(selected(view(observed, name), symbolizer, choice), symbolizer, width, choice)
    if form == "html":
        from sheaf.commands.profile import page

        profiles = views.available(observed.snapshot, observed.first)
        if name not in [one.view for one in profiles]:  # it is empty
            profiles.append(views.VIEWS[name](observed.snapshot, observed.first))
        return page.dump([selected(_with(one, observed.notes), symbolizer, choice) for one in profiles], symbolizer, name)
    profile = heap(observed, name) if form == "pprof" and name in _HEAP else view(observed, name)
    return encoded(selected(profile, symbolizer, choice), form, symbolizer)


def terminal(profile: Profile, symbolizer: Symbolizer, width: int, choice: Choice) -> bytes:
    """A profile as text for a terminal."""
    if choice.tree and profile.rows and profile.view != "lifetimes":
        width = max(20, width)
        lines = treetext.text(profile, symbolizer, width, choice.limit or treetext.LINES, choice.fold)
        text = "\n".join([*table.sentences(profile, symbolizer, width), "", *lines])
    else:
        text = table.text(profile, symbolizer, width, choice.limit, choice.fold, choice.long)
    return (text + "\n").encode("utf-8", "replace")


def single(profile: Profile, form: str, symbolizer: Symbolizer, width: int, choice: Choice) -> bytes:
    """A profile that has no other views, in any format."""
    profile = selected(profile, symbolizer, choice)
    with needs_modules(form):
        if form == "table":
            return terminal(profile, symbolizer, width, choice)
        if form == "html":
            from sheaf.commands.profile import page

            return page.dump([profile], symbolizer, profile.view)
        return encoded(profile, form, symbolizer)


def encoded(profile: Profile, form: str, symbolizer: Symbolizer) -> bytes:
    """A profile in one of the formats for other tools."""
    module = import_module(f"sheaf.commands.profile.{'document' if form == 'json' else form}")
    made = module.dump(profile, symbolizer)
    assert isinstance(made, bytes)
    return made


def unreliable(observed: Observed, name: str) -> list[str]:
    """The sentence that says which figures of a view are unreliable, if any are."""
    return [printable(note) for note in view(observed, name).notes if "unreliable" in note]


def said(profile: Profile, output: str | Path) -> str:
    """The line that says what was written."""
    return printable(f"sheaf: {table.heading(profile)}; written to {output}")
