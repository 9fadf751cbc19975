"""`sheaf report`: add the source file and line of each frame to reports of SHEAF_DEBUG and SHEAF_LEAKS."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator

import click

from sheaf.commands.arguments import FILE
from sheaf.errors import SheafError
from sheaf.rendering.frames import places_of, with_place
from sheaf.system.places import Places

_LONGEST = 64 << 10  # bytes of a line; the rest of a longer one counts as another line
_BATCH = 1000  # lines that are in memory at once


def _lines(name: str) -> Iterator[str]:
    """The lines of a file, or of standard input for "-", which may be closed. They may be any bytes."""
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(name, "rb")) if name != "-" else sys.stdin.buffer if sys.stdin else io.BytesIO()
            while raw := file.readline(_LONGEST):
                yield from raw.decode(errors="replace").splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SheafError(f"{name}: {why}; name the file of SHEAF_DEBUG_LOG, or - for standard input") from error


@click.command(options_metavar="[OPTIONS]")
@click.option("--reports-only", is_flag=True, help="Omit lines that Sheaf did not write.")
@click.argument("file", type=FILE, metavar="FILE|-")
def report(reports_only: bool, file: str) -> None:
    """Print debugging reports with the source file and line of each frame.

    \b
    Examples:
      sheaf report /var/log/server.sheaf
      SHEAF_DEBUG=FZPU LD_PRELOAD=... ./server 2>&1 | sheaf report -

    FILE is the log that SHEAF_DEBUG_LOG names, or the standard error of the program. Source positions come from
    llvm-symbolizer (llvm) or addr2line (binutils), for programs and libraries with debugging information that are still where
    they were when the program ran. Other frames are printed unchanged.
    """
    with Places() as known:
        if known.tool is None:
            raise SheafError("llvm-symbolizer: not found; install llvm or binutils")
        lines = (line for line in _lines(file) if not reports_only or line.startswith("sheaf: "))
        while batch := list(itertools.islice(lines, _BATCH)):
            found = places_of(batch, known)
            for line in batch:
                click.echo(with_place(line, found))
