#!/usr/bin/env python3
"""Write the man pages from the help of the commands: python3 docs/man/make.py (needs click).

EXTRA has the sections that are too long for the help.
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

from sheaf.__main__ import _COMMANDS, main  # noqa: E402
from sheaf.commands import dump, stats  # noqa: E402
from sheaf.commands import set as setting  # noqa: E402
from sheaf.commands.doctor import command as doctor  # noqa: E402
from sheaf.commands.leaks import command as leaks_command  # noqa: E402
from sheaf.commands.profile import command as profile_command  # noqa: E402
from sheaf.records import state  # noqa: E402
from sheaf.rendering import memorymap, toprows  # noqa: E402
from sheaf.system import options  # noqa: E402

ENVIRONMENT = [
    ("SHEAF_LIBRARY", "Path of the preloaded object to use instead of the installed one."),
    ("SHEAF_<NAME>", "Options of the allocator; see sheaf-run(1). Programs with raised privileges ignore them."),
]
COMPLETION = "sheaf-completion(1) prints scripts for bash, zsh and fish. A system installation has them where the shells look."
CONTROL_STATUS = "0: success. 1: the process cannot be asked, or did not answer in time. 2: wrong command line."
CONTROL_NOTES = (
    "PID may also be the name of a program, if one process on Sheaf has that name, or the path of a record. The owner of the "
    "record and root may ask.\n\n"
    "A process that sleeps answers only if it has a helper thread: start it with SHEAF_HELPER=1. docs/control.md says when "
    "processes answer."
)
EXTRA: dict[str, list[tuple[str, str | list[tuple[str, str]]]]] = {
    "run": [
        (
            "OPTIONS OF THE ALLOCATOR",
            "Give them with --option, or as SHEAF_<NAME> in the environment. Sizes may end with K, M, G or T.",
        ),
        ("", [(name, f"{option.help} (default {options.shown_default(option)})") for name, option in options.table().items()]),
        (
            "EXIT STATUS",
            "The exit status is that of the program, or that of --leak-status if anything is lost. If a signal ends "
            "the program, sheaf ends by the same signal. "
            "125: sheaf itself failed. 126: the program was found but cannot be executed. 127: the program was not found.",
        ),
        (
            "SIGNALS",
            "Without --stats, --profile and --leaks, sheaf run replaces itself with the program by exec. With them, it "
            "waits for "
            "the program and forwards signals that are sent to sheaf alone; signals of the terminal reach the program directly. "
            "If the program stops, sheaf stops as well, and SIGCONT continues both. A signal that kill sends to the process "
            "group reaches the program twice: directly, and forwarded by sheaf.",
        ),
        ("ENVIRONMENT", ENVIRONMENT),
        (
            "NOTES",
            "Sheaf cannot be preloaded into programs that are static, setuid, setgid, 32-bit, for another architecture, "
            "built with a sanitizer, or that have file capabilities. They are refused with the reason unless --force is "
            "given.\n\n"
            "LD_PRELOAD cannot hold a path with a space, a colon or a dollar sign. If the path of the object contains one, sheaf "
            "creates a permanent link to the object in ~/.cache/sheaf, or in a directory of the user below the temporary "
            "directory.\n\n"
            "--no-children starts the program through the dynamic loader, so /proc/self/exe is the loader.",
        ),
    ],
    "stats": [
        ("MEMORY OF A PROCESS", stats.MEMORY_EXPLAINED),
        ("COLUMNS", stats.EXPLAINED),
        ("EXIT STATUS", "0: success. 1: a record cannot be read, or a process keeps none. 2: wrong command line."),
        (
            "NOTES",
            "The record of a running process changes while it is read, so the values belong to slightly different moments. "
            "Until the process ends, the record may lag by up to 1024 fast-path operations for each cache and slot. The lag "
            "shifts objects between live and sheaves, whose sum stays right.\n\n"
            "A process ended without closing its record if it was killed, called _exit, or replaced itself with another program "
            "by exec.\n\n"
            "--by node shows one row if the caches are not divided by memory node: the machine has one node, SHEAF_NUMA is off, "
            "or the process was started with a memory policy (numactl).",
        ),
    ],
    "top": [
        ("KEYS", toprows.KEYS),
        (
            "COLUMNS",
            [(f"{one.heading} ({one.name}), key {one.key}", one.meaning) for one in (*toprows.PROCESSES, *toprows.CACHES)],
        ),
        (
            "EXIT STATUS",
            "0: success, also after q and Ctrl-C. 1: there is no such process, or no terminal to draw on. 2: wrong command line.",
        ),
        (
            "ENVIRONMENT",
            [
                ("NO_COLOR", "If it is not empty, no colours are used."),
                ("SHEAF_RECORD", "A directory of records that is watched in addition to those of running processes."),
            ],
        ),
        (
            "NOTES",
            "Without an argument, processes are found by their maps in /proc, so those of other users are shown to root "
            "only. A process that keeps no record is not shown: start it with sheaf run --record DIR.\n\n"
            "Until a process ends, its record may lag by up to 1024 fast-path operations for each cache and slot, so the rates "
            "of a process that does little come in steps.\n\n"
            "docs/top.md describes the JSON lines and shows a session.",
        ),
    ],
    "records": [
        ("STATES", state.EXPLAINED),
        (
            "EXIT STATUS",
            "0: success, also if there is nothing to list or to remove. 1: the directory cannot be read, or a record "
            "could not be removed. 2: wrong command line.",
        ),
        (
            "NOTES",
            "The end of a process that did not close its record is the start of the next record of the same process, or "
            "the time of the file's last change, which the file system may have noted long before the process ended. Keep that "
            "in mind when --older-than is short.\n\n"
            "A process in a container is found from the system outside. From inside a container, processes of other containers "
            "are not visible; their records are listed as such and never removed. A directory should hold the records of one "
            "machine only, because a record of another machine looks like one of an earlier boot.\n\n"
            "A record that is removed while its process is running would be lost: the process continues in the removed file.",
        ),
    ],
    "trim": [("EXIT STATUS", CONTROL_STATUS), ("NOTES", CONTROL_NOTES)],
    "set": [
        ("EXIT STATUS", CONTROL_STATUS),
        ("NOTES", CONTROL_NOTES),
        ("OPTIONS THAT CAN CHANGE", [(name, options.table()[name].help) for name in setting.SUBJECTS]),
    ],
    "dump": [
        ("COLUMNS", dump.EXPLAINED),
        ("THE MAP", memorymap.LEGEND),
        ("EXIT STATUS", CONTROL_STATUS),
        ("NOTES", CONTROL_NOTES + "\n\ndocs/schema.md describes the JSON object."),
    ],
    "doctor": [
        ("FINDINGS", doctor.EXPLAINED),
        ("EXIT STATUS", "0: nothing hinders. 1: there is a problem. 2: wrong command line."),
        (
            "NOTES",
            "The mode is found by a trial: a Python process that does nothing else runs on Sheaf, under the limits and the "
            "sandbox of this shell. A process on Sheaf that keeps a record has its mode there; for others it is only "
            "expected.\n\n"
            "A number is the PID of a process, unless a file of that name exists.\n\n"
            "docs/doctor.md lists the subjects and describes the JSON object.",
        ),
    ],
    "profile": [
        ("VIEWS", profile_command.VIEWS_EXPLAINED),
        (
            "TABLE",
            "FLAT is what a function allocated itself, and CUM what it and the functions it called allocated. Each ± is "
            "the standard error of the figure before it. Functions of the standard libraries of C++ and Rust are left out at the "
            "innermost end of stacks; the other formats have them.",
        ),
        (
            "EXIT STATUS",
            "0: success. 1: there is no profile, a file cannot be read or written, or the process refuses to "
            "sample. 2: wrong command line.",
        ),
        ("ENVIRONMENT", [("DEBUGINFOD_URLS", "Servers from which llvm-symbolizer may fetch debugging information.")]),
        (
            "NOTES",
            "All figures are estimates from samples, without bias. docs/profile.md says how exact they are and how to get "
            "the names of functions. In a table, a stack that is missing has little memory or none.\n\n"
            "A process looks for requests when it allocates. One that does not allocate answers only with SHEAF_HELPER=1.\n\n"
            "If a signal ends the command, it switches sampling off first if it switched it on. After SIGKILL the process "
            "continues to sample.",
        ),
    ],
    "leaks": [
        ("VERDICTS OF --growth", leaks_command.EXPLAINED),
        (
            "EXIT STATUS",
            "0: success, whether or not anything is lost or suspect. That of --leak-status: something is lost "
            "that is not suppressed. 1: the process cannot be asked, stopped or copied, there is no profile, or a file cannot be "
            "read. 2: wrong command line.",
        ),
        (
            "NOTES",
            "The process must keep a record and have its helper thread. Who may attach a debugger may ask. Interrupted "
            "system calls are restarted by the kernel, except for those that signal(7) lists under interruption by stop signals, "
            "such as epoll_wait(2). docs/leaks.md says what the report may miss, and what the search costs.\n\n"
            "With --growth, samples that are live in both snapshots cancel out, so the error of the growth comes only from what "
            "was allocated or freed in between. A slow leak needs a longer time or a smaller --rate; see docs/profile.md.",
        ),
    ],
    "report": [
        (
            "EXIT STATUS",
            "0: success. 1: the file cannot be read, or neither llvm-symbolizer nor addr2line is installed. 2: wrong "
            "command line.",
        )
    ],
    "bench": [],
    "serve": [
        (
            "SECURITY",
            "The server listens on 127.0.0.1 unless --bind says otherwise, and answers only requests whose Host header "
            "is its address, localhost, or a name given with --allow-host. Requests of other web sites are refused. Everyone who "
            "can connect may read, unless --private is given; names of programs, sizes, and call stacks of sampled processes are "
            "shown, never contents of memory.\n\n"
            "Nothing can be changed without --control. With it, a client needs the token: as Authorization: Bearer TOKEN, or by "
            "a login on the page, which sets a cookie for 12 hours.",
        ),
        (
            "EXIT STATUS",
            "0: ended by SIGTERM or SIGINT. 1: the address is in use or cannot be used, or the token file is "
            "wrong. 2: wrong command line.",
        ),
        (
            "NOTES",
            "docs/serve.md lists the metrics and describes the limits on their number. Files for Prometheus, Grafana, "
            "systemd and containers are in docs/serve/.",
        ),
    ],
    "unit": [
        (
            "EXIT STATUS",
            "0: success. 1: there is no such service, or the drop-in cannot be written. 2: wrong command line. "
            "125: an option of the allocator is wrong, or the preloaded object is not found.",
        ),
        (
            "NOTES",
            "The environment of a unit holds for all of its commands, such as ExecStartPre=, and for the programs that "
            "they start. The drop-in of a template, such as sheaf unit redis-server@, holds for all of its instances, each with "
            "a directory of its own.\n\n"
            "Records of children that end while the service runs are removed at its next start. A service that starts many "
            "children and seldom restarts needs sheaf records --prune in a timer as well; see docs/production.md.",
        ),
    ],
    "completion": [
        (
            "FILES",
            [
                (
                    "share/bash-completion/completions/sheaf",
                    "The script for bash 4.4 and later, with the package bash-completion.",
                ),
                ("share/zsh/site-functions/_sheaf", "The script for zsh, after compinit."),
                ("share/fish/vendor_completions.d/sheaf.fish", "The script for fish."),
            ],
        ),
        ("EXIT STATUS", "0: success. 1: the script is missing. 2: wrong command line."),
    ],
}


def escape(text: str) -> str:
    """The text as roff source."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """The help of a command as roff paragraphs. As in click, a paragraph after \\b keeps its lines."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.startswith("\b"):
            lines += [".PP", ".nf", escape(block[1:].strip("\n")), ".fi"]
        else:
            lines += [".PP", escape(" ".join(block.split()))]
    return lines


def terms(pairs: list[tuple[str, str]]) -> list[str]:
    """A roff list of terms with explanations."""
    lines = []
    for name, text in pairs:
        lines += [".TP", f".B {escape(name)}", escape(text)]
    return lines


def spelled(option: click.Option) -> str:
    """The names of an option and its value. click can format them too, but the result depends on its version."""
    names = ", ".join(sorted([*option.opts, *option.secondary_opts], key=len))
    if option.is_flag:
        return names
    if option.metavar or not isinstance(option.type, click.Choice):
        return f"{names} {option.metavar or option.type.name.split()[0].upper()}"
    return f"{names} {'|'.join(map(str, option.type.choices))}"


def explained(option: click.Option) -> str:
    """The help of an option with its default."""
    shown = option.show_default and option.default is not None
    return (option.help or "") + (f" (default {option.default})" if shown else "")


def sections(name: str, command: click.Command) -> list[str]:
    """The sections of a page from OPTIONS on."""
    shown = [param for param in command.params if isinstance(param, click.Option)]
    pairs = [(spelled(option), explained(option)) for option in shown]
    lines = [".SH OPTIONS", *terms([*pairs, ("-h, --help", "Show the help and exit.")])]
    lines += paragraphs(command.epilog) if command.epilog else []
    for title, content in EXTRA.get(name, ()):
        lines += [f".SH {title}"] if title else []
        lines += paragraphs(content) if isinstance(content, str) else terms(content)
    return lines


def head(name: str, what: str) -> list[str]:
    """The title and the section NAME."""
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())
    assert version
    return [
        '.\\" Generated by docs/man/make.py from the help of the command; do not edit.',
        f'.TH {name.upper()} 1 "" "sheaf {version[1]}" "User Commands"',
        ".SH NAME",
        f"{escape(name)} \\- {escape(what)}",
    ]


def subpage(name: str) -> str:
    """The page of one command."""
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
    """The page sheaf(1)."""
    lines = head("sheaf", "run programs on Sheaf's malloc and show what its caches do")
    lines += [".SH SYNOPSIS", "sheaf COMMAND [OPTIONS] [ARGS]...", ".SH DESCRIPTION", *paragraphs(main.help or "")[1:]]
    lines += [".SH COMMANDS", *terms([(f"sheaf-{name}(1)", entry.help) for name, entry in _COMMANDS.items()])]
    lines += [".SH COMPLETION", *paragraphs(COMPLETION)]
    return "\n".join([*lines, ".SH ENVIRONMENT", *terms(ENVIRONMENT)]) + "\n"


def pages() -> dict[Path, str]:
    """The text of each page by its path."""
    made = {HERE / "sheaf.1": overview()}
    made |= {HERE / f"sheaf-{name}.1": subpage(name) for name in _COMMANDS}
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
