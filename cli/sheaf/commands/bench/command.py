"""The command line of `sheaf bench`."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from sheaf.commands.bench import exports, pages, real
from sheaf.commands.bench.against import changes, machine_differs, render_changes, slower_than_best, worse_than_old
from sheaf.commands.bench.contestants import CHOICES, Choice, Contestant, find_contestants, verify
from sheaf.commands.bench.exports import Report
from sheaf.commands.bench.facts import describe, machine_lines
from sheaf.commands.bench.machine import Machine, machine
from sheaf.commands.bench.modes import with_mode
from sheaf.commands.bench.native import native_tests
from sheaf.commands.bench.newest import find_newest
from sheaf.commands.bench.programs import Programs, find_built, find_descriptions, find_programs
from sheaf.commands.bench.progress import Progress
from sheaf.commands.bench.report import findings, subject_of
from sheaf.commands.bench.runs import Plan, Test, run_all
from sheaf.commands.bench.text import render, render_contestants
from sheaf.commands.bench.whole import require_tools
from sheaf.errors import SheafError
from sheaf.system import extras
from sheaf.system.preload import library

SUITES = ("micro", "programs", "seeds", "real", "start", "rest")
BEYOND_LIMIT = 3  # exit statuses
INTERRUPTED = 130

EXAMPLES = """\b
Examples:
  sheaf bench                                          suite micro, 5 rounds
  sheaf bench all --export out.json --export out.md    all suites
  sheaf bench micro --tests 'pairs-*,batch-1000-*'     some tests
  sheaf bench real --peer mimalloc3=/opt/lib/libmimalloc.so.3
  sheaf bench micro --peers newest                     against mimalloc 3, snmalloc, ...
  sheaf bench --rounds 10 -- python3 script.py         your own command
  sheaf bench programs --against old.json --fail-above 1.05
  sheaf bench --from out.json --plot plots             plots of a finished run

\b
Exit status: 0 on success, 1 if a run failed, 2 for a wrong command line, 3 if a test
exceeds --fail-above, 130 after an interrupt.
"""


class _Bench(click.Command):
    """Separates the command after `--` from the suites."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            args, ctx.obj = args[:place], tuple(args[place + 1 :])
            if not ctx.obj:
                raise click.UsageError("-- is not followed by a command", ctx)
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class Wanted:
    """The selected tests. Calling it with a name returns whether --tests selects that test."""

    suites: tuple[str, ...]
    patterns: tuple[str, ...]
    words: tuple[str, ...]  # the user's own command

    def __call__(self, name: str) -> bool:
        return not self.patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


def _notify(text: str) -> None:
    click.echo(f"sheaf: {text}", err=True)


def _wanted(suites: Sequence[str], tests: str, words: tuple[str, ...]) -> Wanted:
    """The default is the suite micro; with --tests alone all suites, with a command alone none."""
    chosen = SUITES if "all" in suites else tuple(suites)
    if not chosen and not words:
        chosen = SUITES if tests else ("micro",)
    return Wanted(chosen, tuple(pattern for pattern in tests.split(",") if pattern), words)


def _check_patterns(wanted: Wanted, names: Sequence[str]) -> None:
    for pattern in wanted.patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise SheafError(f"--tests {pattern}: no such test in {', '.join(wanted.suites)}; see `sheaf bench all --list`", 2)


def _check_tools(wanted: Wanted) -> None:
    """Raise SheafError, before the measurement, if the tools for a user's command are missing."""
    if wanted.words:
        require_tools()


def _listing(wanted: Wanted, programs: Callable[[], Programs]) -> list[tuple[str, str, str]]:
    """Suite, name and description of the selected tests, whether or not this machine can run them."""
    rows: list[tuple[str, str, str]] = []
    if set(wanted.suites) - {"real"}:
        tests = [test for test in native_tests(programs(), None, False) if set(test.suites) & set(wanted.suites)]
        rows += [(test.suites[0], test.name, test.what) for test in tests]
    if "real" in wanted.suites:
        rows += [("real", name, what) for name, what in real.names(find_descriptions())]
    _check_patterns(wanted, [name for _, name, _ in rows])
    return [row for row in rows if wanted(row[1])]


def _tests(wanted: Wanted, programs: Callable[[], Programs], ops: int | None, spread: bool, top: Path) -> list[Test]:
    """The selected tests that this machine can run, prepared in the directory `top`."""
    listed = {name for _, name, _ in _listing(wanted, programs)}
    found: list[Test] = []
    if set(wanted.suites) - {"real"}:
        found += [test for test in native_tests(programs(), ops, spread) if test.name in listed]
    if "real" in wanted.suites:
        found += real.real_tests(find_descriptions(), top, wanted, _notify)
    if wanted.words:
        found.append(real.command_test(wanted.words, dict(os.environ)))
    if not found:
        raise SheafError("no test is left to run; install the programs named above, or choose another suite")
    return found


def _sheaf(programs: Callable[[], Programs], wanted: Wanted) -> Callable[[], Path]:
    """
    A function that finds the object to measure: $SHEAF_LIBRARY; or that of the build tree of the benchmark programs if
    some are run; or the one that `sheaf run` uses.
    """

    def find() -> Path:
        if set(wanted.suites) - {"real"} and not os.environ.get("SHEAF_LIBRARY"):
            with contextlib.suppress(SheafError):  # --list-peers needs no programs, and other runs fail later, with this error
                built = programs().preload
                if built.is_file():
                    return built.resolve()
        return library()

    return find


def _machine(programs: Callable[[], Programs], wanted: Wanted) -> Machine:
    """The facts of this machine. bench-machine is not built only for this."""
    found = programs() if set(wanted.suites) - {"real"} else find_built()
    return machine(found["bench-machine"] if found else None)


def _measure(where: Machine, contestants: Sequence[Contestant], plan: Plan, make: Callable[[Path], list[Test]]) -> Report:
    """Run the tests that `make` creates in a temporary directory. After an interrupt the report has the complete rounds."""
    with tempfile.TemporaryDirectory(prefix="sheaf-bench-", ignore_cleanup_errors=True) as top:
        tests = make(Path(top))
        progress = Progress(plan.rounds, len(tests))
        try:
            outcomes = run_all(tests, contestants, plan, progress)
        finally:
            progress.end()
    command = ["sheaf", "bench", *(word for word in sys.argv[2:])]
    return Report(command, where, list(contestants), outcomes, plan.seed)


def _once(make: Callable[[], Programs]) -> Callable[[], Programs]:
    """Call `make` at most once, on first use: comparing a command needs no benchmark programs."""
    found: list[Programs] = []

    def get() -> Programs:
        if not found:
            found.append(make())
        return found[0]

    return get


@dataclass(frozen=True)
class Finish:
    """What to do with a report besides printing it."""

    export: tuple[Path, ...]
    page: Path | None
    plot: Path | None
    against: Path | None
    fail_above: float | None

    def check(self) -> None:
        """Raise SheafError before the measurement if a file cannot be written or read afterwards."""
        for path in self.export:
            exports.check_file(path)
        if self.page:
            pages.check_file(self.page)
        if self.plot and find_spec("matplotlib") is None:
            raise SheafError(f"--plot: matplotlib is missing; run {extras.install('bench')}")
        if self.against:
            exports.read(self.against)


def _show(report: Report) -> None:
    """Print the report."""
    click.echo(render(findings(report.outcomes, report.contestants), report.contestants, markdown=False))
    click.echo("\nAllocators")
    for contestant in report.contestants:
        click.echo(f"  {contestant.name}: {describe(contestant)}")
    click.echo("\nMachine")
    for line in machine_lines(report.machine):
        click.echo(f"  {line}")
    if report.seed is not None:
        click.echo(f"\nOrder within rounds: --seed {report.seed}")


def _write(report: Report, finish: Finish) -> None:
    plots: list[Path] = []
    if finish.plot:
        from sheaf.commands.bench.plots import draw  # importing matplotlib takes a second

        plots = draw(report, finish.plot)
    for path in finish.export:
        exports.write(path, report, plots)
    if finish.page:
        pages.write(finish.page, report)


def _finish(report: Report, finish: Finish) -> int:
    """Print and write the report; returns the exit status."""
    _show(report)
    _write(report, finish)
    beyond: list[str] = []
    if finish.against:
        old = exports.read(finish.against)
        found = changes(report, old)
        click.echo("\n" + render_changes(found, subject_of(report.contestants)))
        remark = machine_differs(report, old)
        if remark:
            _notify(remark)
        beyond = worse_than_old(found, finish.fail_above) if finish.fail_above else []
    elif finish.fail_above:
        beyond = slower_than_best(report, finish.fail_above)
    for line in beyond:
        _notify(f"--fail-above {finish.fail_above:g}: exceeded by {line}")
    failed = any(outcome.failures for outcome in report.outcomes)
    return BEYOND_LIMIT if beyond else 1 if failed else 0


@click.command(cls=_Bench, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suites", nargs=-1, metavar="[SUITE]... [-- COMMAND]", type=click.Choice([*SUITES, "all"]))
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Number of runs of each test with each allocator."
)
@click.option("--tests", default="", metavar="GLOB,...", help="Run only these tests, of all suites unless SUITE is given.")
@click.option(
    "--peers",
    type=click.Choice(CHOICES),
    default="installed",
    show_default=True,
    help="Compare with the distribution's allocators, the newest ones (built once in ~/.cache/sheaf/peers), or all.",
)
@click.option("--list-peers", is_flag=True, help="List the allocators that take part, with version, mode and file.")
@click.option(
    "--peer",
    multiple=True,
    metavar="NAME=PATH[,VAR=VALUE]...",
    help="Add an allocator. A NAME that begins with sheaf- is a variant of Sheaf and not a peer.",
)
@click.option("--only", default="", metavar="NAME,...", help="Run only these allocators.")
@click.option(
    "--export",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the results to a .json, .csv or .md file.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.md",
    help="Write a page of results to FILE.md, its figures to FILE.json, plots to FILE/, and the summary of all "
    "pages in the directory to README.md.",
)
@click.option(
    "--plot", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write plots as SVG and PNG to DIR."
)
@click.option("--against", type=click.Path(path_type=Path), metavar="FILE.json", help="Compare with an older export.")
@click.option(
    "--fail-above",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RATIO",
    help="Exit with status 3 if a test exceeds this ratio to the older run, or without --against to the fastest peer.",
)
@click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="FILE.json", help="Use an existing export instead of running."
)
@click.option("--list", "listing", is_flag=True, help="List the tests with a description.")
@click.option(
    "--ops",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum operations in a repetition, for a quick trial. Has no effect on the suite real.",
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Seed for the order of the allocators within rounds (default: random)."
)
@click.option("--spread", is_flag=True, help="Pin the threads of micro tests to the CPUs in turn.")
@click.option(
    "--retries", type=click.IntRange(0), default=3, show_default=True, help="Maximum retries of a round disturbed by other load."
)
@click.option(
    "--load", type=click.FloatRange(0), default=0.15, show_default=True, help="Accepted load by other processes, in CPUs."
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=10,
    show_default=True,
    help="Seconds to wait for other load to end before a retry.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=300,
    show_default=True,
    help="Time limit for one run in seconds.",
)
@click.pass_obj
def bench(words: tuple[str, ...] | None, /, suites: tuple[str, ...], **options: Any) -> int:
    """Compare the time, memory and page faults of Sheaf and other allocators, in interleaved rounds.

    Suites: micro (default; small patterns of operations), programs (allocation patterns from the literature), seeds (fork and
    exec under load), real (programs of the distribution), start (starting small programs), rest
    (resident memory after bursts), all. A command after -- is run with every allocator.
    """
    return _bench(_wanted(suites, options["tests"], words or ()), **options)


def _bench(wanted: Wanted, **options: Any) -> int:
    """Carry out the options; returns the exit status."""
    finish = Finish(options["export"], options["page"], options["plot"], options["against"], options["fail_above"])
    finish.check()
    if options["source"]:
        return _finish(exports.read(options["source"]), finish)
    _check_tools(wanted)
    programs = _once(lambda: find_programs(_notify))
    if options["listing"]:
        for suite, name, what in _listing(wanted, programs):
            click.echo(f"{suite}\t{name}\t{what}")
        return 0
    only = [name for name in options["only"].split(",") if name]
    choice = Choice(options["peer"], only, options["peers"])
    contestants = find_contestants(_sheaf(programs, wanted), choice, find_newest, _notify)
    for contestant in contestants:
        verify(contestant)
    contestants = [with_mode(contestant) for contestant in contestants]
    if options["list_peers"]:
        click.echo(render_contestants(contestants))
        return 0
    seed = options["seed"] if options["seed"] is not None else random.SystemRandom().randrange(1 << 32)
    plan = Plan(options["rounds"], options["retries"], options["load"], options["wait"], options["timeout"], seed)
    where = _machine(programs, wanted)
    report = _measure(where, contestants, plan, lambda top: _tests(wanted, programs, options["ops"], options["spread"], top))
    status = _finish(report, finish)
    complete = min(len(outcome.other_cpus) for outcome in report.outcomes)
    if complete < plan.rounds:
        _notify(f"interrupted: {complete} of {plan.rounds} rounds are complete")
        return INTERRUPTED
    return status
