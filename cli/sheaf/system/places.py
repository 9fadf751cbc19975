"""Functions, files and lines of addresses in ELF files, from llvm-symbolizer or else from addr2line.

llvm-symbolizer is preferred: it demangles C++ and Rust names, does not attribute an address to a function that ends before
it, and answers for many files from one process. Both tools find separate debug files by build id and .gnu_debuglink.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PATIENCE = 120.0  # seconds without an answer after which a file counts as unreadable
_BATCH = 16_384  # bytes of questions at once; less than a pipe holds, so that writing them never waits for the tool
_ADDRESS = re.compile(r"0x[0-9a-f]+$")
LLVM = ("llvm-symbolizer", *(f"llvm-symbolizer-{version}" for version in range(22, 12, -1)))  # 13 was the first to have JSON


_RUST = re.compile(r"(.*)::h[0-9a-f]{16}")  # a name of Rust's legacy scheme, which llvm-symbolizer treats like C++
_RUST_ESCAPE = re.compile(r"\$([A-Z]{1,2}|u[0-9a-f]{1,6})\$|(\.\.)")
_RUST_CHARACTERS = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


def _unescaped(match: re.Match[str]) -> str:
    if match[2]:
        return "::"
    number = int(match[1][1:], 16) if match[1][0] == "u" else 0
    return _RUST_CHARACTERS.get(match[1]) or (chr(number) if 0 < number <= 0x10FFFF else match[0])


def _name(function: str) -> str:
    """The name as Rust programmers know it, if it is one of Rust's legacy scheme: without escapes and the hash."""
    found = _RUST.fullmatch(function)
    if not found:
        return function
    parts = (part[1:] if part.startswith("_$") else part for part in found[1].split("::"))
    return "::".join(_RUST_ESCAPE.sub(_unescaped, part) for part in parts)


@dataclass(frozen=True)
class Place:
    """A function and the line in it. Unknown texts are empty, an unknown line is 0. `file` may be known without a function."""

    function: str
    file: str
    line: int


class _Failed(Exception):
    """The tool ended or did not answer in time."""


class _Tool:
    """A tool that reads questions from its standard input and answers each with some lines."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._rest = b""

    def ask(self, questions: bytes) -> None:
        """Send questions of at most _BATCH bytes. All earlier answers must have been read."""
        assert self._process.stdin
        try:
            self._process.stdin.write(questions)
            self._process.stdin.flush()
        except OSError as error:
            raise _Failed from error

    def line(self) -> str:
        """The next line of an answer."""
        assert self._process.stdout
        deadline = time.monotonic() + _PATIENCE
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            raw = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not raw:
                raise _Failed
            self._rest += raw
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")

    def close(self) -> None:
        """End the tool."""
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        self._process.kill()
        self._process.wait()


def _batches(questions: Sequence[bytes]) -> list[list[bytes]]:
    batches: list[list[bytes]] = []
    room = 0
    for question in questions:
        if len(question) > room:
            batches.append([])
            room = _BATCH
        batches[-1].append(question)
        room -= len(question)
    return batches


class _Llvm:
    """One llvm-symbolizer for all files."""

    def __init__(self, tool: str) -> None:
        self._command = (tool, "--output-style=JSON", "--inlines", "--demangle")
        self._process: _Tool | None = None

    def look_up(self, file: str, addresses: Sequence[int]) -> list[tuple[Place, ...]]:
        if '"' in file or "\n" in file:  # cannot be written in a question
            return [()] * len(addresses)
        questions = [os.fsencode(f'CODE "{file}" {address:#x}\n') for address in addresses]
        self._process = self._process or _Tool(self._command)
        answers = []
        for batch in _batches(questions):
            self._process.ask(b"".join(batch))
            answers += [self._answer(self._process.line()) for _ in batch]
        return answers

    def _answer(self, line: str) -> tuple[Place, ...]:
        try:
            symbols: list[dict[str, Any]] = json.loads(line).get("Symbol", [])
        except (ValueError, AttributeError) as error:
            raise _Failed from error
        places = [Place(_name(one.get("FunctionName") or ""), one.get("FileName") or "", one.get("Line") or 0) for one in symbols]
        return tuple(places) if any(place.function or place.file for place in places) else ()

    def close(self) -> None:
        if self._process:
            self._process.close()
        self._process = None


class _Addr2line:
    """An addr2line for each file."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._processes: dict[str, _Tool] = {}

    def look_up(self, file: str, addresses: Sequence[int]) -> list[tuple[Place, ...]]:
        if file not in self._processes:
            self._processes[file] = _Tool((self._tool, "-a", "-f", "-i", "-C", "-e", file))
        process, answers = self._processes[file], []
        for batch in _batches([f"{address:#x}\n".encode() for address in addresses]):
            # The answer to a question ends where that to the next begins, so one more question follows the batch.
            process.ask(b"".join([*batch, b"0\n"]))
            process.line()
            for _ in batch:
                answers.append(self._answer(process))
            process.line(), process.line()
        return answers

    def _answer(self, process: _Tool) -> tuple[Place, ...]:
        """Read up to the address that the next answer begins with."""
        places = []
        while not _ADDRESS.match(function := process.line()):
            file, _, line = process.line().split(" (discriminator")[0].rpartition(":")
            number = int(line) if line.isdecimal() else 0
            known = number and not file.startswith("??")
            places.append(Place("" if function == "??" else function, file if known else "", number))
        return tuple(places) if any(place.function or place.file for place in places) else ()

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()


def tool() -> str | None:
    """The path of the tool that will be used; None if none is installed."""
    return next((found for name in (*LLVM, "addr2line") if (found := shutil.which(name))), None)


class Places:
    """
    Looks up addresses and remembers the answers. `tool` is the path of llvm-symbolizer or addr2line, or None if neither is
    installed; then nothing is known. Close it after use.
    """

    def __init__(self) -> None:
        self.tool = tool()
        self.failed: set[str] = set()  # files on which the tool crashed or did not answer
        self._known: dict[tuple[str, int], tuple[Place, ...]] = {}
        self._backend: _Llvm | _Addr2line | None = None
        if self.tool:
            self._backend = _Llvm(self.tool) if "llvm" in os.path.basename(self.tool) else _Addr2line(self.tool)

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes of the tool. Answers stay known."""
        if self._backend:
            self._backend.close()

    def look_up(self, file: str, addresses: Sequence[int]) -> list[tuple[Place, ...]]:
        """
        For each address in the file, the inlined functions around it, the innermost first, and last the function that was
        compiled. A tuple is empty where nothing is known.
        """
        missing = sorted({address for address in addresses if (file, address) not in self._known})
        if missing and self._backend and file not in self.failed:
            try:
                answers = self._backend.look_up(file, missing)
                self._known.update(zip(((file, address) for address in missing), answers, strict=True))
            except (_Failed, OSError):
                self.failed.add(file)
                self._backend.close()
        return [self._known.get((file, address), ()) for address in addresses]
