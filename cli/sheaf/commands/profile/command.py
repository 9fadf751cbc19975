"""`sheaf profile`: where the memory of a process was allocated."""

from __future__ import annotations

import contextlib
import re
import sys

import click

from sheaf.commands.arguments import FILE, Explained, TargetArgument, timeout_option
from sheaf.commands.profile import export, saved, symbols, views
from sheaf.commands.profile.observe import RATE, SECONDS, given_rate, observe
from sheaf.commands.profile.select import Choice, pattern
from sheaf.errors import SheafError
from sheaf.records import record
from sheaf.rendering.table import terminal_width
from sheaf.system import streams

_BINARY = ("pprof", "html")
VIEWS_EXPLAINED = [
    ("live", "bytes that are allocated and not freed, by stack"),
    ("allocated", "bytes allocated since sampling began, or during --seconds if the process was sampled already"),
    ("peak", "bytes that were live when most bytes were live"),
    ("growth", "change of live bytes during --seconds"),
    ("age", "live bytes by age; a leak has some of every age"),
    ("lifetimes", "frees by size and lifetime, without stacks"),
    ("wasted", "bytes that live allocations take up beyond what was requested"),
]


def _choose(view: str | None, seconds: float | None, sampled: bool) -> str:
    return view or ("growth" if seconds is not None and sampled else "live")


def _compare(
    name: str | None,
    diff: tuple[str, str],
    view: str | None,
    seconds: float | None,
    form: str,
    output: str | None,
    choice: Choice,
) -> None:
    """Show the difference of two saved profiles."""
    if name is not None or seconds is not None:
        raise SheafError(f"{name or '--seconds'}: has no meaning with --diff; leave it out", 2)
    if view is not None and view not in export.MAIN:
        raise SheafError(f"--view {view}: not a column of saved profiles; use one of {', '.join(export.MAIN)}", 2)
    with export.needs_modules("pprof"):
        profile, names = saved.difference(*diff, export.MAIN.get(view or ""))
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(export.Output(output)) if output is not None else None
        data = export.single(profile, form, names, terminal_width(sys.stdout), choice)
        if file is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            return
        file.write(data)
        click.echo(export.said(profile, file.name), err=True)


@click.command(cls=Explained, sections=[("Views", VIEWS_EXPLAINED)])
@click.argument("name", type=TargetArgument(), metavar="PID|NAME|RECORD", required=False)
@click.option(
    "--diff",
    nargs=2,
    type=FILE,
    metavar="OLD NEW",
    help="Compare two saved profiles instead, of any format but html; stacks are told by their functions.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help=f"Sample for N seconds, or show what happens during N seconds.  [default: {SECONDS:g} if sampling is off]",
)
@click.option(
    "--view",
    type=click.Choice(list(views.VIEWS)),
    help="What to show, as listed below.  [default: live; growth with --seconds if the process was sampled already]",
)
@click.option(
    "--output",
    type=FILE,
    metavar="FILE",
    help="Write to FILE; its suffix chooses the format: .pb.gz and .pprof, .collapsed and .txt, .speedscope.json, .html, .json.",
)
@click.option("--format", "form", type=click.Choice(export.FORMATS), help="Output format, if the suffix of FILE does not say it.")
@click.option(
    "--rate",
    metavar="BYTES",
    callback=given_rate,
    help=f"Take one sample for each BYTES allocated, on average; smaller is more exact and slower.  [default: {RATE >> 10}K]",
)
@click.option("--tree", is_flag=True, help="Show a tree of functions, callers above those that they call.")
@click.option("--long", is_flag=True, help="Show the largest stacks with a line for each function.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="Show N functions and stacks, or N lines of a tree.  [default: 20 functions, 10 stacks, 40 lines]",
)
@click.option("--focus", metavar="REGEX", callback=pattern, help="Only stacks with a function, file or module that matches.")
@click.option("--ignore", metavar="REGEX", callback=pattern, help="Only stacks without any that matches.")
@click.option(
    "--fold",
    metavar="PATTERN",
    multiple=True,
    help="Leave out these functions at the inner end of stacks, too, as wrappers of an allocator; * stands for any "
    "characters. May be given several times.",
)
@timeout_option
def profile(
    name: str | None,
    diff: tuple[str, str] | None,
    seconds: float | None,
    view: str | None,
    output: str | None,
    form: str | None,
    rate: int | None,
    tree: bool,
    long: bool,
    limit: int | None,
    focus: re.Pattern[str] | None,
    ignore: re.Pattern[str] | None,
    fold: tuple[str, ...],
    timeout: float,
) -> None:
    """Show where the memory of a process was allocated, by call stacks of sampled allocations.

    \b
    Examples:
      sheaf profile redis-server
      sheaf profile 4711 --seconds 30 --view allocated
      sheaf profile /tmp/records/server.4711.sheaf --output heap.html
      sheaf profile --diff before.pb.gz after.pb.gz --tree

    NAME is the program of a running process that keeps a record. If the process is not sampled, it is sampled for some
    seconds, and then only allocations of that time are known; start it with `sheaf run --profile` to know all of them. Ctrl-C
    ends the wait and shows the profile so far. The record of a process that has ended or was killed has its last profile.
    """
    chosen = export.format_of(output, form)
    if output is None and chosen in _BINARY and sys.stdout.isatty():
        raise SheafError(f"--format {chosen}: cannot be shown on a terminal; add --output FILE", 2)
    choice = Choice(focus, ignore, fold, limit, tree, long)
    if diff:
        _compare(name, diff, view, seconds, chosen, output, choice)
        return
    if name is None:
        raise SheafError("PID|NAME|RECORD: missing; name a process or a record, or two saved profiles with --diff", 2)
    path = record.find_one(name)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(export.Output(output)) if output is not None else None
        observed = observe(path, seconds, rate, view == "growth", timeout)
        shown = _choose(view, seconds, observed.first is not None)
        symbolizer = stack.enter_context(symbols.symbolizer(observed.snapshot))
        data = export.dump(observed, shown, chosen, symbolizer, terminal_width(sys.stdout), choice)
        if chosen == "collapsed":  # which has no place for it
            for note in export.unreliable(observed, shown):
                click.echo(f"sheaf: {note}", err=True)
        if file is None:
            streams.write(data)
            return
        file.write(data)
        click.echo(export.said(export.view(observed, shown), file.name), err=True)
