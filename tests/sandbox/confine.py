#!/usr/bin/python3
"""Runs a program confined as container runtimes and systemd do: confine.py [OPTION...] -- PROGRAM ARGS...

Options, applied in their order:
  --oci FILE         a seccomp profile of Docker or Podman, for a container without extra capabilities
  --systemd SETS     SystemCallFilter= with these sets, separated by commas; a set after ~ is refused. EPERM is the error
  --systemd-kill SETS    the same, and the process is killed
  --mdwe             MemoryDenyWriteExecute=, by prctl
  --no-new-privs     NoNewPrivileges=
  --landlock DIR     write only in DIR and /dev, read everything but /proc and /sys
It needs the package python3-seccomp, so it runs in the distribution's Python.
"""

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import seccomp

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 38, 65, 1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # Landlock's calls have these numbers on all architectures
PATH_BENEATH = 1
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
ALL = (1 << 13) - 1  # the accesses of Landlock's first version
ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
COMPARE = {
    "SCMP_CMP_EQ": seccomp.EQ,
    "SCMP_CMP_NE": seccomp.NE,
    "SCMP_CMP_GE": seccomp.GE,
    "SCMP_CMP_MASKED_EQ": seccomp.MASKED_EQ,
}


def must(result: int, what: str) -> int:
    if result < 0:
        sys.exit(f"confine.py: {what}: {os.strerror(ctypes.get_errno())}; run it on a kernel that has it")
    return result


def applies(entry: dict[str, Any]) -> bool:
    """Whether a rule of a profile is for this architecture and for a container without extra capabilities."""
    includes, excludes = entry.get("includes") or {}, entry.get("excludes") or {}
    arch = ARCHES.get(os.uname().machine)
    return not includes.get("caps") and arch in includes.get("arches", [arch]) and arch not in excludes.get("arches", [])


def action(name: str, error: int | None) -> int:
    if name == "SCMP_ACT_ALLOW":
        return int(seccomp.ALLOW)
    return int(seccomp.ERRNO(errno.EPERM if error is None else error))


def oci(file: str) -> None:
    profile = json.loads(Path(file).read_text())
    default = action(profile["defaultAction"], profile.get("defaultErrnoRet"))
    rules = seccomp.SyscallFilter(defaction=default)
    for entry in filter(applies, profile["syscalls"]):
        wanted = action(entry["action"], entry.get("errnoRet"))
        for name in entry["names"] if wanted != default else []:
            arguments = [
                seccomp.Arg(
                    one["index"], COMPARE[one["op"]], one["value"], *([one.get("valueTwo", 0)] if "MASKED" in one["op"] else [])
                )
                for one in entry.get("args") or []
            ]
            try:
                rules.add_rule(wanted, name, *arguments)
            except RuntimeError:
                continue  # a call that this architecture or libseccomp does not know
    rules.load()


def members(name: str) -> set[str]:
    """The calls of one of systemd's sets."""
    if not name.startswith("@"):
        return {name}
    done = subprocess.run(["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True)
    found: set[str] = set()
    for line in done.stdout.splitlines()[1:]:
        if (word := line.strip()) and not word.startswith("#"):
            found |= members(word)
    return found


def systemd(sets: str, otherwise: int) -> None:
    """systemd always permits the calls of @default."""
    allowed = members("@default")
    for name in sets.split(","):
        allowed = allowed - members(name[1:]) if name.startswith("~") else allowed | members(name)
    rules = seccomp.SyscallFilter(defaction=otherwise)
    for name in sorted(allowed):
        try:
            rules.add_rule(seccomp.ALLOW, name)
        except RuntimeError:
            continue  # as above
    rules.load()


def allow(ruleset: int, path: str, access: int) -> None:
    directory = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not Path(path).is_dir():
        access &= ~READ_DIR
    rule = struct.pack("=Qi", access, directory)
    must(LIBC.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0), f"Landlock's rule for {path}")
    os.close(directory)


def landlock(directory: str) -> None:
    ruleset = must(LIBC.syscall(CREATE_RULESET, struct.pack("=Q", ALL), 8, 0), "Landlock")
    for path in Path("/").iterdir():
        if path.name not in ("proc", "sys", "dev") and path.exists() and not path.is_symlink():
            allow(ruleset, str(path), EXECUTE | READ_FILE | READ_DIR)
    allow(ruleset, "/dev", ALL)
    allow(ruleset, directory, ALL)
    no_new_privs()
    must(LIBC.syscall(RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def no_new_privs() -> None:
    must(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def mdwe() -> None:
    must(LIBC.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0), "MemoryDenyWriteExecute")


ALONE: dict[str, Callable[[], None]] = {"--mdwe": mdwe, "--no-new-privs": no_new_privs}
VALUED: dict[str, Callable[[str], None]] = {
    "--oci": oci,
    "--systemd": lambda sets: systemd(sets, seccomp.ERRNO(errno.EPERM)),
    "--systemd-kill": lambda sets: systemd(sets, seccomp.KILL_PROCESS),
    "--landlock": landlock,
}


def main() -> None:
    words = sys.argv[1:]
    while words and (word := words.pop(0)) != "--":
        if word in ALONE:
            ALONE[word]()
        elif word in VALUED and words:
            VALUED[word](words.pop(0))
        else:
            sys.exit(f"confine.py: {word}: no such option; see the head of the file")
    if not words:
        sys.exit("confine.py: the program is missing; name it after --")
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
