"""`sheaf completion`: completion of the command line in bash, zsh and fish.

click finds out what can follow; the scripts in cli/completion ask for it. They differ from click's own, which in bash lose
words beside files and values after `=`, and which put a space behind a word that goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

from sheaf.errors import SheafError
from sheaf.system import debugspec, options
from sheaf.system.optiontable import Option

SCRIPTS = {"bash": "sheaf.bash", "zsh": "_sheaf", "fish": "sheaf.fish"}
_PATHS = {"record": "dir", "debug_log": "file"}  # options whose values are paths
_SHELL_COMPLETES = ("file", "dir", "program")  # kinds of items


def _script(shell: str) -> str:
    """The script for a shell, from the installed package or else from the source tree."""
    here = Path(__file__).parents[1]
    for directory in (here / "scripts", here.parent / "completion"):
        try:
            return (directory / SCRIPTS[shell]).read_text()
        except OSError:
            continue
    raise SheafError(f"completion: the script for {shell} is missing in {here / 'scripts'}; reinstall Sheaf")


def _words(line: str) -> tuple[list[str], str]:
    """The complete words after the command and the incomplete one, which may be empty, of a line up to the cursor."""
    *words, last = split_arg_string(f"{line}x")  # the x belongs to the incomplete word, also after a space
    return words[1:], last[:-1]


class _Complete(ShellComplete):
    """What is common to the three shells. `COMP_WORDS` is the line up to the cursor."""

    def source(self) -> str:
        """The script that click prints."""
        return _script(self.name)

    def get_completion_args(self) -> tuple[list[str], str]:
        """The complete words and the incomplete one."""
        return _words(os.environ["COMP_WORDS"])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:  # type: ignore[type-arg,unused-ignore]
        """What may follow. A value in the same word as its option, as in --format=json, keeps the option."""
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not option.startswith("--") or not equals:
            return items
        return [
            item if item.type in _SHELL_COMPLETES else CompletionItem(f"{option}={item.value}", item.type, item.help)
            for item in items
        ]


def _flat(text: str | None) -> str:
    return " ".join((text or "").split())


class _Bash(_Complete):
    name = "bash"

    def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
        """Bash completes what follows the last `=` or `:`, so the words begin there."""
        breaks = [mark for mark in "=:" if mark in os.environ.get("COMP_BREAKS", "=:")]
        cut = max((incomplete.rfind(mark) + 1 for mark in breaks), default=0)
        return [
            CompletionItem(item.value[cut:] if item.value.startswith(incomplete[:cut]) else item.value, item.type)
            for item in super().get_completions(args, incomplete)
        ]

    def format_completion(self, item: CompletionItem) -> str:  # type: ignore[type-arg,unused-ignore]
        """A line for the script."""
        return f"{item.type},{item.value}"


class _Zsh(_Complete):
    name = "zsh"

    def format_completion(self, item: CompletionItem) -> str:  # type: ignore[type-arg,unused-ignore]
        """Three lines for the script."""
        value = str(item.value).replace("\\", "\\\\").replace(":", "\\:")
        return f"{item.type}\n{value}\n{_flat(item.help)}"


class _Fish(_Complete):
    name = "fish"

    def format_completion(self, item: CompletionItem) -> str:  # type: ignore[type-arg,unused-ignore]
        """A line for the script."""
        return f"{item.type},{item.value}" + (f"\t{_flat(item.help)}" if item.help else "")


def register() -> None:
    """Make click use these classes."""
    for one in (_Bash, _Zsh, _Fish):
        add_completion_class(one)


def of_debug(incomplete: str) -> list[CompletionItem]:  # type: ignore[type-arg,unused-ignore]
    """Values of --debug: letters, or after a comma the caches of malloc."""
    before, comma, last = incomplete.rpartition(",")
    if comma and ";" not in last:
        names = [name for name in debugspec.cache_names() if name.startswith(last)]
        return [CompletionItem(f"{before},{name}", type="open") for name in names]
    start = incomplete.rpartition(";")[0]
    start += ";" if start or incomplete.startswith(";") else ""
    return [
        CompletionItem(f"{start}{letters}", type="open", help=text)
        for letters, text in debugspec.LETTERS.items()
        if f"{start}{letters}".startswith(incomplete)
    ]


def _values(option: Option, value: str) -> list[tuple[str, str]]:
    """Values of an option of the allocator and what they mean."""
    if option.kind == "boolean":
        return [("0", "off"), ("1", "on")]
    if option.kind == "choice":
        return list(option.words.items())
    if option.kind in ("number", "size"):
        return [(option.default, f"the default; {option.values}")]
    return []


def of_option(incomplete: str) -> list[CompletionItem]:  # type: ignore[type-arg,unused-ignore]
    """Values of --option: names, and after the equals sign values."""
    name, equals, value = incomplete.partition("=")
    table = options.table()
    if not equals:
        return [CompletionItem(f"{one}=", type="open", help=table[one].text) for one in table if one.startswith(name)]
    option = table.get(name)
    if option is None:
        return []
    if name == "debug":
        return [CompletionItem(f"debug={item.value}", type=item.type, help=item.help) for item in of_debug(value)]
    if name in _PATHS:
        return [CompletionItem(value, type=_PATHS[name])]
    return [CompletionItem(f"{name}={one}", help=text) for one, text in _values(option, value) if one.startswith(value)]


@click.command(options_metavar="")
@click.argument("shell", type=click.Choice(list(SCRIPTS)), metavar="bash|zsh|fish")
def completion(shell: str) -> None:
    """Print a script that completes the command line of sheaf in a shell.

    \b
    Examples:
      eval "$(sheaf completion bash)"
      sheaf completion zsh > ~/.zfunc/_sheaf
      sheaf completion fish > ~/.config/fish/completions/sheaf.fish

    A system installation has these scripts where the shells look for them, so nothing is to be done there. After an
    installation by pip, put the first line into ~/.bashrc, or run one of the others. Completed are commands, options and
    their values, files, programs, caches of --debug, and processes on Sheaf with their names.
    """
    click.echo(_script(shell), nl=False)
