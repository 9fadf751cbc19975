#!/usr/bin/env python3
"""Writes the manual pages from the command line's own help: python3 docs/man/make.py (needs click).

This file adds what the help is too short for.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import click

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "cli"))

from sheaf import options, stats  # noqa: E402
from sheaf.__main__ import _COMMANDS, main  # noqa: E402

ENVIRONMENT = [
    ("SHEAF_LIBRARY", "The preloaded object to use instead of the installed one."),
    ("SHEAF_<NAME>", "The allocator's options, as above. Programs with raised privileges ignore them."),
]
COMPLETION = 'In bash, eval "$(_SHEAF_COMPLETE=bash_source sheaf)" completes commands and options; zsh and fish likewise.'
EXTRA: dict[str, list[tuple[str, str | list[tuple[str, str]]]]] = {
    "run": [
        ("THE ALLOCATOR'S OPTIONS", "Given by --option, or as SHEAF_<NAME> in the environment. Sizes take K, M, G and T."),
        ("", [(name, f"{option.help} (default {options.shown_default(option)})") for name, option in options.table().items()]),
        ("EXIT STATUS", "The status of the program. If a signal ends the program, --stats ends by the same signal. 125: "
         "sheaf itself failed. 126: the program was found and cannot be executed. 127: the program was not found."),
        ("SIGNALS", "Without --stats, sheaf replaces itself with the program by exec. With --stats, it waits for the program and "
         "passes on all signals that are sent to it alone; signals of the terminal reach the program directly, once. When the "
         "program stops, sheaf stops as well, and both continue together. A signal that kill sends to the whole process group "
         "reaches the program twice: directly, and passed on."),
        ("ENVIRONMENT", ENVIRONMENT),
        ("NOTES", "Programs that are static, setuid, setgid, 32-bit, for another machine, built with a sanitizer, or that have "
         "file capabilities cannot be preloaded into. They are refused with the reason, unless --force is given.\n\n"
         "When the path of the object has a space, a colon or a dollar sign in it, which LD_PRELOAD cannot hold, a link to it "
         "is made in ~/.cache/sheaf (or in a directory of the user's within the temporary directory) and stays there.\n\n"
         "--no-children starts the program through the dynamic loader, so that /proc/self/exe is the loader."),
    ],
    "stats": [
        ("MEMORY OF A PROCESS", stats.MEMORY_EXPLAINED),
        ("COLUMNS", stats.EXPLAINED),
        ("EXIT STATUS", "0; 1 when a record cannot be read or a process keeps none; 2 for a wrong command line."),
        ("NOTES", "Records are read while their process runs, so values may be of slightly different moments. Until the process "
         "ends, a record may lag behind by up to 1024 fast operations for each cache and slot. These move objects between live "
         "and sheaves; the sum of both is right. With --by node, a process with one memory node has one row."),
    ],
    "report": [
        ("EXIT STATUS", "0; 1 when the file cannot be read or there is no addr2line; 2 for a wrong command line."),
    ],
    "bench": [],
}


def escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """The paragraphs of click's help; those that begin with \\b keep their line breaks."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.startswith("\b"):
            lines += [".PP", ".nf", escape(block[1:].strip("\n")), ".fi"]
        else:
            lines += [".PP", escape(" ".join(block.split()))]
    return lines


def terms(pairs: list[tuple[str, str]]) -> list[str]:
    lines = []
    for name, text in pairs:
        lines += [".TP", f".B {escape(name)}", escape(text)]
    return lines


def spelled(option: click.Option) -> str:
    """The option and its value. click's own text differs between its releases."""
    names = ", ".join(sorted([*option.opts, *option.secondary_opts], key=len))
    if option.is_flag:
        return names
    if option.metavar or not isinstance(option.type, click.Choice):
        return f"{names} {option.metavar or option.type.name.split()[0].upper()}"
    return f"{names} {'|'.join(map(str, option.type.choices))}"


def explained(option: click.Option) -> str:
    shown = option.show_default and option.default is not None
    return (option.help or "") + (f" (default {option.default})" if shown else "")


def sections(name: str, command: click.Command) -> list[str]:
    shown = [param for param in command.params if isinstance(param, click.Option)]
    pairs = [(spelled(option), explained(option)) for option in shown]
    lines = [".SH OPTIONS", *terms([*pairs, ("-h, --help", "Show the help and exit.")])]
    lines += paragraphs(command.epilog) if command.epilog else []
    for title, content in EXTRA[name]:
        lines += [f".SH {title}"] if title else []
        lines += paragraphs(content) if isinstance(content, str) else terms(content)
    return lines


def head(name: str, what: str) -> list[str]:
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())
    assert version
    return [".\\\" Made from the command's help by docs/man/make.py; do not edit.",
            f'.TH {name.upper()} 1 "" "sheaf {version[1]}" "User Commands"', ".SH NAME", f"{escape(name)} \\- {escape(what)}"]


def subpage(name: str) -> str:
    command = getattr(import_module(_COMMANDS[name].module), name)
    assert isinstance(command, click.Command)
    arguments = [param.metavar for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join(["sheaf", name, command.options_metavar or "", *(word for word in arguments if word)])
    what = _COMMANDS[name].help.rstrip(".")
    lines = head(f"sheaf-{name}", what[0].lower() + what[1:])
    lines += [".SH SYNOPSIS", escape(usage), ".SH DESCRIPTION", *paragraphs(command.help or "")[1:]]
    lines += sections(name, command)
    others = [f".BR sheaf\\-{other} (1)," for other in _COMMANDS if other != name]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR sheaf (1),", *others]).rstrip(",") + "\n"


def overview() -> str:
    lines = head("sheaf", "run programs on Sheaf's malloc and look at what its caches do")
    lines += [".SH SYNOPSIS", "sheaf COMMAND [OPTIONS] [ARGS]...", ".SH DESCRIPTION", *paragraphs(main.help or "")[1:]]
    lines += [".SH COMMANDS", *terms([(f"sheaf-{name}(1)", entry.help) for name, entry in _COMMANDS.items()])]
    lines += [".SH COMPLETION", *paragraphs(COMPLETION)]
    return "\n".join([*lines, ".SH ENVIRONMENT", *terms(ENVIRONMENT)]) + "\n"


def pages() -> dict[Path, str]:
    """What each file of this directory should be."""
    made = {HERE / "sheaf.1": overview()}
    made |= {HERE / f"sheaf-{name}.1": subpage(name) for name in _COMMANDS}
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
