"""Count instructions, loads and stores on the straight path of functions in a built object, which is the fast path."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# Symbols by name. The compiler lays out the expected path without taken conditional jumps.
FUNCTIONS = {
    "malloc": "malloc",
    "free": "free",
    "operator new": "_Znwm",
    "operator delete": "_ZdlPv",
    "sized delete": "_ZdlPvm",
    "array new": "_Znam",
    "array delete": "_ZdaPv",
    "nothrow new": "_ZnwmRKSt9nothrow_t",
}
_LONGEST = 200
_LINE = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")


class CountError(Exception):
    """A failure, with a message of one line that names the thing, the problem and the remedy."""


@dataclass(frozen=True)
class Counts:
    """The counts of one path."""

    instructions: int
    loads: int
    stores: int


@dataclass(frozen=True)
class Instruction:
    """An instruction in the disassembly."""

    mnemonic: str
    operands: tuple[str, ...]
    remark: int  # the address that objdump prints for a PC-relative operand, or 0


def output(command: Sequence[str | Path]) -> str:
    """The output of a binutils command. Raises CountError."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CountError(f"{command[0]}: {error}; install binutils for the architecture of the object") from None


def machine_of(path: Path) -> str:
    """The architecture in the ELF header. Raises CountError for any other file."""
    header = path.read_bytes()[:20]
    found = {62: "x86_64", 183: "aarch64"}.get(int.from_bytes(header[18:20], "little"))
    if header[:4] != b"\x7fELF" or found is None:
        raise CountError(f"{path}: not an object of x86_64 or aarch64; name libsheaf-preload.so")
    return found


def compiler_of(path: Path, objdump: str) -> str:
    """Family and major version of the compiler, from the section .comment. Raises CountError."""
    text = output([objdump, "-s", "-j", ".comment", path])
    comment = "".join(line[-16:] for line in text.splitlines() if re.match(r"^ [0-9a-f]{4,} ", line))
    clang = re.search(r"clang version (\d+)", comment)
    gcc = re.search(r"GCC: \([^)]*\) ?(\d+)", comment)
    if clang:
        return f"clang {clang[1]}"
    if gcc:
        return f"gcc {gcc[1]}"
    raise CountError(f"{path}: the section .comment names no compiler; build the object without stripping it")


def _symbols(path: Path, objdump: str) -> dict[str, int]:
    """The addresses of exported functions by name."""
    found = {}
    for line in output([objdump, "-T", path]).splitlines():
        words = line.split()
        if len(words) > 5 and ".text" in words:
            found[words[-1]] = int(words[0], 16)
    return found


def _slots(path: Path, objdump: str) -> dict[int, str]:
    """The addresses of slots into which the dynamic linker writes the address of a function, with its name."""
    found = {}
    for line in output([objdump, "-R", path]).splitlines():
        words = line.split()
        if len(words) == 3 and re.fullmatch(r"[0-9a-f]+", words[0]):
            found[int(words[0], 16)] = re.split(r"[@+]", words[2])[0]
    return found


def _instructions(path: Path, objdump: str) -> dict[int, Instruction]:
    """The instructions of an object by address."""
    lines = output([objdump, "-d", "--no-show-raw-insn", path]).splitlines()
    return {int(match[1], 16): parse(match[2]) for match in map(_LINE.match, lines) if match}


def parse(line: str) -> Instruction:
    """Parse a line of the disassembly, without its address."""
    remark = re.search(r"# ([0-9a-f]+)", line)
    text = re.sub(r"\s*(# |//|<).*$", "", line).strip()
    mnemonic, _, rest = text.partition("\t" if "\t" in text else " ")
    return Instruction(mnemonic.strip(), _operands(rest), int(remark[1], 16) if remark else 0)


def _operands(text: str) -> tuple[str, ...]:
    """Split operands at commas outside brackets."""
    parts, depth, part = [], 0, ""
    for character in text.strip():
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    return tuple([*parts, part.strip()] if part.strip() else parts)


def x86_memory(i: Instruction) -> tuple[bool, bool]:
    """Whether an x86 instruction loads, and whether it stores. The destination is the last operand (AT&T syntax)."""
    in_memory = [bool(re.search(r"\(|%fs:|%gs:", operand)) for operand in i.operands]
    if i.mnemonic.startswith(("lea", "nop", "prefetch")) or not any(in_memory):
        return i.mnemonic.startswith("pop"), i.mnemonic.startswith("push")
    if i.mnemonic.startswith(("cmp", "test", "jmp")) or not in_memory[-1]:
        return True, False
    return not i.mnemonic.startswith("mov"), True


def arm_memory(i: Instruction) -> tuple[bool, bool]:
    """The same for aarch64, where only loads and stores have operands in memory."""
    return i.mnemonic.startswith("ld"), i.mnemonic.startswith("st")


def _is_nop(i: Instruction) -> bool:
    return i.mnemonic.startswith("nop") or (i.mnemonic in {"cs", "data16", "xchg"} and len(i.operands) != 2)


class Walk:
    """Follows the code: conditional jumps are not taken; other jumps are, also through slots of the dynamic linker."""

    def __init__(self, code: dict[int, Instruction], symbols: dict[str, int], slots: dict[int, str]) -> None:
        self._code, self._symbols, self._slots = code, symbols, slots
        addresses = sorted(code)
        self._following = dict(pairwise(addresses))
        self._pages: dict[str, int] = {}  # page addresses in registers, from adrp
        self._loaded: dict[str, int] = {}  # slots from which registers were loaded

    def _remember(self, i: Instruction) -> None:
        """Track registers on aarch64 that are loaded from slots."""
        if i.mnemonic == "adrp":
            self._pages[i.operands[0]] = int(i.operands[1], 16)
        match = re.fullmatch(r"\[(x\d+), #(\d+)\]", i.operands[1]) if i.mnemonic == "ldr" else None
        if match and match[1] in self._pages:
            self._loaded[i.operands[0]] = self._pages[match[1]] + int(match[2])

    def _through_slot(self, at: int, slot: int) -> int:
        symbol = self._slots.get(slot, "")
        if symbol not in self._symbols:
            raise CountError(f"the straight path leaves the object at {at:x}; mark the expected branch in the source")
        return self._symbols[symbol]

    def _next(self, at: int, i: Instruction) -> int:
        if i.mnemonic.startswith("call") or i.mnemonic in {"bl", "blr"}:
            raise CountError(f"the straight path calls a function at {at:x}; mark the expected branch in the source")
        if i.mnemonic == "br":
            return self._through_slot(at, self._loaded.get(i.operands[0], 0))
        if i.mnemonic in {"jmp", "b"}:
            direct = re.fullmatch(r"(0x)?[0-9a-f]+", i.operands[0])
            return int(i.operands[0], 16) if direct else self._through_slot(at, i.remark)
        return self._following[at]

    def from_start(self, start: int) -> list[Instruction]:
        """The instructions from an address to the return. Raises CountError if the path calls a function or does not end."""
        at = start
        path: list[Instruction] = []
        while len(path) < _LONGEST:
            i = self._code[at]
            if not _is_nop(i):
                path.append(i)
            if i.mnemonic.startswith("ret"):
                return path
            self._remember(i)
            at = self._next(at, i)
        raise CountError(f"no return after {_LONGEST} instructions; mark the expected branch in the source")


def straight(path: Path, objdump: str, names: Sequence[str]) -> dict[str, list[Instruction]]:
    """The instructions on the straight path of some of FUNCTIONS. Raises CountError."""
    symbols = _symbols(path, objdump)
    walk = Walk(_instructions(path, objdump), symbols, _slots(path, objdump))
    found = {}
    for name in names:
        symbol = FUNCTIONS[name]
        if symbol not in symbols:
            raise CountError(f"{path}: the function {symbol} is missing; name libsheaf-preload.so")
        try:
            found[name] = walk.from_start(symbols[symbol])
        except CountError as error:
            raise CountError(f"{path}: {name}: {error}") from None
    return found


def count(path: Path, objdump: str) -> dict[str, Counts]:
    """The counts of all FUNCTIONS. Raises CountError."""
    memory = x86_memory if machine_of(path) == "x86_64" else arm_memory
    found = {}
    for name, instructions in straight(path, objdump, tuple(FUNCTIONS)).items():
        kinds = [memory(i) for i in instructions]
        found[name] = Counts(len(kinds), sum(loads for loads, _ in kinds), sum(stores for _, stores in kinds))
    return found
