"""Functions, files and lines of the return addresses in a profile."""

from __future__ import annotations

import bisect
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sheaf.commands.profile import jit
from sheaf.commands.profile.area import Module, Name, Snapshot, named
from sheaf.commands.profile.views import Row
from sheaf.errors import printable
from sheaf.system import elf
from sheaf.system.places import Place, Places

UNKNOWN = "(unknown stack)"
_CPYTHON = re.compile(r"(?:lib)?python3\.(\d+)\b[^/]*$")
_RUBY = re.compile(r"(?:^|/)(?:lib)?ruby[^/]*$")
# Functions of CPython, Ruby and V8 by which they call others, those of the program and those in C, and by which they start.
_CALLS = re.compile(
    r"_?PyEval_|_?PyFunction_|_?PyObject_(?:Call|FastCall|MakeTpCall|Vectorcall)|_?PyVectorcall_|_?PyCFunction_|\w*vectorcall|"
    r"cfunction_|object_vacall|do_call_core|call_function|slot_tp_|type_call|gen_send_ex|gen_iternext|method_call|"
    r"pymain_|Py_(?:RunMain|BytesMain)|run_mod|run_eval_code_obj|pyrun_|_?PyRun_|builtin_(?:exec|eval)|thread_run|pythread_wrapper|"
    r"vm_|rb_vm_|rb_yield|rb_funcall|rb_check_funcall|rb_call|rb_block_call|rb_iterate|rb_iseq_eval|rb_ec_exec|rb_ensure|rb_protect|"
    r"rb_rescue|rb_catch|rb_class_new_instance|rb_obj_call_init|rb_method_call|rb_proc_call|invoke_|call_cfunc|"
    r"ruby_(?:run_node|exec_node|cleanup)|rb_fiber_start|cont_|fiber_|thread_(?:do_start|start_func)|"
    r"Builtins_(?:InterpreterEntryTrampoline|InterpreterPushArgs|JSEntry|CEntry|Call|JS\w*Construct|\w*Handler$|Construct)|"
    r"construct_stub_|v8::internal::(?:\(anonymous namespace\)::(?:Invoke|HandleApiCallHelper)|Execution::|Builtin_HandleApiCall|"
    r"FunctionCallbackArguments::Call)|v8::Function::Call"
)
_LOOP = "_PyEval_EvalFrameDefault"
_RUBY_LOOP = "rb_vm_exec"
_NODE = re.compile(r"(?:^|/)(?:node(?:js)?|libnode\.so[^/]*)$")
_V8_INTERPRETS = "Builtins_InterpreterEntryTrampoline"  # in place of each JavaScript function that is not compiled
_FRAMES = range(11, 14)  # minor versions of CPython whose frames the process reads itself
_TRAMPOLINE = 12  # minor version of the first CPython with -X perf


@dataclass(frozen=True)
class Frame:
    """
    A function in a call stack. `function` is never empty: where no symbol is known, it is module+offset or an address.
    `file` is empty and `line` 0 where they are not known.
    """

    function: str
    file: str
    line: int
    module: str  # path; empty for code that belongs to no file
    inlined: bool  # into the next frame outwards
    known: bool = True  # whether `function` is a name, not an address

    @property
    def place(self) -> str:
        """FILE:LINE, or as much of it as is known."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


def label(module: Module) -> str:
    """The short name of a module."""
    return printable(Path(module.path).name) or "[vdso]"


def _plain(name: str) -> Frame:
    return Frame(name, "", 0, "", False)


def _reason(module: Module, path: Path) -> str:
    """Why the symbols of a file are not those of a module; empty if they are."""
    try:
        found = elf.build_id(path)
    except (OSError, elf.Damaged):
        return f"{printable(module.path)} cannot be read"
    if module.build_id and found != module.build_id:
        return f"{printable(module.path)} has another build id: it was replaced since the process loaded it"
    return ""


class Symbolizer:
    """
    Finds functions, files and lines of return addresses in the modules of a process, and remembers them. `pid` is 0 if the
    process is not known, and `here` is its number as this command sees it. `began_ns` is when the process started, so that
    the map of JIT code of an earlier process of that number is not used. `names` are the functions of an interpreted program.
    Close it after use, or use it as a context manager.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        pid: int = 0,
        alive: bool = False,
        began_ns: int = 0,
        here: int | None = None,
        names: Mapping[int, Name] | None = None,
    ) -> None:
        self.pid, self._alive, self._began_ns, self._here = pid, alive, began_ns, here
        self._names = names or {}
        self._places = Places()
        self._files: dict[Module, Path | None] = {}
        self._frames: dict[int, tuple[Frame, ...]] = {}
        self._why: dict[Module, str] = {}
        self._jit = jit.Map(())
        self.modules: list[Module] = []
        self._starts: list[int] = []
        self.update(modules)

    def __enter__(self) -> Symbolizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the tools that look up addresses."""
        self._places.close()

    def update(self, modules: Sequence[Module]) -> None:
        """
        Continue with the modules of a later snapshot. Addresses that had no name, and those where another module lies now,
        are looked up again.
        """
        before = {pc: self.module(pc) for pc in self._frames}
        self.modules = sorted(modules, key=lambda module: module.start)
        self._starts = [module.start for module in self.modules]
        self._frames = {
            pc: frames
            for pc, frames in self._frames.items()
            if all(frame.known for frame in frames) and self.module(pc) == before[pc] is not None
        }
        if self.pid:
            self._jit = jit.read(self.pid, self._alive, self._began_ns, self._here)

    @property
    def notes(self) -> list[str]:
        """Sentences about names that are missing in what was looked up so far."""
        notes = [f"No symbols of {label(module)}: {why}." for module, why in self._why.items()]
        if not self._places.tool and any(self._files.values()):
            notes.append("No symbols: install llvm (for llvm-symbolizer) or binutils (for addr2line).")
        for name in sorted(self._places.failed):
            notes.append(f"No symbols of {printable(name)}: {self._places.tool} failed to read it.")
        return notes + [self._jit.note] * bool(self._jit.note) + self._interpreters()

    def _interpreters(self) -> list[str]:
        """How to see the functions of an interpreted program where they are missing."""
        if self._names or (self._jit and not self._looked_up(_V8_INTERPRETS)):
            return []
        for module in self._files:
            found = _CPYTHON.search(module.path)
            if found and (missing := self._python(int(found[1]))):
                return [f"Python functions are not shown: {missing}."]
            if _RUBY.search(module.path) and self._looked_up(_RUBY_LOOP):
                return ["Ruby functions are not shown: that needs Ruby 3.1 to 3.4, and process_vm_readv() must be allowed."]
            if _NODE.search(module.path):
                which = "JavaScript functions that V8 interprets" if self._jit else "JavaScript functions"
                return [f"{which} are not shown: run node with --perf-basic-prof --interpreted-frames-native-stack."]
        return []

    def _looked_up(self, function: str) -> bool:
        """Whether a function is among those that were looked up so far."""
        return any(frame.function == function for frames in self._frames.values() for frame in frames)

    def _python(self, minor: int) -> str:
        """What to do about functions of a Python program that are not shown; empty if none are missing."""
        if minor < _FRAMES[0]:
            return f"CPython 3.{minor} cannot name them; use 3.{_FRAMES[0]} or later"
        if minor in _FRAMES and not self._looked_up(_LOOP):
            return ""
        if minor < _TRAMPOLINE:
            return "the process could not read its own frames; allow it process_vm_readv()"
        return "run the program with PYTHONPERFSUPPORT=1 (or python -X perf)"

    def module(self, pc: int) -> Module | None:
        """The module that contains a return address."""
        at = bisect.bisect_right(self._starts, pc - 1) - 1
        return self.modules[at] if at >= 0 and pc - 1 < self.modules[at].end else None

    def _file(self, module: Module) -> Path | None:
        """The file that a module was mapped from; None if there is none, or if it was replaced."""
        if module not in self._files:
            paths = [Path(module.path)] if module.path.startswith("/") else []
            if self._alive and paths:  # in a container, or not visible under its path any more
                paths += [Path(f"/proc/{self._here or self.pid}/{name}") for name in (f"root{module.path}", "exe")]
            reasons = [_reason(module, path) for path in paths]
            self._files[module] = next((path for path, why in zip(paths, reasons, strict=True) if not why), None)
            if self._files[module] is None and paths:
                # An executable is accepted only if its build id says that it is the module.
                self._why[module] = next((why for why in reasons if "build id" in why), reasons[0])
        return self._files[module]

    def prepare(self, pcs: Iterable[int]) -> None:
        """Look up all these return addresses at once, which is much faster than one by one."""
        wanted: defaultdict[Module | None, list[int]] = defaultdict(list)
        for pc in {pc for pc in pcs if pc not in self._frames}:
            if name := named(pc):
                self._frames[pc] = (self._interpreted(*name),)
                continue
            wanted[self.module(pc)].append(pc)
        for module, addresses in wanted.items():
            file = self._file(module) if module else None
            if module is None or file is None:
                self._frames.update({pc: (self._unknown(pc, module),) for pc in addresses})
                continue
            # A return address follows the call. One byte less lies in the call instruction.
            answers = self._places.look_up(str(file), [pc - 1 - module.bias for pc in addresses])
            for pc, places in zip(addresses, answers, strict=True):
                self._frames[pc] = self._named(pc, module, places)

    def _interpreted(self, at: int, line: int) -> Frame:
        """The function of an interpreted program that has its name there."""
        name = self._names.get(at)
        if name is None or not name.function:
            return Frame("(function without a name)", "", 0, "", False)
        return Frame(printable(name.function), printable(name.file), line, "", False)

    def _unknown(self, pc: int, module: Module | None) -> Frame:
        found = self._jit.find(pc - 1)
        if found:
            return Frame(found.function, found.file, found.line, "", False)
        if module is None:
            return Frame(f"{pc:#x}", "", 0, "", False, known=False)
        return Frame(f"{label(module)}+{pc - module.bias:#x}", "", 0, module.path, False, known=False)

    def _named(self, pc: int, module: Module, places: tuple[Place, ...]) -> tuple[Frame, ...]:
        if not places:
            return (self._unknown(pc, module),)
        frames = []
        for i, place in enumerate(places):
            name = printable(place.function) or self._unknown(pc, module).function
            frames.append(Frame(name, printable(place.file), place.line, module.path, i + 1 < len(places), bool(place.function)))
        return tuple(frames)

    def frames(self, pc: int) -> tuple[Frame, ...]:
        """The frames of a return address: inlined functions, the innermost first, and last the one that was compiled."""
        if pc not in self._frames:
            self.prepare([pc])
        return self._frames[pc]

    def stack(self, row: Row) -> list[Frame]:
        """The frames of a row, the outermost first. Labels become frames around the stack."""
        return [*map(_plain, row.labels), *self.calls(row)]

    def calls(self, row: Row) -> list[Frame]:
        """The frames of a row without its labels, the outermost first."""
        if not row.pcs and len(row.labels) < 2:  # with two labels, the row has no stack at all
            return [_plain(row.name or UNKNOWN)]
        return [frame for pc in reversed(self.shown(row.pcs)) for frame in reversed(self.frames(pc))]

    def _only_calls(self, pc: int) -> bool:
        """Whether this is an interpreter's function that only calls, one without a name, or a trampoline."""
        if named(pc):
            return False
        if all(not frame.module and frame.file and not frame.line for frame in self.frames(pc)):
            return True  # the function of the program again, from a map of JIT code
        return all(
            _CALLS.match(frame.function)
            if frame.known
            else not frame.module or _CPYTHON.search(frame.module) or _RUBY.search(frame.module)
            for frame in self.frames(pc)
        )

    def shown(self, pcs: Sequence[int]) -> list[int]:
        """The return addresses without those of an interpreter that only calls the functions that stand beside them."""
        if not any(map(named, pcs)):
            return list(pcs)
        self.prepare(pcs)
        groups = [(calls, list(group)) for calls, group in itertools.groupby(pcs, self._only_calls)]
        kept: list[int] = []
        for i, (calls, group) in enumerate(groups):
            beside = [*groups[i - 1][1][-1:] * (i > 0), *(groups[i + 1][1][:1] if i + 1 < len(groups) else [])]
            kept += [] if calls and any(map(named, beside)) else group
        return kept


def symbolizer(snapshot: Snapshot) -> Symbolizer:
    """A symbolizer for the process of a snapshot."""
    return Symbolizer(snapshot.modules, snapshot.pid, snapshot.alive, snapshot.began_ns, snapshot.here, snapshot.names)


_OPERATORS = ("<<=", "<<", ">>=", ">>", "<=>", "<=", "<", ">=", ">", "->*", "->", "()")
_HIDDEN = {name: f"\ue000{i}\ue001" for i, name in enumerate(_OPERATORS)}  # characters of no meaning stand for operators
_OPERATOR = re.compile("operator(" + "|".join(map(re.escape, _OPERATORS)) + ") ?")
_GENERIC = re.compile(r"(?<=[\w\]}\ue001])<[^<>]*>|::<[^<>]*>|\([^()]*\)(?: const)?")

_CLONE = re.compile(r"( \[clone \S+\]| \(\.[\w.]+\))+$")  # of a copy that the compiler made
_RETURN_TYPE = re.compile(r"^[^<]* (?=(?:\S+::)?operator\b)|^(?!.*operator\b)[^<]* ")


def shortened(function: str) -> str:
    """
    A C++ or Rust name without template arguments, parameters, return type and clone suffixes, as far as its brackets match.
    """
    text, before = _CLONE.sub("", function).replace("(anonymous namespace)", "{anonymous}"), ""
    text = _OPERATOR.sub(lambda match: f"operator{_HIDDEN[match[1]]}", text)
    while text != before:
        before, text = text, _GENERIC.sub("", text)
    if "(" in function and " thunk " not in text:  # only functions with parameters have a return type
        text = _RETURN_TYPE.sub("", text)
    for shown, hidden in _HIDDEN.items():
        text = text.replace(hidden, shown)
    return text.strip() or function


_LIBRARY = re.compile(r"(?:std|__gnu_cxx|alloc|core|hashbrown)::|<\W*(?:std|alloc|core|hashbrown)::|operator new\b")


def is_library(function: str) -> bool:
    """Whether a function, by its shortened name, is one of the standard libraries of C++ or Rust."""
    return _LIBRARY.match(function) is not None
