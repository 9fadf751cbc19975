"""`sheaf unit`: run an existing systemd service on Sheaf, by a drop-in."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from sheaf.commands.arguments import DIRECTORY, age_seconds
from sheaf.errors import SheafError
from sheaf.system import options, preload
from sheaf.system.program import libc

_NAME = re.compile(r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?")
_START = re.compile(r"^ExecStart=[@:+!|-]*\"?(/[^\s\"%$]+)", re.M)  # the path of the program
_LONGEST = 240  # bytes of the name of a unit


def _name(given: str) -> str:
    """The name of the service without .service."""
    name = given.removesuffix(".service")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or name.startswith(".") or ".." in name:
        raise SheafError(f"{given}: not the name of a service; give one such as redis-server or redis-server@6380", 2)
    return name


def _value(text: str) -> str:
    """A text as it stands in a unit file between double quotes. Specifiers such as %i have to be put in afterwards."""
    if any(ord(one) < 32 or ord(one) == 127 for one in text):
        raise SheafError(f"{text}: contains a control character, which a unit file cannot have", 2)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def _argument(text: str) -> str:
    """The same in a command line, where systemd replaces variables as well."""
    return _value(text).replace("$", "$$")


def _environment(settings: tuple[str, ...], library: str, directory: str | None) -> list[str]:
    variables = {"LD_PRELOAD": library, **({"SHEAF_RECORD": directory, "SHEAF_HELPER": "1"} if directory else {})}
    variables.update(options.parse(setting) for setting in settings)
    return [f"Environment={_value(f'{name}={value}')}" for name, value in variables.items()]


def _this_command() -> str:
    """The absolute path of this command, for the service manager."""
    found = shutil.which(sys.argv[0]) if not os.path.isabs(sys.argv[0]) else sys.argv[0]
    if found and os.path.basename(found) == "sheaf":
        return os.path.abspath(found)
    return shutil.which("sheaf") or "/usr/bin/sheaf"


def drop_in(name: str, library: str, settings: tuple[str, ...], age: str, records: bool) -> str:
    """The text of the drop-in for a service."""
    # The drop-in of a template holds for all instances; each has a directory of its own.
    state = "sheaf/" + name.replace("\\", "_").replace("@", "-") + ("@INSTANCE@" if name.endswith("@") else "")
    directory = f"/var/lib/{state}" if records else None
    if " " in library or ":" in library or "$" in library:
        raise SheafError(
            f"{library}: the loader cannot preload a path with a space, a colon or a dollar sign; copy the object "
            "to /usr/local/lib and set SHEAF_LIBRARY to it"
        )
    lines = [
        f"# Runs {name}.service on Sheaf. Made by `sheaf unit {name}`.",
        "[Service]",
        *_environment(settings, library, directory),
    ]
    if directory:
        # systemd creates the directory and lets the service write there, also with ProtectSystem=strict and DynamicUser=yes.
        prune = f"{_argument(_this_command())} records --prune --older-than {age} {_argument(directory)}"
        lines += [
            f"StateDirectory={state}",
            "# Removes old records at each start. A failure does not keep the service from starting.",
            f"ExecStartPre=-/usr/bin/env --unset=LD_PRELOAD --unset=SHEAF_RECORD {prune}",
        ]
    return "\n".join(lines).replace("@INSTANCE@", "%i") + "\n"


def _file(name: str, root: Path) -> Path | None:
    """The unit file of the service; None if there is none."""
    names = dict.fromkeys((f"{name}.service", re.sub("@.*", "@.service", name)))
    folders = (
        "etc/systemd/system",
        "run/systemd/system",
        "usr/local/lib/systemd/system",
        "usr/lib/systemd/system",
        "lib/systemd/system",
        "run/systemd/generator",
        "run/systemd/generator.late",
    )
    return next((path for folder in folders for one in names if (path := root / folder / one).exists()), None)


def _libc(file: Path | None, root: Path) -> str:
    """The C library of the program that a service starts; empty if it cannot be known."""
    try:
        found = _START.search(file.read_text(encoding="utf-8", errors="surrogateescape")) if file else None
    except OSError:
        found = None
    return libc(root / found[1].lstrip("/")) if found else ""


def _write(path: Path, text: str) -> None:
    """Write the file as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".sheaf-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        advice = "run sheaf as root" if isinstance(error, PermissionError) else "check the directory"
        raise SheafError(f"{path}: {error.strerror}; {advice}") from error


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--install", is_flag=True, help="Write the drop-in to /etc/systemd/system instead of printing it.")
@click.option(
    "--option", "settings", multiple=True, metavar="NAME=VALUE", help="Set an option of the allocator; sheaf-run(1) lists them."
)
@click.option(
    "--older-than",
    "age",
    default="7d",
    show_default=True,
    metavar="AGE",
    help="At each start, remove records of processes that ended longer ago than AGE: a number and s, m, h, d or w.",
)
@click.option("--no-records", is_flag=True, help="Keep no records.")
@click.option(
    "--root",
    "root",
    type=DIRECTORY,
    default="/",
    metavar="DIR",
    help="With --install, write below DIR, such as the tree of an image.",
)
def unit(name: str, install: bool, settings: tuple[str, ...], age: str, no_records: bool, root: str) -> None:
    """Print a systemd drop-in that runs the service NAME on Sheaf, with records and their clean-up.

    \b
    Examples:
      sheaf unit redis-server
      sheaf unit --install --option decay=1000 redis-server
      systemctl daemon-reload && systemctl restart redis-server

    The records are in /var/lib/sheaf/NAME, which systemd creates for the user of the service. To undo --install, remove the
    file /etc/systemd/system/NAME.service.d/sheaf.conf, reload and restart.
    """
    name = _name(name)
    age_seconds("--older-than", age)  # refuses what `sheaf records` would refuse at each start of the service
    base = Path(root)
    if not base.is_dir():
        raise SheafError(f"--root {root}: not a directory; name the root of a system", 2)
    file = _file(name, base)
    text = drop_in(name, str(preload.library(_libc(file, base))), settings, age, not no_records)
    if not install:
        click.echo(text, nl=False)
        return
    if file is None:
        raise SheafError(f"{name}.service: there is no such unit; install the service first, or check its name")
    path = base / "etc/systemd/system" / f"{name}.service.d" / "sheaf.conf"
    _write(path, text)
    click.echo(f"{path} written; run: systemctl daemon-reload && systemctl restart {shlex.quote(name)}", err=True)
