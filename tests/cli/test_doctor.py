"""`sheaf doctor` finds what hinders preloading in real files, in the system and in running processes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run, Start, as_nobody
from sheaf.commands.doctor import mode as doctor_mode
from sheaf.commands.doctor import program as doctor_program
from sheaf.commands.doctor import system as doctor_system
from sheaf.commands.doctor.finding import Finding, Process, future, running
from sheaf.commands.doctor.process import examine_process
from sheaf.system import elf

TRUE = Path(shutil.which("true") or "/bin/true")
NOBODY = 65534
EMPTY = "int main(void) { return 0; }"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
Examine = Callable[..., dict[str, Any]]


@pytest.fixture
def examine(sheaf: Run, library: str) -> Examine:
    """A function that runs `sheaf doctor --json ARGS`, checks what every answer has, and returns it with `found` by subject."""

    def run(*args: str, **more: object) -> dict[str, Any]:
        done = sheaf("doctor", "--json", *args, **more)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert done.stderr == ""
        assert answer.keys() == {"schema_version", "target", "ok", "mode", "findings"}
        assert answer["target"].keys() == {"kind", "name", "path", "interpreter", "pid"}
        for one in answer["findings"]:
            assert one.keys() == {"status", "subject", "what", "advice"}
            assert ";" not in one["what"]
            assert bool(one["advice"]) == (one["status"] != "ok")
            assert f"\n| `{one['subject']}` |" in (ROOT / "docs/doctor.md").read_text()
        problems = [one for one in answer["findings"] if one["status"] == "problem"]
        assert answer["ok"] == (not problems) == (done.returncode == 0)
        assert done.returncode in (0, 1)
        answer["found"] = {one["subject"]: one for one in answer["findings"]}
        return answer

    return run


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def compile_c(into: Path, source: str, *flags: str, needed: bool = True) -> Path:
    """Compile a C program; skips the test if that fails, unless it is `needed`."""
    done = subprocess.run(["gcc", "-x", "c", "-", "-o", into, *flags], input=source, text=True, capture_output=True)
    if done.returncode and not needed:
        pytest.skip(f"gcc {' '.join(flags)} does not work here")
    assert done.returncode == 0, done.stderr
    return into


def executable(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o755)
    return path


def problem(answer: dict[str, Any], subject: str) -> str:
    """The text of the problem, which must be the only one; then there is no mode."""
    problems = [one["subject"] for one in answer["findings"] if one["status"] == "problem"]
    assert problems == [subject]
    assert answer["mode"] is None
    return f"{answer['found'][subject]['what']}; {answer['found'][subject]['advice']}"


# ---- programs ----


def test_a_usual_program(examine: Examine) -> None:
    answer = examine("true")
    assert answer["ok"]
    assert answer["target"] == {"kind": "program", "name": "true", "path": str(TRUE), "interpreter": None, "pid": None}
    assert answer["mode"]["source"] == "trial"
    assert answer["mode"]["name"] in (doctor_mode.MM_CID, doctor_mode.CPU_ID, doctor_mode.OWN, doctor_mode.LOCK)
    assert {"program", "linkage", "libc", "malloc", "library", "kernel", "mode"} <= answer["found"].keys()


def test_the_text_has_one_line_for_each_finding(sheaf: Run, library: str) -> None:
    done = sheaf("doctor", "true")
    assert (done.returncode, done.stderr) == (0, "")
    for line in done.stdout.splitlines():
        assert line.startswith(("ok       ", "note     "))
    done = sheaf("doctor", "no\nsuch")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "problem  program: no\\x0asuch: no such program; check the name or PATH"


def test_the_system_alone(examine: Examine) -> None:
    answer = examine()
    assert answer["target"]["kind"] == "system"
    assert "program" not in answer["found"]
    assert "mode" in answer["found"]


def test_missing_files(examine: Examine, tmp_path: Path) -> None:
    assert "no such program" in problem(examine("no-such-program"), "program")
    assert "is a directory" in problem(examine(str(tmp_path)), "program")
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert "not an executable file; check its mode" in problem(examine(str(plain)), "program")


@needs_gcc
def test_a_static_program(examine: Examine, tmp_path: Path) -> None:
    static = compile_c(tmp_path / "static", EMPTY, "-static", needed=False)
    assert "statically linked" in problem(examine(str(static)), "linkage")


@needs_root
def test_a_setuid_program(examine: Examine, public: Path) -> None:
    copy = Path(shutil.copy(TRUE, public / "copy"))
    if os.statvfs(copy).f_flag & os.ST_NOSUID:
        pytest.skip("mounted nosuid")
    os.chown(copy, NOBODY, 0)
    copy.chmod(0o4755)
    assert "it is setuid" in problem(examine(str(copy)), "privileges")
    os.chown(copy, os.geteuid(), 0)
    copy.chmod(0o4755)
    answer = examine(str(copy))
    assert answer["ok"]
    assert answer["found"]["privileges"]["status"] == "note"
    assert "setuid" in answer["found"]["privileges"]["what"]


@needs_root
def test_file_capabilities(public: Path) -> None:
    copy = Path(shutil.copy(TRUE, public / "copy"))
    try:
        os.setxattr(copy, "security.capability", struct.pack("<5I", 2 << 24 | 1, 1 << 10, 0, 0, 0))
    except OSError as error:
        pytest.skip(f"no file capabilities here: {error.strerror}")

    def said() -> str:
        found = doctor_program.find(str(copy))
        assert isinstance(found, doctor_program.Program)
        return next(one.what for one in doctor_program.examine(found, future())[0] if one.subject == "privileges")

    assert as_nobody(said) == "it has file capabilities"
    assert "file capabilities" in said()
    assert "other users" in said()


def test_scripts(examine: Examine, tmp_path: Path) -> None:
    script = executable(tmp_path / "script", f"#!{TRUE} -x\n")
    answer = examine(str(script))
    assert answer["target"]["interpreter"] == str(TRUE)
    assert answer["found"]["script"]["status"] == "ok"
    outer = executable(tmp_path / "outer", f"#!{script}\n")
    assert examine(str(outer))["target"]["interpreter"] == str(TRUE)
    bare = executable(tmp_path / "bare", "true\n")
    assert examine(str(bare))["target"]["interpreter"] == str(Path("/bin/sh").resolve())
    gone = executable(tmp_path / "gone", "#!/no/such/interpreter\n")
    assert "/no/such/interpreter does not exist" in problem(examine(str(gone)), "script")
    lost = executable(tmp_path / "lost", "#!/usr/bin/env no-such-interpreter\n")
    assert "cannot be found" in problem(examine(str(lost)), "script")


def test_other_machines(examine: Examine, tmp_path: Path) -> None:
    head = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, 0, 52, 0, 0, 52, 32, 0, 0, 0, 0)
    assert "32-bit" in problem(examine(str(executable(tmp_path / "i386", head))), "machine")
    raw = bytearray(TRUE.read_bytes())
    raw[18:20] = struct.pack("<H", 43)
    assert "another architecture" in problem(examine(str(executable(tmp_path / "sparc", bytes(raw)))), "machine")


GO_NOTE = r"""
__asm__(".pushsection .note.go.buildid, \"a\", %note\n.balign 4\n.long 4, 4, 4\n.asciz \"Go\\0\"\n.long 7\n.popsection");
int main(void) { return 0; }"""


@needs_gcc
def test_go_programs(examine: Examine, tmp_path: Path) -> None:
    static = compile_c(tmp_path / "static", GO_NOTE, "-static", needed=False)
    assert "Go" in problem(examine(str(static)), "runtime")
    dynamic = examine(str(compile_c(tmp_path / "dynamic", GO_NOTE)))
    assert dynamic["ok"]
    assert dynamic["found"]["runtime"]["status"] == "note"
    assert "Go" in elf.details(tmp_path / "dynamic").notes


@needs_gcc
def test_a_loader_that_does_not_exist(examine: Examine, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", EMPTY, "-Wl,--dynamic-linker=/no/ld.so")
    assert "does not exist" in problem(examine(str(program)), "libc")


@needs_gcc
def test_a_loader_of_another_c_library(examine: Examine, tmp_path: Path) -> None:
    loader = compile_c(tmp_path / "ld.so", "int start;", "-shared", "-nostdlib")
    program = compile_c(tmp_path / "program", EMPTY, f"-Wl,--dynamic-linker={loader}")
    assert "neither glibc's nor musl's" in problem(examine(str(program)), "libc")


@needs_gcc
def test_an_older_glibc(examine: Examine, tmp_path: Path) -> None:
    """A loader and a libc whose only version is an old one."""
    script = tmp_path / "versions"
    script.write_text("GLIBC_2.17 { global: *; };")
    flags = ("-shared", "-nostdlib", f"-Wl,--version-script={script}")
    loader = compile_c(tmp_path / "ld.so", "int start;", *flags)
    program = compile_c(tmp_path / "program", EMPTY, f"-Wl,--dynamic-linker={loader}")
    assert "does not know restartable sequences" in examine(str(program))["found"]["libc"]["what"]
    assert examine(str(program))["mode"]["name"] == doctor_mode.OWN
    compile_c(tmp_path / "libc.so.6", "int other;", *flags)
    assert "glibc 2.17, and Sheaf's object was built for 2." in problem(examine(str(program)), "libc")


@needs_gcc
@pytest.mark.parametrize("kind", ["address", "thread", "leak"])
def test_sanitizers(examine: Examine, tmp_path: Path, kind: str) -> None:
    built = compile_c(tmp_path / kind, EMPTY, f"-fsanitize={kind}", needed=False)
    assert "sanitizer" in problem(examine(str(built)), "sanitizer")


OWN = """
#include <stddef.h>
static char heap[1 << 20]; static size_t used;
void *malloc(size_t n) { used += (n + 15) & ~15ul; return heap + used - ((n + 15) & ~15ul); }
void free(void *p) { (void)p; }
int main(void) { return malloc(1) == NULL; }"""


@needs_gcc
@pytest.mark.parametrize("flags", [(), ("-Wl,--hash-style=sysv",), ("-Wl,--hash-style=gnu",)])
def test_an_own_malloc(examine: Examine, tmp_path: Path, flags: tuple[str, ...]) -> None:
    own = compile_c(tmp_path / "own", OWN, *flags)
    assert "it defines malloc and free itself, so Sheaf steps aside" in problem(examine(str(own)), "malloc")
    some = "#include <stddef.h>\nvoid *realloc(void *p, size_t n) { return n ? p : NULL; }\nint main(void) { return 0; }"
    found = examine(str(compile_c(tmp_path / "some", some, *flags)))["found"]["malloc"]
    assert (found["status"], found["what"][:27]) == ("note", "it defines realloc itself, ")
    call = "#include <stdlib.h>\nint main(void) { return malloc(1) == NULL; }"
    assert examine(str(compile_c(tmp_path / "other", call, *flags)))["found"]["malloc"]["status"] == "ok"


@needs_gcc
@pytest.mark.parametrize("name", ["jemalloc", "tcmalloc_minimal", "mimalloc"])
def test_linked_allocators(examine: Examine, tmp_path: Path, name: str) -> None:
    compile_c(tmp_path / f"lib{name}.so.2", "int some;", "-shared", f"-Wl,-soname,lib{name}.so.2")
    source = "extern int some; int main(void) { return some; }"
    program = compile_c(tmp_path / "program", source, "-x", "none", f"{tmp_path}/lib{name}.so.2")
    found = examine(str(program))["found"]["malloc"]
    assert found["status"] == "note"
    assert f"it links lib{name}.so.2" in found["what"]


@needs_gcc
def test_an_allocator_under_other_names(examine: Examine, tmp_path: Path) -> None:
    source = 'const char *text = "<jemalloc>: out of memory"; int main(void) { return text == 0; }'
    found = examine(str(compile_c(tmp_path / "program", source)))["found"]["malloc"]
    assert (found["status"], "contains jemalloc" in found["what"]) == ("note", True)


PHP = "int zend_parse_parameters(void) { return 0; } " + EMPTY


@needs_gcc
def test_php(examine: Examine, tmp_path: Path, library: str) -> None:
    php = compile_c(tmp_path / "php", PHP, "-rdynamic")
    if "dlopen" in elf.details(Path(library)).defined:
        assert examine(str(php))["found"]["plugins"]["status"] == "ok"
        assert "SHEAF_DEEPBIND" in problem(examine(str(php), env={"SHEAF_DEEPBIND": "1"}), "plugins")
    else:
        assert "RTLD_DEEPBIND" in problem(examine(str(php)), "plugins")


def test_python_and_other_preloaded_objects(examine: Examine) -> None:
    answer = examine("true", env={"LD_PRELOAD": "libm.so.6"})
    assert "preload" not in answer["found"]
    found = doctor_program.others_preloaded({"LD_PRELOAD": "/usr/lib/libm.so.6:/usr/lib/libasan.so.8 libjemalloc.so.2"})
    assert found
    assert "/usr/lib/libasan.so.8, libjemalloc.so.2" in found.what


@pytest.mark.parametrize("raw", [b"\xff\xff", b"\0\0"])
def test_damaged_headers(tmp_path: Path, raw: bytes) -> None:
    for offset in range(24, 64, 2):
        data = bytearray(TRUE.read_bytes())
        data[offset : offset + 2] = raw
        found = doctor_program.find(str(executable(tmp_path / "damaged", bytes(data))))
        assert isinstance(found, Finding) or doctor_program.examine(found, future())[0]


def test_damaged_tables(tmp_path: Path) -> None:
    """Any byte of the dynamic section may be wrong; only Damaged is raised."""
    data = TRUE.read_bytes()
    (count,) = struct.unpack_from("<H", data, 56)
    segments = [struct.unpack_from("<IIQQQQ", data, 64 + 56 * i) for i in range(count)]
    at, size = next((s[2], s[5]) for s in segments if s[0] == 2)
    path = tmp_path / "damaged"
    for i in range(at, at + size, 8):
        for value in (0, 1, 0x1000, (1 << 64) - 1):
            changed = bytearray(data)
            struct.pack_into("<Q", changed, i, value)
            path.write_bytes(changed)
            with contextlib.suppress(elf.Damaged):
                elf.details(path)


# ---- the object ----


def test_a_missing_object(examine: Examine, tmp_path: Path) -> None:
    answer = examine("true", env={"SHEAF_LIBRARY": str(tmp_path / "none")})
    assert "no such file" in problem(answer, "library")


# ---- the system ----


def limited(*pairs: tuple[int, int]) -> Callable[[], None]:
    def apply() -> None:
        for which, value in pairs:
            resource.setrlimit(which, (value, resource.getrlimit(which)[1]))

    return apply


def test_limits(examine: Examine, tmp_path: Path) -> None:
    answer = examine("true", preexec_fn=limited((resource.RLIMIT_AS, 4 << 30), (resource.RLIMIT_DATA, 1 << 30)))
    assert answer["ok"]
    assert answer["found"]["address-space"]["status"] == "note"
    assert "4 GiB" in answer["found"]["address-space"]["what"]
    assert answer["found"]["data"]["status"] == "note"
    answer = examine("--record", str(tmp_path), preexec_fn=limited((resource.RLIMIT_FSIZE, 1 << 20)))
    assert answer["found"]["records"]["status"] == "note"


@pytest.mark.parametrize(
    ("version", "features", "status", "said"),
    [
        ((4, 17), 0, "note", "no restartable sequences"),
        ((5, 9), 0, "note", "cannot interrupt"),
        ((6, 2), 20, "note", "without mm_cid"),
        ((6, 3), 28, "ok", "with mm_cid"),
    ],
)
def test_kernels(version: tuple[int, int], features: int, status: str, said: str) -> None:
    found = doctor_system.kernel(version, features)
    assert found.status == status
    assert said in found.what


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(doctor_system, "_GROUPS", tmp_path / "groups")
    mount = tmp_path / "groups" / ("memory" if version == 1 else "")
    (mount / "a/b").mkdir(parents=True)
    file = "memory.limit_in_bytes" if version == 1 else "memory.max"
    (tmp_path / "cgroup").write_text("3:cpu,memory:/a/b\n" if version == 1 else "0::/a/b\n")
    one = Process(tmp_path, {})
    assert "no control group" in doctor_system.group(one).what
    (mount / "a" / file).write_text(f"{64 << 20}\n")
    (mount / "a/b" / file).write_text("max\n")
    assert f"{mount}/a limits the memory to 64 MiB" in doctor_system.group(one).what
    (mount / "a/b" / file).write_text(f"{16 << 20}\n")
    assert doctor_system.group(one).status == "note"
    (mount / "a/b" / file).write_text(f"{1 << 62}\n")
    assert "64 MiB" in doctor_system.group(one).what


@pytest.mark.parametrize(
    ("text", "option", "status"),
    [
        ("always [madvise] never", "", "ok"),
        ("[always] madvise never", "", "note"),
        ("[always] madvise never", "0", "ok"),
        ("always madvise [never]", "", "ok"),
    ],
)
def test_huge_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, option: str, status: str) -> None:
    monkeypatch.setattr(doctor_system, "_HUGE", tmp_path / "enabled")
    (tmp_path / "enabled").write_text(text)
    assert doctor_system.huge_pages(Process(tmp_path, {"SHEAF_HUGE": option})).status == status


def test_overcommit_and_mappings() -> None:
    assert doctor_system.overcommit(0, 0).status == "ok"
    assert doctor_system.overcommit(2, 1 << 30).status == "ok"
    assert doctor_system.overcommit(2, 1 << 10).status == "note"
    assert "0 bytes are left" in doctor_system.overcommit(2, -1).what
    assert doctor_system.mappings(65530, "guard").status == "ok"
    assert doctor_system.mappings(1000, "").status == "note"
    assert "SHEAF_HARDEN=guard" in doctor_system.mappings(1000, "guard").what


@pytest.mark.parametrize(("mode", "status"), [("0", "ok"), ("1", "problem"), ("2", "note")])
def test_seccomp(tmp_path: Path, mode: str, status: str) -> None:
    (tmp_path / "status").write_text(f"Name:\tx\nSeccomp:\t{mode}\n")
    assert doctor_system.seccomp(Process(tmp_path, {})).status == status


def test_options(examine: Examine) -> None:
    answer = examine(env={"SHEAF_DECAY": "soon", "SHEAF_KEPE": "1", "SHEAF_BARN": "1M"})
    said = [one["what"] for one in answer["findings"] if one["subject"] == "options"]
    assert said == ["in the environment, SHEAF_DECAY=soon: not a number", "in the environment, SHEAF_KEPE: no such option"]
    assert answer["ok"]
    assert examine(env={"SHEAF_BARN": "1M"})["found"]["options"]["what"] == "SHEAF_BARN"


def test_the_directory_of_records(examine: Examine, tmp_path: Path) -> None:
    assert "writable" in examine("--record", str(tmp_path))["found"]["records"]["what"]
    assert "writable" in examine(env={"SHEAF_RECORD": str(tmp_path)})["found"]["records"]["what"]
    assert list(tmp_path.iterdir()) == []
    assert "does not exist" in problem(examine("--record", str(tmp_path / "none")), "records")
    (tmp_path / "file").touch()
    assert "not a directory" in problem(examine("--record", str(tmp_path / "file")), "records")


def test_a_directory_that_is_not_writable(public: Path) -> None:
    public.chmod(0o555)
    assert as_nobody(lambda: doctor_system.records(future(), str(public)).what) == f"{public}: Permission denied"


# ---- sandboxes ----

FILTER = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv) /* number of the call, action, command */
{
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (unsigned)atoi(argv[1])},
        {BPF_RET | BPF_K, 0, 0, (unsigned)strtoul(argv[2], NULL, 0)},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {4, code};
    if (argc < 4 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 77;
    execvp(argv[3], argv + 3);
    return 1;
}"""
REFUSE, KILL = "0x50026", "0x80000000"  # with ENOSYS; the process


@needs_gcc
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the system calls are those of x86-64")
@pytest.mark.parametrize(
    ("call", "action", "subject", "status"),
    [(334, REFUSE, "mode", "note"), (324, REFUSE, "membarrier", "note"), (324, KILL, "seccomp", "problem")],
)
def test_sandboxes(library: str, tmp_path: Path, call: int, action: str, subject: str, status: str) -> None:
    """rseq is refused; membarrier is refused, and ends the process."""
    sandbox = compile_c(tmp_path / "sandbox", FILTER)
    command = [str(sandbox), str(call), action, sys.executable, "-m", "sheaf", "doctor", "--json", "true"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "cli")}, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("no filter of system calls can be set here")
    answer = json.loads(done.stdout)
    assert [one["status"] for one in answer["findings"] if one["subject"] == subject][-1] == status
    assert next(one["status"] for one in answer["findings"] if one["subject"] == "seccomp") == "note"
    if subject == "mode":
        assert answer["mode"]["name"] == doctor_mode.LOCK
        assert "refuses restartable sequences" in answer["mode"]["why"]


# ---- processes ----


@pytest.fixture
def sleeper(library: str) -> Iterator[Callable[..., int]]:
    """A function that starts a process that sleeps, with more in its environment, and returns its number."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**environment: str) -> int:
        code = "import sys, time; print(1, flush=True); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **environment}, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout
        assert child.stdout.readline() == b"1\n"
        return child.pid

    yield start
    for child in started:
        child.kill()
        child.communicate()


def test_a_process_on_sheaf(examine: Examine, library: str, sleeper: Callable[..., int], tmp_path: Path) -> None:
    recorded = examine(str(sleeper(LD_PRELOAD=library, SHEAF_RECORD=str(tmp_path), SHEAF_RSEQ="off")))
    assert recorded["ok"]
    assert recorded["target"]["kind"] == "process"
    assert recorded["target"]["path"] == os.path.realpath(sys.executable)
    assert (recorded["mode"]["name"], recorded["mode"]["source"]) == (doctor_mode.LOCK, "record")
    assert f"it runs on Sheaf ({Path(library).resolve()})" == recorded["found"]["process"]["what"]
    plain = examine(str(sleeper(LD_PRELOAD=library)))
    assert plain["mode"]["source"] == "expected"
    pid = sleeper(LD_PRELOAD=library, SHEAF_RECORD=str(tmp_path / "none"))
    assert [one["status"] for one in examine(str(pid))["findings"] if one["subject"] == "records"] == ["note", "problem"]


# Puts zeros in the place of its environment, as nginx and redis do to make room for a title.
TITLE = """
import ctypes, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, end = int(fields[47]), int(fields[48])
ctypes.memset(begin, 0, end - begin)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_program_that_overwrites_its_environment(
    examine: Examine, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment said is unknown; the record is found in the maps."""
    program = start(code=TITLE)
    answer = examine(str(program.pid))
    (record,) = tmp_path.glob("*.sheaf")
    assert answer["mode"]["source"] == "record"
    assert answer["found"]["records"]["what"] == f"it keeps {record}"
    assert "overwritten" in answer["found"]["options"]["what"]
    monkeypatch.setenv("LD_PRELOAD", "")
    plain = subprocess.Popen([sys.executable, "-c", TITLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert plain.stdout
        assert plain.stdout.readline() == b"ready\n"
        assert "has overwritten the environment" in problem(examine(str(plain.pid)), "process")
    finally:
        plain.kill()
        plain.communicate()


def test_an_object_that_was_removed(examine: Examine, library: str, sleeper: Callable[..., int], tmp_path: Path) -> None:
    copy = shutil.copy(library, tmp_path)
    pid = sleeper(LD_PRELOAD=copy)
    Path(copy).unlink()
    answer = examine(str(pid))
    assert answer["ok"]
    assert "was removed" in answer["found"]["process"]["what"]


def test_why_a_process_is_not_on_sheaf(examine: Examine, sleeper: Callable[..., int]) -> None:
    assert "was started without it" in problem(examine(str(sleeper(LD_PRELOAD=""))), "process")
    pid = sleeper(LD_PRELOAD="/no/such/libsheaf-preload.so")
    assert "/no/such/libsheaf-preload.so does not exist" in problem(examine(str(pid)), "process")


@needs_gcc
def test_a_static_process(examine: Examine, tmp_path: Path, library: str) -> None:
    static = compile_c(tmp_path / "static", "#include <unistd.h>\nint main(void) { pause(); }", "-static", needed=False)
    child = subprocess.Popen([static], env={"LD_PRELOAD": library})
    try:
        answer = examine(str(child.pid))
    finally:
        child.kill()
        child.wait()
    assert "as its program does not allow it" in answer["found"]["process"]["what"]
    assert "statically linked" in answer["found"]["linkage"]["what"]


def test_processes_without_a_program(examine: Examine) -> None:
    assert "no such process" in problem(examine("999999999"), "process")
    child = subprocess.Popen([TRUE])
    try:
        for _ in range(1000):
            if "State:\tZ" in Path(f"/proc/{child.pid}/status").read_text():
                break
            time.sleep(0.01)
        assert "waits for its parent" in problem(examine(str(child.pid)), "process")
    finally:
        child.wait()
    if "Kthread:\t1" in Path("/proc/2/status").read_text():
        assert "thread of the kernel" in problem(examine("2"), "process")


@needs_root
def test_a_process_of_another_user() -> None:
    answer = as_nobody(lambda: examine_process(os.getppid(), running(os.getppid())).findings[0].what)
    assert answer == f"{os.getpid()}: Permission denied"


def test_a_file_takes_precedence_over_a_process(examine: Examine, tmp_path: Path) -> None:
    executable(tmp_path / "1", "#!/bin/sh\n")
    answer = examine("1", cwd=tmp_path, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert answer["target"]["kind"] == "program"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("doctor a b", "sheaf doctor: Got unexpected extra argument (b); see `sheaf doctor --help`"),
        ("doctor --jsno x", "sheaf doctor: --jsno: no such option; did you mean --json?"),
    ],
)
def test_a_wrong_command_line(sheaf: Run, line: str, said: str) -> None:
    done = sheaf(*line.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said + "\n")
