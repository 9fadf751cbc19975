"""Programs that start others without LD_PRELOAD, so that those do not run on Sheaf."""

from __future__ import annotations

import re
from pathlib import Path

from sheaf.commands.doctor.finding import Finding, note
from sheaf.system import elf

_BEHIND = "put sheaf behind it, as in `{} sheaf run -- PROGRAM`"
_USERS = "it starts programs with a new environment, without LD_PRELOAD", _BEHIND
_SETUID = (
    "the loader removes LD_PRELOAD from its environment, unless root starts it",
    "put sheaf into its command, as in `su -c 'sheaf run -- PROGRAM'`",
)
_SERVICES = "a service starts its programs, with an environment of its own", _BEHIND
_SANDBOXES = (
    "it starts programs in a sandbox, in which Sheaf's object does not exist",
    "run them without Sheaf, or set LD_PRELOAD in the sandbox to an object that lies there",
)
_CONTAINERS = (
    "its programs run in containers, with environments of their own",
    "put Sheaf's object into the image, and set LD_PRELOAD there",
)
_REMOTE = "its programs run on another machine", "install Sheaf there, and put sheaf behind it"
_CHECKED = (
    "its tools replace malloc in what they run, so that it does not use Sheaf's",
    "run the program without Sheaf, or without valgrind by `sheaf run --debug FZPU`",
)
_LAUNCHERS = {
    **dict.fromkeys(("sudo", "doas", "pkexec"), _USERS),
    "su": _SETUID,
    "systemd-run": _SERVICES,
    **dict.fromkeys(("snap", "flatpak"), _SANDBOXES),
    **dict.fromkeys(("docker", "podman", "nerdctl"), _CONTAINERS),
    "ssh": _REMOTE,
    "valgrind": _CHECKED,
}
_EMULATOR = re.compile(r"qemu-(?!system|img|io|nbd|ga$)[a-z0-9_]+(-static)?")
_SHELLS = re.compile(r"(ba|da|k|mk|z|a|busybox-?)?sh(-static)?")
_READ = 64 << 10  # bytes of a script
_CLEARS = re.compile(
    rb"^[^#\n]*?(\bunset\s[^\n;#]*LD_PRELOAD|\bLD_PRELOAD=(?:''|\"\")?(?=[\s;]|$)"
    rb"|\benv\s+(?:-i|-|--ignore-environment|-u\s*LD_PRELOAD|--unset=LD_PRELOAD)(?=\s|$))",
    re.MULTILINE,
)


def launcher(path: Path, target: Path) -> Finding | None:
    """Why programs that this one starts do not run on Sheaf. `target` is the file that the kernel executes for `path`."""
    found = _LAUNCHERS.get(path.name)
    if found:
        what, advice = found
        return note("launcher", what, advice.format(path.name))
    if _EMULATOR.fullmatch(path.name):
        return note(
            "launcher",
            "only the emulator itself uses Sheaf, not the program that it emulates",
            "preload an object for that machine into the program by the option -E LD_PRELOAD=...",
        )
    return _script(path) if path != target and _SHELLS.fullmatch(target.resolve().name) else None


def _script(path: Path) -> Finding | None:
    try:
        with elf.opened(path) as file:
            match = _CLEARS.search(file.read(_READ))
    except (OSError, elf.Damaged):
        return None
    if match is None:
        return None
    text = b" ".join(match[1].split()).decode("utf-8", "replace")[:60].replace(";", ",")
    return note(
        "launcher",
        f"the script contains `{text}`, so that what it starts then does not run on Sheaf",
        "name the program that it starts, or change the script",
    )
