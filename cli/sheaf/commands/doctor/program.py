"""Whether Sheaf can be preloaded into the file of a program, and whether the program would use its malloc."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sheaf.commands.doctor.finding import Finding, Process, note, ok, problem
from sheaf.commands.doctor.launcher import launcher
from sheaf.errors import SheafError
from sheaf.system import elf, preload
from sheaf.system.program import elf_obstacle, interpreter, locate, obstacle, own_malloc

_SHELL = Path("/bin/sh")  # runs files that are neither ELF nor start with #!
_ALLOCATORS = re.compile(r"lib(jemalloc|tcmalloc|mimalloc|hoard|snmalloc|scudo|rpmalloc|tbbmalloc|umem|efence|duma|dmalloc)")
_REPLACEABLE = ("calloc", "realloc", "reallocarray", "aligned_alloc", "memalign", "posix_memalign", "malloc_usable_size")
_SCANNED = 1 << 30  # bytes; larger programs are not searched for an allocator
_STEP, _LONGEST = 1 << 20, 64  # bytes that are searched at once, and those of the longest text
# Text in a program that contains an allocator under names of its own.
_EMBEDDED = {b"<jemalloc>: ": "jemalloc", b"TCMALLOC_": "tcmalloc", b"mimalloc: ": "mimalloc"}
_MUSL = re.compile(rb"\0([1-9]\.\d{1,3}\.\d{1,3}(?:-git-[\w-]{1,40})?)\0")  # the text of its release, in its loader
_LARGEST_LOADER = 8 << 20  # bytes that are searched for it
_RELEASE = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")
_DOTNET = [b"DOTNET_ROOT", b"hostfxr"]
_GO_BUILD_INFO = b"\xff Go buildinf:"


@dataclass
class Program:
    """A program as it would be executed: `target` is the file that the kernel runs after all #! lines."""

    path: Path
    target: Path
    image: elf.Image | None = None
    details: elf.Details | None = None
    findings: list[Finding] = field(default_factory=list)


def find(command: str) -> Program | Finding:
    """The program that a command runs, or why there is none."""
    try:
        path = locate(command)
    except SheafError as error:
        what, _, advice = error.message.rpartition("; ")
        return problem("program", what, advice)
    return read(path)


def read(path: Path) -> Program | Finding:
    """The program in a file, with its interpreter."""
    program = Program(path, interpreter(path))
    try:
        _load(program)
        if program.image is None and _has_interpreter_line(program.target):
            return problem("script", f"{path}: its interpreter cannot be found", "install it, or correct the first line")
        if program.image is None:
            program.findings.append(ok("script", f"{program.target} is neither ELF nor starts with #!, so {_SHELL} runs it"))
            program.target = _SHELL.resolve()
            _load(program)
        elif program.target != path:
            program.findings.append(ok("script", f"{path} is a script, so {program.target} runs it"))
        else:
            program.findings.append(ok("program", str(path)))
    except FileNotFoundError:
        return problem(
            "script", f"{path}: its interpreter {program.target} does not exist", "install it, or correct the first line"
        )
    except elf.Damaged:
        return problem("program", f"{program.target}: the ELF headers are damaged", "restore the file")
    except OSError as error:
        return note("program", f"{program.target}: cannot be examined: {error.strerror}", "make it readable")
    return program


def _has_interpreter_line(path: Path) -> bool:
    with elf.opened(path) as file:
        return file.read(2) == b"#!"


def _load(program: Program) -> None:
    program.image = elf.read(program.target)
    if program.image and program.image.bits == 64:
        program.details = elf.details(program.target)


def _contains(path: Path, texts: list[bytes]) -> list[bytes]:
    """Those of the texts that a file contains."""
    try:
        with path.open("rb") as file:  # not mapped: a file that is cut short meanwhile would end this command by SIGBUS
            status, found, before = os.fstat(file.fileno()), set[bytes](), b""
            if not stat.S_ISREG(status.st_mode) or status.st_size > _SCANNED:
                return []
            while len(found) < len(texts) and (raw := file.read(_STEP)):
                found.update(text for text in texts if text in before + raw)
                before = raw[-_LONGEST:]
            return [text for text in texts if text in found]
    except OSError:
        return []


# ---- the file: can the loader preload anything? ----


def is_go(program: Program) -> bool:
    """Whether the Go toolchain linked the program."""
    if program.details and "Go" in program.details.notes:
        return True
    return bool(_contains(program.target, [_GO_BUILD_INFO]))


def _raisable(program: Program) -> Finding | None:
    """Privileges that the program gains only where another user starts it."""
    try:
        mode = program.target.stat().st_mode
        gains = [name for name, bit in (("setuid", stat.S_ISUID), ("setgid", stat.S_ISGID)) if mode & bit]
        gains += ["file capabilities"] if "security.capability" in os.listxattr(program.target) else []
    except OSError:
        return None
    if not gains:
        return None
    return note(
        "privileges",
        f"it has {' and '.join(gains)}, so the loader ignores LD_PRELOAD when other users start it",
        "expect Sheaf only when this user starts it",
    )


def _barrier(program: Program, ours: bool) -> Finding | None:
    """Why nothing can be preloaded. With `ours` this user starts the program, so that its privileges count."""
    found = obstacle(program.target) if ours else elf_obstacle(program.image) if program.image else None
    if found is None:
        return None
    if found.subject == "linkage" and is_go(program):
        return problem(
            "runtime",
            "it is a static Go program, whose heap is Go's own",
            "run it without Sheaf; GOGC and GOMEMLIMIT tune its heap",
        )
    return problem(found.subject, found.reason, found.advice)


def _libc(program: Program, process: Process) -> tuple[Finding, bool]:
    """Whether the C library suits Sheaf's object, and whether it knows restartable sequences."""
    assert program.image
    loader = process.path(program.image.loader)
    try:
        if elf.libc(program.image) == "musl":
            return _musl(loader.resolve(strict=True)), False
        real = loader.resolve(strict=True)
        image = elf.read(real)
        libc = real.with_name("libc.so.6")
        names = elf.read(libc) if libc.exists() else None
    except FileNotFoundError:
        return problem(
            "libc",
            f"its dynamic loader {program.image.loader} does not exist, so it cannot start",
            "install the C library that it was built for",
        ), False
    except (OSError, elf.Damaged):
        return note("libc", f"{loader}: cannot be examined", "make it readable"), True
    if image is None or next(image.strings.begin_with("GLIBC_"), None) is None:
        return problem(
            "libc",
            f"its dynamic loader {program.image.loader} is neither glibc's nor musl's",
            "build it against one of them, or run it without Sheaf",
        ), False
    rseq = "__rseq_offset" in image.strings
    provided = {name for one in (image, names) if one for name in one.strings.begin_with("GLIBC_")}
    return _release(provided, names is not None, rseq), rseq


def _musl(loader: Path) -> Finding:
    """What to know of musl, whose dynamic loader is the whole C library."""
    with elf.opened(loader) as file:
        found = _MUSL.search(file.read(_LARGEST_LOADER))
    release = found[1].decode() if found else "of unknown release"
    return ok("libc", f"musl {release} does not know restartable sequences, so Sheaf registers them")


def _versions(names: Iterable[str]) -> list[tuple[int, ...]]:
    matches = (_RELEASE.fullmatch(name) for name in names)
    return sorted(tuple(map(int, match[1].split("."))) for match in matches if match)


def _release(provided: set[str], complete: bool, rseq: bool) -> Finding:
    release = ".".join(map(str, _versions(provided)[-1:][0])) if _versions(provided) else "of unknown release"
    try:
        needed = _versions(elf.details(preload.library("glibc")).versions)
    except (SheafError, OSError, elf.Damaged):
        needed = []
    if complete and needed and not set(needed) <= set(_versions(provided)):
        least = ".".join(map(str, needed[-1]))
        return problem(
            "libc",
            f"glibc {release}, and Sheaf's object was built for {least}",
            "build Sheaf on the oldest system that it shall run on",
        )
    if not rseq:
        return ok("libc", f"glibc {release} does not know restartable sequences, so Sheaf registers them")
    return ok("libc", f"glibc {release} knows restartable sequences")


# ---- the program: would it use the preloaded malloc? ----


def _malloc(program: Program) -> Finding:
    assert program.image
    assert program.details
    own = own_malloc(program.details.defined)
    if own:
        return problem(
            "malloc",
            f"it defines {own} itself, so Sheaf steps aside: the program runs as without Sheaf, and nothing is measured",
            "build it without its allocator, or run it without Sheaf",
        )
    some = [name for name in _REPLACEABLE if name in program.details.defined]
    if some:
        return note(
            "malloc",
            f"it defines {', '.join(some)} itself, and the rest comes from Sheaf",
            "leave it, if these functions work with the system's malloc",
        )
    embedded = [_EMBEDDED[text] for text in _contains(program.target, list(_EMBEDDED))]
    if embedded:
        return note(
            "malloc",
            f"it contains {' and '.join(embedded)} under other names, so only its libraries use Sheaf",
            "build it with the system's malloc to use Sheaf throughout",
        )
    linked = [name for name in program.image.needed if _ALLOCATORS.match(name)]
    if linked:
        return note(
            "malloc",
            f"it links {', '.join(linked)}, and Sheaf's malloc takes precedence",
            "ignore statistics and settings of that allocator, or build the program without it",
        )
    return ok("malloc", "it takes malloc from its libraries, before which Sheaf's is loaded")


def _runtime(program: Program) -> Finding | None:
    """Languages that have heaps of their own."""
    assert program.image
    names = program.image.strings
    if is_go(program):
        return note(
            "runtime", "Go has a heap of its own, so only C code in it uses Sheaf", "tune Go's heap by GOGC and GOMEMLIMIT"
        )
    if any(name.startswith(("libjli.so", "libjvm.so")) for name in program.image.needed):
        return note(
            "runtime",
            "Java has a heap of its own, so only native memory comes from Sheaf",
            "tune Java's heap by its own options, such as -Xmx",
        )
    if next(names.begin_with("_ZN2v8"), None) is not None:
        return note(
            "runtime",
            "V8 has a heap of its own for JavaScript, so only buffers and native memory come from Sheaf",
            "tune the heap by V8's options, such as --max-old-space-size",
        )
    if len(_contains(program.target, _DOTNET)) == len(_DOTNET):
        return note(
            "runtime",
            ".NET has a heap of its own, so only native memory comes from Sheaf",
            "tune .NET's heap by its own settings, such as DOTNET_GCHeapHardLimit",
        )
    if "Py_BytesMain" in names:
        return note(
            "runtime",
            "Python takes objects of up to 512 bytes from pools of its own, and only larger ones from Sheaf",
            "set PYTHONMALLOC=malloc to send all of them to Sheaf",
        )
    return None


def clears_deep_binding(environment: Mapping[str, str]) -> bool:
    """Whether Sheaf's object opens libraries without RTLD_DEEPBIND."""
    if environment.get("SHEAF_DEEPBIND", "0") != "0":
        return False
    try:
        return "dlopen" in elf.details(preload.library()).defined
    except (SheafError, OSError, elf.Damaged):
        return False


def deep_binding(php: bool, environment: Mapping[str, str]) -> Finding | None:
    """Libraries that a program opens with RTLD_DEEPBIND call libc's free for memory of Sheaf."""
    if not php:
        return None
    if clears_deep_binding(environment):
        return ok("plugins", "PHP opens its extensions with RTLD_DEEPBIND, which Sheaf clears")
    what = "PHP opens its extensions with RTLD_DEEPBIND, so they free memory of Sheaf by libc's free and crash"
    if environment.get("SHEAF_DEEPBIND", "0") != "0":
        return problem("plugins", what, "unset SHEAF_DEEPBIND")
    return problem("plugins", what, "build the extensions into PHP, or run it without Sheaf")


def _is_php(image: elf.Image) -> bool:
    return any(name.startswith("libphp") for name in image.needed) or "zend_parse_parameters" in image.strings


def others_preloaded(environment: Mapping[str, str]) -> Finding | None:
    """Other allocators and sanitizers in LD_PRELOAD; Sheaf is loaded before them."""
    names = [name for name in re.split("[ :]+", environment.get("LD_PRELOAD", "")) if name]
    others = [
        name
        for name in names
        if re.match(r"lib(clang_rt\.)?(a|t|l|m|hwa)san", os.path.basename(name)) or _ALLOCATORS.match(os.path.basename(name))
    ]
    if not others:
        return None
    return note(
        "preload",
        f"LD_PRELOAD has {', '.join(others)}, which `sheaf run` loads after Sheaf",
        "unset LD_PRELOAD to run without them",
    )


def examine(program: Program, process: Process, ours: bool = True) -> tuple[list[Finding], bool]:
    """
    All findings on a program, and whether its C library knows restartable sequences. `process` has its environment; with
    `ours` this user starts the program.
    """
    findings = list(program.findings)
    barrier = _barrier(program, ours)
    if barrier or not program.image or not program.details:
        return [*findings, *([barrier] if barrier else [])], False
    if not program.image.interpreted:
        return [*findings, ok("linkage", "it is statically linked with Sheaf")], True
    findings.append(ok("linkage", "64-bit, dynamically linked, without a sanitizer"))
    if ours:
        findings.append(_raisable(program) or ok("privileges", "it is started without raised privileges"))
    libc, rseq = _libc(program, process)
    if libc.status == "problem":
        return [*findings, libc], False
    extra = (
        _runtime(program),
        launcher(program.path, program.target),
        deep_binding(_is_php(program.image), process.environment),
        others_preloaded(process.environment),
    )
    findings += [libc, _malloc(program), *(one for one in extra if one)]
    return findings, rseq
