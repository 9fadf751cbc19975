"""`sheaf set`: change an option of the allocator in a running process."""

from __future__ import annotations

import difflib

import click
from click.shell_completion import CompletionItem

from sheaf.commands import arguments
from sheaf.errors import SheafError
from sheaf.records import control
from sheaf.records.control import Control
from sheaf.system import options
from sheaf.system.optiontable import Option

SUBJECTS = {"decay": 1, "keep": 2, "helper": 3, "huge": 4, "barn_max": 5}  # enum sheaf_settable
_HELPER = {"0": 0, "1": 1, "auto": 2}


class _Setting(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    """NAME=VALUE with an option that can change."""

    name = "setting"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from sheaf.commands import completion  # needed only here

        return [item for item in completion.of_option(incomplete) if item.value.partition("=")[0] in SUBJECTS]


def _parse(setting: str) -> tuple[Option, str, int]:
    """The option, its value as written, and as the number that the process gets. Raises SheafError if one is wrong."""
    name, equals, value = setting.partition("=")
    option = options.table().get(name.lower().replace("-", "_").removeprefix("sheaf_"))
    can = ", ".join(SUBJECTS)
    if option is None:
        near = difflib.get_close_matches(name.lower(), SUBJECTS, 1)
        raise SheafError(f"{name}: no such option; " + (f"did you mean {near[0]}?" if near else f"give one of {can}"), 2)
    if option.name not in SUBJECTS:
        raise SheafError(
            f"{option.name}: cannot change while the process runs; set {option.variable} before its start, or give one of {can}",
            2,
        )
    if not equals:
        raise SheafError(f"{setting}: no value; give {option.name}=VALUE", 2)
    wrong = options.wrong(option, value)
    number = _HELPER[value] if option.name == "helper" and not wrong else options.number(option, value)
    if not wrong and (number is None or number > control.VALUE_MOST):
        wrong = "out of range"
    if wrong or number is None:
        raise SheafError(f"{setting}: {wrong}; give {option.values}", 2)
    return option, value, number


def _refused(process: Control, option: Option, value: str, status: int) -> SheafError:
    if status == control.NO_EFFECT:
        notes = "; ".join(option.notes) or "its other options forbid it"
        return SheafError(f"{process.who}: {option.name}={value} would have no effect: {notes}")
    if status == control.RANGE:
        return SheafError(f"{process.who}: {option.name}={value} is out of range; give {option.values}")
    return SheafError(
        f"{process.who}: its Sheaf {process.head.version} cannot change {option.name}; set {option.variable} and start it again"
    )


@click.command()
@arguments.target_argument
@click.argument("setting", metavar="NAME=VALUE", type=_Setting())
@arguments.timeout_option
def set(target: str, setting: str, timeout: float) -> None:
    """Change an option of the allocator in a running process, with effect at once.

    NAME is decay, keep, helper, huge or barn_max; sheaf-run(1) describes the options and their units. Children that the
    process forks later inherit the value; a program that it executes does not. The process must keep a record
    (SHEAF_RECORD). It answers at once, by its helper thread.

    \b
    Examples:
      sheaf set 4711 decay=200
      sheaf set redis-server keep=256M
    """
    option, value, number = _parse(setting)
    with control.connect(target, timeout) as process:
        answer = process.ask(control.SET, SUBJECTS[option.name], number)
        if answer.status != control.DONE:
            raise _refused(process, option, value, answer.status)
        click.echo(f"{process.who}: {option.name} is {value}{'' if option.kind != 'number' else ' ' + option.unit} now")
