"""The command line of `sheaf bench`."""

from __future__ import annotations

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

from sheaf.bench import exports, pages, real
from sheaf.bench.against import changes, machine_differs, past_best, past_old, render_changes
from sheaf.bench.contestants import CHOICES, Choice, Contestant, find_contestants, verify
from sheaf.bench.exports import Report
from sheaf.bench.facts import describe, machine_lines
from sheaf.bench.machine import Machine, machine
from sheaf.bench.modes import with_mode
from sheaf.bench.native import native_tests
from sheaf.bench.newest import find_newest
from sheaf.bench.programs import Programs, find_built, find_descriptions, find_programs
from sheaf.bench.progress import Progress
from sheaf.bench.report import findings, subject_of
from sheaf.bench.runs import Plan, Test, run_all
from sheaf.bench.text import render, render_contestants
from sheaf.errors import SheafError
from sheaf.preload import library

SUITES = ("micro", "programs", "seeds", "real", "start", "rest")
PAST_LIMIT = 3
INTERRUPTED = 130

EXAMPLES = """\b
Examples:
  sheaf bench                                          the suite micro, 5 rounds
  sheaf bench all --export out.json --export out.md    everything
  sheaf bench micro --tests 'pairs-*,batch-1000-*'     some tests
  sheaf bench real --peer mimalloc3=/opt/lib/libmimalloc.so.3
  sheaf bench micro --peers newest                     against mimalloc 3, snmalloc, ...
  sheaf bench --rounds 10 -- python3 script.py         one command of yours
  sheaf bench programs --against old.json --fail-above 1.05
  sheaf bench --from out.json --plot plots             a finished run again

\b
Exit status: 0, 1 when a run failed, 2 for a wrong command line, 3 past --fail-above.
"""


class _Bench(click.Command):
    """Keeps what follows `--` apart from the suites."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            args, ctx.obj = args[:place], tuple(args[place + 1 :])
            if not ctx.obj:
                raise click.UsageError("no command after --", ctx)
        return super().parse_args(ctx, args)


@dataclass(frozen=True)
class Wanted:
    """Which tests."""

    suites: tuple[str, ...]
    patterns: tuple[str, ...]
    words: tuple[str, ...]  # a command of the user's

    def __call__(self, name: str) -> bool:
        return not self.patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)


def _tell(text: str) -> None:
    click.echo(f"sheaf: {text}", err=True)


def _wanted(suites: Sequence[str], tests: str, words: tuple[str, ...]) -> Wanted:
    """Without a word on it the suite micro; a command alone needs none."""
    chosen = SUITES if "all" in suites else tuple(suites)
    if not chosen and not words:
        chosen = SUITES if tests else ("micro",)
    return Wanted(chosen, tuple(pattern for pattern in tests.split(",") if pattern), words)


def _check_patterns(wanted: Wanted, names: Sequence[str]) -> None:
    for pattern in wanted.patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise SheafError(f"--tests {pattern}: no such test in {', '.join(wanted.suites)}; see sheaf bench all --list", 2)


def _listing(wanted: Wanted, programs: Callable[[], Programs]) -> list[tuple[str, str, str]]:
    """Suite, name and meaning of the wanted tests, without looking at what the machine has."""
    rows: list[tuple[str, str, str]] = []
    if set(wanted.suites) - {"real"}:
        tests = [test for test in native_tests(programs(), None, False) if set(test.suites) & set(wanted.suites)]
        rows += [(test.suites[0], test.name, test.what) for test in tests]
    if "real" in wanted.suites:
        rows += [("real", name, what) for name, what in real.names(find_descriptions())]
    _check_patterns(wanted, [name for _, name, _ in rows])
    return [row for row in rows if wanted(row[1])]


def _tests(wanted: Wanted, programs: Callable[[], Programs], ops: int | None, spread: bool, top: Path) -> list[Test]:
    listed = {name for _, name, _ in _listing(wanted, programs)}
    found: list[Test] = []
    if set(wanted.suites) - {"real"}:
        found += [test for test in native_tests(programs(), ops, spread) if test.name in listed]
    if "real" in wanted.suites:
        found += real.real_tests(find_descriptions(), top, wanted, _tell)
    if wanted.words:
        found.append(real.command_test(wanted.words, dict(os.environ)))
    if not found:
        raise SheafError("nothing left to run; install what is named above, or choose another suite")
    return found


def _sheaf(programs: Callable[[], Programs], wanted: Wanted) -> Callable[[], Path]:
    """$SHEAF_LIBRARY; the object of the build that the benchmark programs are from, where some are run; as `sheaf run` does."""

    def find() -> Path:
        built = programs().preload if set(wanted.suites) - {"real"} and not os.environ.get("SHEAF_LIBRARY") else None
        return built.resolve() if built and built.is_file() else library()

    return find


def _machine(programs: Callable[[], Programs], wanted: Wanted) -> Machine:
    """With what bench-machine measures; a run that needs no benchmark program builds none for it."""
    found = programs() if set(wanted.suites) - {"real"} else find_built()
    return machine(found["bench-machine"] if found else None)


def _measure(where: Machine, contestants: Sequence[Contestant], plan: Plan, make: Callable[[Path], list[Test]]) -> Report:
    """Runs what is made in a directory of its own; an interrupt keeps the rounds that are complete."""
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
    """Found when first needed: comparing one command needs none of them."""
    found: list[Programs] = []

    def get() -> Programs:
        if not found:
            found.append(make())
        return found[0]

    return get


@dataclass(frozen=True)
class Finish:
    """What is made of a report besides the text on the terminal."""

    export: tuple[Path, ...]
    page: Path | None
    plot: Path | None
    against: Path | None
    fail_above: float | None

    def check(self) -> None:
        """Fails before an hour is spent on what cannot be written or compared."""
        for path in self.export:
            exports.check_file(path)
        if self.page:
            pages.check_file(self.page)
        if self.plot and find_spec("matplotlib") is None:
            raise SheafError("--plot: needs matplotlib; pip install 'sheaf[bench]'")
        if self.against:
            exports.read(self.against)


def _show(report: Report) -> None:
    """The report for a terminal."""
    click.echo(render(findings(report.outcomes, report.contestants), report.contestants, markdown=False))
    click.echo("\nAllocators")
    for contestant in report.contestants:
        click.echo(f"  {contestant.name}: {describe(contestant)}")
    click.echo("\nMachine")
    for line in machine_lines(report.machine):
        click.echo(f"  {line}")
    if report.seed is not None:
        click.echo(f"\norder within rounds: --seed {report.seed}")


def _write(report: Report, finish: Finish) -> None:
    plots: list[Path] = []
    if finish.plot:
        from sheaf.bench.plots import draw  # matplotlib takes a second to load

        plots = draw(report, finish.plot)
    for path in finish.export:
        exports.write(path, report, plots)
    if finish.page:
        pages.write(finish.page, report)


def _finish(report: Report, finish: Finish) -> int:
    """Shows and writes the report; returns the exit status."""
    _show(report)
    _write(report, finish)
    past: list[str] = []
    if finish.against:
        old = exports.read(finish.against)
        found = changes(report, old)
        click.echo("\n" + render_changes(found, subject_of(report.contestants)))
        remark = machine_differs(report, old)
        if remark:
            _tell(remark)
        past = past_old(found, finish.fail_above) if finish.fail_above else []
    elif finish.fail_above:
        past = past_best(report, finish.fail_above)
    for line in past:
        _tell(f"past {finish.fail_above:g}: {line}")
    failed = any(outcome.failures for outcome in report.outcomes)
    return PAST_LIMIT if past else 1 if failed else 0


@click.command(cls=_Bench, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suites", nargs=-1, metavar="[SUITE]... [-- COMMAND]", type=click.Choice([*SUITES, "all"]))
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Runs of each test and allocator.")
@click.option("--tests", default="", metavar="GLOB,...", help="Only these tests; of all suites where none is named.")
@click.option("--peers", type=click.Choice(CHOICES), default="installed", show_default=True,
              help="The distribution's allocators; or the newest ones, built once in ~/.cache/sheaf/peers; or all of them.")
@click.option("--list-peers", is_flag=True, help="Show the allocators that take part: version, mode and file.")
@click.option("--peer", multiple=True, metavar="NAME=PATH[,VAR=VALUE]...",
              help="One more allocator; NAME sheaf-... is a variant of Sheaf, not a peer.")
@click.option("--only", default="", metavar="NAME,...", help="Only these allocators.")
@click.option("--export", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Write .json, .csv or .md.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.md",
              help="Write a page of results: FILE.md, figures in FILE.json, plots in FILE/; and README.md over all pages there.")
@click.option("--plot", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Draw SVG and PNG there.")
@click.option("--against", type=click.Path(path_type=Path), metavar="FILE.json", help="Compare with an older export.")
@click.option("--fail-above", type=click.FloatRange(min=0, min_open=True), metavar="RATIO",
              help="Status 3 when a line is beyond this ratio to the older run, or without one to the best peer.")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="FILE.json",
              help="Use an existing export instead of running.")
@click.option("--list", "listing", is_flag=True, help="Name the tests and what they do.")
@click.option("--ops", type=click.IntRange(1), metavar="N",
              help="Operations in a repetition at most: for a quick look at the tests written here.")
@click.option("--seed", type=click.IntRange(0), metavar="N",
              help="Order of the allocators within rounds (default: another each time).")
@click.option("--spread", is_flag=True, help="Give each thread of a micro test a CPU of its own, in turn.")
@click.option("--retries", type=click.IntRange(0), default=3, show_default=True,
              help="Maximum retries of a round disturbed by other load.")
@click.option("--load", type=click.FloatRange(0), default=0.15, show_default=True, help="Other load that is accepted, in CPUs.")
@click.option("--wait", type=click.FloatRange(0), default=10, show_default=True, help="Seconds to wait for it to go.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=300, show_default=True, help="Seconds for one run.")
@click.pass_obj
def bench(words: tuple[str, ...] | None, /, suites: tuple[str, ...], **options: Any) -> int:
    """Compare Sheaf with other allocators: time, memory, page faults, in interleaved rounds.

    Suites: micro (default), programs (written after patterns of the literature), seeds (fork and exec as the kernel's
    allocator is measured), real (programs of the distribution), start (of small programs), rest (what stays resident
    after bursts), all. What follows -- is one command that is run under every allocator.
    """
    return _bench(_wanted(suites, options["tests"], words or ()), **options)


def _bench(wanted: Wanted, **options: Any) -> int:
    finish = Finish(options["export"], options["page"], options["plot"], options["against"], options["fail_above"])
    finish.check()
    if options["source"]:
        return _finish(exports.read(options["source"]), finish)
    programs = _once(lambda: find_programs(_tell))
    if options["listing"]:
        for suite, name, what in _listing(wanted, programs):
            click.echo(f"{suite}\t{name}\t{what}")
        return 0
    only = [name for name in options["only"].split(",") if name]
    choice = Choice(options["peer"], only, options["peers"])
    contestants = find_contestants(_sheaf(programs, wanted), choice, find_newest, _tell)
    for contestant in contestants:
        verify(contestant)
    contestants = [with_mode(contestant) for contestant in contestants]
    if options["list_peers"]:
        click.echo(render_contestants(contestants))
        return 0
    seed = options["seed"] if options["seed"] is not None else random.SystemRandom().randrange(1 << 32)
    plan = Plan(options["rounds"], options["retries"], options["load"], options["wait"], options["timeout"], seed)
    where = _machine(programs, wanted)
    report = _measure(
        where, contestants, plan, lambda top: _tests(wanted, programs, options["ops"], options["spread"], top)
    )
    status = _finish(report, finish)
    complete = min(len(outcome.other_cpus) for outcome in report.outcomes)
    if complete < plan.rounds:
        _tell(f"interrupted: {complete} of {plan.rounds} rounds are complete")
        return INTERRUPTED
    return status
