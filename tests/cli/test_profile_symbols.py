"""Names of addresses: C, C++ and Rust, stripped files, separate debug files, replaced files, JIT maps, both tools."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sheaf.commands.profile import jit
from sheaf.commands.profile.area import Module
from sheaf.commands.profile.symbols import Frame, Symbolizer, is_library, shortened
from sheaf.commands.profile.views import Row
from sheaf.system import elf, places
from sheaf.system.places import Places

os.environ.pop("DEBUGINFOD_URLS", None)  # llvm-symbolizer would use the network
BIAS = 0x7F0000000000
CPP = """\
#include <cstdlib>
#include <vector>
namespace shop {
template <typename T> struct Box { static inline __attribute__((always_inline)) T *make(std::size_t n) {
    return static_cast<T *>(std::malloc(n * sizeof(T))); } };
template <typename T> __attribute__((noinline)) T *store(std::vector<T> &v) { T *p = Box<T>::make(3); v[0] = *p; return p; }
}
int main() { std::vector<double> v(3); return shop::store(v) == nullptr; }
"""
C = """\
#include <stdlib.h>
__attribute__((noinline, visibility("default"))) void *give(int n) { char *p = malloc(n); p[0] = 1; return p; }
static __attribute__((noinline)) void *hidden(int n) { char *p = malloc(n + 1); p[0] = 1; return p; }
__attribute__((visibility("default"))) int both(int n) { return give(n) == hidden(n); }
"""
RUST = """\
mod inner {
    pub struct Holder<T>(pub Vec<T>);
    impl<T: Clone> Holder<T> {
        #[inline(never)]
        pub fn fill(value: T, n: usize) -> Self { Holder(vec![value; n]) }
    }
}
fn main() { println!("{}", inner::Holder::fill(std::env::args().count() as u64, 1000).0.len()); }
"""
LLVM = next(filter(None, map(shutil.which, places.LLVM)), None)
BINUTILS = shutil.which("addr2line")
needs_llvm = pytest.mark.skipif(LLVM is None, reason="there is no llvm-symbolizer")


def compile(directory: Path, name: str, source: str, *command: str) -> Path:
    (directory / name).write_text(source)
    subprocess.run([*command, "-o", "made", name], cwd=directory, check=True)
    return directory / "made"


@pytest.fixture(scope="module")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile(tmp_path_factory.mktemp("cpp"), "shop.cpp", CPP, "c++", "-g", "-O2", "-Wl,--build-id")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return compile(
        tmp_path,
        "give.c",
        C,
        "cc",
        "-g",
        "-O2",
        "-fPIC",
        "-shared",
        "-fno-builtin",
        "-fvisibility=hidden",
        "-fno-optimize-sibling-calls",
        "-Wl,--build-id",
    )


def calls(file: Path, function: str, target: str) -> list[int]:
    """The addresses behind calls of `target` in a function; both are regular expressions."""
    command = ["objdump", "-dC", "--no-show-raw-insn", str(file)]
    parts = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n\n")
    body = next(part for part in parts if re.match(rf"\w+ <[^@\n]*{function}[^@\n]*>:", part.strip()))
    lines = re.findall(r"^\s*([0-9a-f]+):\s+(.*)$", body, re.M)
    call = re.compile(rf"\b(call|bl)\S*\s.*{target}")
    return [int(after[0], 16) for (_, code), after in itertools.pairwise(lines) if call.search(code)]


def module(file: Path, build_id: bytes | None = None) -> Module:
    return Module(BIAS, BIAS + (1 << 30), BIAS, elf.build_id(file) if build_id is None else build_id, str(file))


def frames(one: Module, address: int) -> tuple[tuple[Frame, ...], list[str]]:
    with Symbolizer([one]) as symbolizer:
        return symbolizer.frames(BIAS + address), symbolizer.notes


@pytest.fixture(params=["llvm", "binutils"])
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both tools, one after the other."""
    path = LLVM if request.param == "llvm" else BINUTILS
    if path is None:
        pytest.skip(f"{request.param} is missing")
    monkeypatch.setattr(places, "tool", lambda: path)
    return str(request.param)


@pytest.mark.usefixtures("tool")
def test_templates_and_inlined_functions(cpp: Path) -> None:
    found, notes = frames(module(cpp), calls(cpp, "shop::store", "malloc")[0])
    assert [frame.function for frame in found] == [
        "shop::Box<double>::make(unsigned long)",
        "double* shop::store<double>(std::vector<double, std::allocator<double> >&)",
    ]
    assert [(frame.line, frame.inlined) for frame in found] == [(5, True), (6, False)]
    assert {Path(frame.file).name for frame in found} == {"shop.cpp"}
    assert notes == []


@pytest.mark.usefixtures("tool")
@pytest.mark.skipif(not shutil.which("rustc"), reason="there is no rustc")
@pytest.mark.parametrize("scheme", ["v0", "default"])
def test_rust(tmp_path: Path, scheme: str) -> None:
    more = ["-C", "symbol-mangling-version=v0"] if scheme == "v0" else []
    made = compile(tmp_path, "fill.rs", RUST, "rustc", "-g", "-O", *more)
    found = {frame.function for address in calls(made, "Holder.*fill", "") for frame in frames(module(made), address)[0]}
    assert any("inner::Holder" in name and name.endswith("fill") for name in found), found
    assert not any(name.startswith("_R") or "$" in name or re.search("h[0-9a-f]{16}$", name) for name in found)


@pytest.mark.usefixtures("tool")
def test_a_stripped_library_has_its_dynamic_symbols(library: Path) -> None:
    exported, hidden = calls(library, "give", "malloc")[0], calls(library, "hidden", "malloc")[0]
    subprocess.run(["strip", str(library)], check=True)
    found, _ = frames(module(library), exported)
    assert (found[0].function, found[0].file, found[0].known) == ("give", "", True)
    if LLVM and places.tool() == LLVM:  # addr2line names the symbol before it
        found, _ = frames(module(library), hidden)
        assert (found[0].function, found[0].known) == (f"made+{hidden:#x}", False)


@pytest.mark.usefixtures("tool")
@pytest.mark.parametrize("way", ["link", "build id"])
def test_a_separate_debug_file(library: Path, way: str) -> None:
    address = calls(library, "hidden", "malloc")[0]
    debug = library.with_suffix(".debug")
    subprocess.run(["objcopy", "--only-keep-debug", str(library), str(debug)], check=True)
    subprocess.run(["strip", str(library)], check=True)
    moved: Path | None = None
    if way == "link":
        subprocess.run(["objcopy", f"--add-gnu-debuglink={debug}", str(library)], check=True, cwd=library.parent)
    else:
        digits = elf.build_id(library).hex()
        moved = Path("/usr/lib/debug/.build-id", digits[:2], f"{digits[2:]}.debug")
        try:
            moved.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(debug, moved)
        except OSError:
            pytest.skip("/usr/lib/debug cannot be written")
    try:
        found, _ = frames(module(library), address)
    finally:
        if moved:
            moved.unlink()
    assert (found[0].function, Path(found[0].file).name, found[0].line) == ("hidden", "give.c", 3)


def test_a_replaced_file_is_not_used(library: Path) -> None:
    address = calls(library, "give", "malloc")[0]
    found, notes = frames(module(library, b"\7" * 20), address)
    assert found == (Frame(f"made+{address:#x}", "", 0, str(library), False, known=False),)
    assert notes == [f"No symbols of made: {library} has another build id: it was replaced since the process loaded it."]


def test_a_missing_file(tmp_path: Path) -> None:
    found, notes = frames(Module(BIAS, BIAS + 100, BIAS, b"", f"{tmp_path}/gone.so"), 16)
    assert found[0].function == "gone.so+0x10"
    assert notes == [f"No symbols of gone.so: {tmp_path}/gone.so cannot be read."]


def test_addresses_without_a_file() -> None:
    with Symbolizer([Module(BIAS, BIAS + 100, BIAS, b"", "")]) as symbolizer:
        assert symbolizer.frames(BIAS + 16)[0].function == "[vdso]+0x10"
        assert symbolizer.frames(0x1234)[0].function == "0x1234"
        assert [frame.function for frame in symbolizer.stack(Row((), (), (1.0,), (None,)))] == ["(unknown stack)"]
        assert symbolizer.notes == []


def test_the_return_address_may_be_the_end_of_a_module() -> None:
    with Symbolizer([Module(BIAS, BIAS + 100, BIAS, b"", ""), Module(BIAS + 100, BIAS + 200, BIAS, b"", "/x")]) as symbolizer:
        found = symbolizer.module(BIAS + 100)
        assert found is not None
        assert found.path == ""


def test_a_module_that_takes_the_place_of_another(library: Path, tmp_path: Path) -> None:
    address = calls(library, "give", "malloc")[0]
    with Symbolizer([module(library)]) as symbolizer:
        assert symbolizer.frames(BIAS + address)[0].function == "give"
        symbolizer.update([Module(BIAS, BIAS + (1 << 30), BIAS, b"", f"{tmp_path}/other.so")])
        assert symbolizer.frames(BIAS + address)[0].function == f"other.so+{address:#x}"
        symbolizer.update([module(library)])
        assert symbolizer.frames(BIAS + address)[0].function == "give"


def test_no_tool(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "tool", lambda: None)
    found, notes = frames(module(library), calls(library, "give", "malloc")[0])
    assert not found[0].known
    assert notes == ["No symbols: install llvm (for llvm-symbolizer) or binutils (for addr2line)."]


@pytest.mark.parametrize("script", ["exit 1", "while read x; do echo nonsense; done", "kill -9 $$"])
def test_a_tool_that_fails(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    broken = tmp_path / "llvm-symbolizer"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setattr(places, "tool", lambda: str(broken))
    found, notes = frames(module(library), calls(library, "give", "malloc")[0])
    assert not found[0].known
    assert notes == [f"No symbols of {library}: {broken} failed to read it."]


@pytest.mark.usefixtures("tool")
def test_many_addresses_do_not_block(library: Path) -> None:
    with Places() as found:
        answers = found.look_up(str(library), range(0x1000, 0x1000 + 5000))
    assert len(answers) == 5000
    assert any(answer and answer[0].function == "give" for answer in answers)


@needs_llvm
def test_a_path_with_a_space(library: Path, tmp_path: Path) -> None:
    moved = shutil.copy(library, tmp_path / "a b'c.so")
    assert frames(module(Path(moved)), calls(library, "give", "malloc")[0])[0][0].function == "give"


# ---- JIT maps ----


def test_jit_maps() -> None:
    pid = os.getpid()
    path = Path(f"/tmp/perf-{pid}.map")
    path.write_bytes(
        b"7000 10 py::work:/srv/app.py\n7010 20 JS:*render file:///srv/ui.js:12:5\n7030 8 stub\nnonsense\n"
        b"7030 8 late\n7040 8 LazyCompile:~ /srv/x.js:3\n"
    )
    try:
        with Symbolizer([], pid, True) as symbolizer:
            found = [symbolizer.frames(pc + 1)[0] for pc in (0x7000, 0x700F, 0x7010, 0x7030, 0x7038, 0x7040)]
            assert symbolizer.notes == [f"/proc/{pid}/root{path}: lines that cannot be read: 1."]
        assert not jit.read(pid, True, path.stat().st_mtime_ns + 2 * 10**9)  # of an earlier process
        moved = path.rename(f"{path}.moved")
        path.symlink_to(moved)
        refused = jit.read(pid, True)
        assert not refused
        assert refused.note == f"/proc/{pid}/root{path} is not used: it is a symbolic link."
    finally:
        path.unlink()
        Path(f"{path}.moved").unlink(missing_ok=True)
    assert [(frame.function, frame.file, frame.line) for frame in found] == [
        ("work", "/srv/app.py", 0),
        ("work", "/srv/app.py", 0),
        ("render", "/srv/ui.js", 12),
        ("late", "", 0),
        ("0x7039", "", 0),
        ("(anonymous)", "/srv/x.js", 3),
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_a_map_of_another_user(tmp_path: Path) -> None:
    path = tmp_path / "perf-1.map"
    path.write_bytes(b"7000 10 stub\n")
    os.chown(path, 12345, -1)
    refused = jit._read(path, 0, 0)
    assert not refused
    assert refused.note == f"{path} is not used: it belongs to user 12345, not to the user of the process."
    assert jit._read(path, 12345, 0)


@pytest.mark.parametrize("line", [b"00007F2A00001000 1F stub", b"0x7f2a00001000 0x1f stub"])
def test_addresses_in_maps(line: bytes) -> None:
    found = jit.Map([line]).find(0x7F2A00001010)
    assert found
    assert found.function == "stub"


@pytest.mark.parametrize(
    "name, advice",
    [
        ("python3.14", "run the program with PYTHONPERFSUPPORT=1"),
        ("libpython3.10.so.1.0", "CPython 3.10 cannot name them"),
        ("node", "node with --perf-basic-prof"),
        ("libnode.so.108", "node with --perf-basic-prof"),
    ],
)
def test_interpreters(library: Path, tmp_path: Path, name: str, advice: str) -> None:
    file = Path(shutil.copy(library, tmp_path / name))
    _, notes = frames(module(file), calls(library, "give", "malloc")[0])
    assert len(notes) == 1
    assert advice in notes[0]


@pytest.mark.parametrize(
    "name, short",
    [
        (
            "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(It<int*, V<int> >, int const&)",
            "std::vector::_M_realloc_insert",
        ),
        ("std::map<S<char>, int>::operator[](S<char>&&)", "std::map::operator[]"),
        ("bool std::operator< <char>(a<b> const&, c)", "std::operator<"),
        ("std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)", "std::operator<<"),
        ("(anonymous namespace)::f(int) [clone .cold]", "{anonymous}::f"),
        ("v8::Snapshot::Initialize(v8::Isolate*) (.part.0)", "v8::Snapshot::Initialize"),
        ("A::operator()(int) const", "A::operator()"),
        ("operator new(unsigned long)", "operator new"),
        ("<r::inner::Holder<u64>>::fill", "<r::inner::Holder>::fill"),
        ("alloc::vec::from_elem::<u64>", "alloc::vec::from_elem"),
        ("double* shop::store<double>(std::vector<double> const&)", "shop::store"),
        ("non-virtual thunk to A::f(int)", "non-virtual thunk to A::f"),
        ("A::operator bool() const", "A::operator bool"),
        ("main", "main"),
        ("((((", "(((("),
        ("f<", "f<"),
        ("(x)", "(x)"),
    ],
)
def test_shortened_names(name: str, short: str) -> None:
    assert shortened(name) == short


@pytest.mark.parametrize(
    "name, library",
    [
        ("std::vector::push_back", True),
        ("__gnu_cxx::new_allocator::allocate", True),
        ("operator new", True),
        ("<alloc::alloc::Global as core::alloc::Allocator>::allocate", True),
        ("alloc::vec::from_elem", True),
        ("<u64 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", False),
        ("stdio_open", False),
        ("allocate", False),
        ("shop::std::f", False),
        ("operator newer", False),
    ],
)
def test_functions_of_standard_libraries(name: str, library: bool) -> None:
    assert is_library(name) == library
