#!/usr/bin/env python3
"""Run tests in qemu guests with other kernels: 4.15 to the newest, on x86-64 and aarch64, with pages of 4 to 64 KiB.

Usage: tests/guest/kernels.py [--only PLATFORM]... [--tests WORDS] [--list]
The kernels are packages of Debian and Ubuntu, which are fetched into build/guests and not installed. The tests are those
of build/gcc, and of build/arm64, which is made by the cross compiler. Prints TAP, a line for each test, and writes the
figures to build/results/platforms/PLATFORM.tsv; the console is kept in build/results/guest-PLATFORM.log. The exit status
is 77 if a guest cannot be made; a line says why.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from archive import DEBIAN, UBUNTU, Archive, Unavailable, unpack
from image import Image, is_program, tests

TOP = Path(__file__).resolve().parents[2]
KEPT = TOP / "build/guests"
RESULTS = TOP / "build/results"
DEBIAN_KERNELS = r"linux-image-[0-9]\S*"
PACKAGES_FROM = "bookworm"  # busybox, and converters of characters for aarch64, which the cross compiler lacks
SECONDS = 3600  # for a guest

# What runs in a guest: tests by "SUITE NAME". The layers are on a simulated system, and libc's part is the same
# on all kernels, so kernels for x86-64 run only what depends on them.
KERNEL = (
    r"conformance (contract|identity|libc|process|operators|replaced)|fork regress-(fork|atfork|fork-locks)"
    r"|stress stress-(threads|signals|migrate|trim|all)|fork stress-fork|rseq .*"
    r"|regress regress-(control|foreign-threads(-own)?|remote-drain(-own)?|own-rseq-own|huge-pages|address-space|charge|"
    r"file-mappings|settings|tables|first-calls|sheaves)"
)
# layer-mapped has two threads that spin, which takes minutes on emulated processors.
CPU = r"layer layer-(?!mapped)[a-z]+|unit unit|conformance rest|regress regress-detached|" + KERNEL
SECTIONS = (
    r"fork regress-fork|stress stress-(threads|all)|rseq .*|conformance (identity|replaced)"
    r"|regress regress-(remote-drain|foreign-threads|sheaves)"
)

# How often `identity` repeats its cases where a processor is emulated, and cases that would take more than ten minutes.
LESS = "IDENTITY_CHILDREN=8 IDENTITY_ROUNDS=100"
LEFT_OUT = "ended_threads_leave_no_memory_behind"


@dataclass(frozen=True)
class Platform:
    """A guest: where its kernel comes from, its processor, and which tests run in it."""

    name: str
    mirror: str
    release: str
    package: str  # a kernel, or a metapackage that needs one
    machine: str = "amd64"
    tests: str = KERNEL
    cpu: str = "max"
    page_kib: int = 4
    words: str = field(default="", compare=False)  # for the kernel's command line

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of its tests."""
        return re.compile(self.tests)


def _arm64(name: str, release: str = "bookworm", package: str = "linux-image-arm64", **more: object) -> Platform:
    return Platform(f"aarch64-linux-{name}", DEBIAN, release, package, "arm64", **more)  # type: ignore[arg-type]


PLATFORMS = (
    Platform("x86_64-linux-4.15", UBUNTU, "bionic", "linux-image-4.15.0-20-generic"),
    Platform("x86_64-linux-4.18", UBUNTU, "bionic-updates", "linux-image-4.18.0-25-generic"),
    Platform("x86_64-linux-5.10", DEBIAN, "bullseye", "linux-image-amd64"),
    Platform("x86_64-linux-6.1", DEBIAN, "bookworm", "linux-image-amd64"),
    Platform("x86_64-linux-6.12", DEBIAN, "trixie", "linux-image-amd64"),
    Platform("x86_64-linux-6.12-rt", DEBIAN, "trixie", "linux-image-rt-amd64"),
    Platform("x86_64-linux-newest", DEBIAN, "trixie-backports", "linux-image-amd64"),
    _arm64("6.1-4k", tests=CPU),
    _arm64("6.1-4k-a53", tests=SECTIONS, cpu="cortex-a53"),
    _arm64("6.1-4k-a76", tests=SECTIONS, cpu="cortex-a76"),
    _arm64("6.12-16k", "trixie", "linux-image-arm64-16k", tests=CPU, page_kib=16),
    _arm64("6.12-64k", "trixie", "linux-source-6.12", tests=CPU, page_kib=64),
)


def _unpack_kernel(archive: Archive, package: str, to: Path) -> bool:
    """Download a package, and copy the kernel that it holds. Returns whether it holds one."""
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        file = archive.download(package)
        unpack(file, Path(folder))
        file.unlink()
        kernel = next(Path(folder).glob("**/vmlinuz*"), None)
        if kernel:
            shutil.copy(kernel, to)
        return bool(kernel)


def _kernel(platform: Platform) -> Path:
    """Return the platform's kernel, which is fetched the first time."""
    kept = KEPT / platform.name / "kernel"
    if kept.exists():
        return kept
    archive = Archive(KEPT / f"{platform.release}-{platform.machine}", platform.mirror, platform.release, platform.machine)
    archive.update()
    kept.parent.mkdir(parents=True, exist_ok=True)
    if platform.package.startswith("linux-source"):
        subprocess.run([TOP / "tests/guest/kernel-64k", archive.download(platform.package), kept], check=True)
        return kept
    package = platform.package
    if not re.fullmatch(DEBIAN_KERNELS, package):
        package = archive.needed_by(package, DEBIAN_KERNELS)
    found = _unpack_kernel(archive, package, kept)
    if not found:  # from 7.x on, Debian's kernels are in a package of their own
        found = _unpack_kernel(archive, archive.needed_by(package, r"linux-binary-[0-9]\S*"), kept)
    if not found:
        raise Unavailable(f"{package} has no kernel")
    return kept


def _unpacked(package: str, machine: str) -> Path:
    """Return the folder of a package's files for the machine, which is fetched the first time."""
    kept = KEPT / f"{package}-{machine}"
    if not kept.exists():
        archive = Archive(KEPT / f"{PACKAGES_FROM}-{machine}", DEBIAN, PACKAGES_FROM, machine)
        archive.update()
        unpack(archive.download(package), kept)
    return kept


def _busybox(machine: str) -> Path:
    found = _unpacked("busybox-static", machine).glob("**/bin/busybox")
    return next(file for file in found if not file.is_symlink())


def _build(machine: str) -> Path:
    """Return the build whose tests run on the machine; the one for aarch64 is made by the cross compiler."""
    if machine == "amd64":
        return TOP / "build/gcc"
    build = TOP / "build/arm64"
    headers = build.with_name("arm64-headers")
    if Path("/usr/include/catch2").is_dir() and not headers.exists():
        # Catch2 has only headers, which are the same for all machines, among others in /usr/include that are not.
        shutil.copytree("/usr/include/catch2", headers / "catch2")
        (headers / "catch2.pc").write_text(f"Name: Catch2\nDescription: its headers\nVersion: 2\nCflags: -I{headers}\n")
    if not (build / "build.ninja").exists():
        tools = "[binaries]\ncpp = 'aarch64-linux-gnu-g++'\npkg-config = 'pkg-config'\n"
        tools += f"[properties]\npkg_config_libdir = '{headers}'\n"
        (cross := build.with_name("arm64.ini")).write_text(tools)
        files = [f"--cross-file={TOP / 'tests/aarch64.ini'}", f"--cross-file={cross}"]
        subprocess.run(["meson", "setup", build, *files, "-Dbench=false"], cwd=TOP, check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", build], check=True, stdout=sys.stderr)
    return build


def _more_lines(build: Path) -> Iterator[str]:
    """Yield lines of the guest's script: the kernel's settings, and CPUs that come and go, which no other test has."""
    preload = f"LD_PRELOAD={build}/preload/libsheaf-preload.so"
    yield f"run kernel features 100 {build}/tests/guest/features"
    yield f"run command record 0 recorded {preload} {build}/tests/stress/stress threads --seconds 1"
    for case in ("fill_and_free", "threads_fill", "forks"):
        yield f"run limits overcommit-{case} 0 overcommit_off env {preload} {build}/tests/guest/limits {case}"
    for case in ("few_mappings_left", "no_mapping_left"):
        yield f"run limits mappings-{case} 0 few_mappings env {preload} {build}/tests/guest/limits {case}"
    for mode in ("all", "threads"):
        yield f"run limits hotplug-{mode} 0 hotplug env {preload} {build}/tests/stress/stress {mode} --seconds 5"


def _make_image(platform: Platform, build: Path, folder: Path) -> Path:
    chosen = tests(build, platform.machine, platform.pattern)
    if not chosen:
        raise Unavailable(f"{build} has no tests; build it first")
    image = Image(folder / "root", platform.machine, _busybox(platform.machine))
    more = list(_more_lines(build))
    words = {word for test in chosen for word in (*test.command, *dict(test.environment).values())}
    words |= {word.rpartition("=")[2] for line in more for word in line.split()}
    programs = [Path(word) for word in sorted(words) if word.startswith("/")]
    programs = [path for path in programs if is_program(path, platform.machine)]
    # Libraries of the build that programs are linked with.
    libraries = [path for path in build.glob("**/*.so*") if is_program(path, platform.machine)]
    if platform.machine == "amd64":
        image.add(objdump := Path(shutil.which("objdump") or "/usr/bin/objdump"), "/usr/bin/objdump")
        programs.append(objdump)
    for path in {*programs, *libraries} - {Path("/usr/bin/objdump")}:
        image.add(path)
    image.add(TOP / "docs/cold-path.md")  # a test reads it
    # The cross compiler's libc has no converters of characters.
    image.add_libraries(programs, Path("/") if platform.machine == "amd64" else _unpacked("libc6", "arm64"))
    lines = [f"export {LESS} CASES_LEFT_OUT={LEFT_OUT}", *more[:2], *(test.line() for test in chosen), *more[2:]]
    (image.folder / "tests").write_text("\n".join(lines) + "\n")
    image.pack(folder / "initrd")
    return folder / "initrd"


def _boot(platform: Platform, kernel: Path, initrd: Path, only: str) -> str:
    """Run the guest, and return what it printed."""
    if platform.machine == "amd64":
        command = ["qemu-system-x86_64", "-no-user-config"]
        console = "ttyS0"
    else:
        command = ["qemu-system-aarch64", "-machine", "virt"]
        console = "ttyAMA0"
    append = f"console={console} quiet panic=-1 rdinit=/init {platform.words} sheaf_only={only}"
    # KVM is not used: it would give the machine's own processor, and not every machine has it.
    command += ["-accel", "tcg,thread=multi", "-cpu", platform.cpu, "-smp", "2", "-m", "6144", "-nodefaults"]
    command += ["-display", "none", "-nic", "none", "-no-reboot", "-serial", "stdio", "-kernel", str(kernel)]
    command += ["-initrd", str(initrd), "-append", append]
    log = RESULTS / f"guest-{platform.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        subprocess.run(["timeout", "-k", "5", str(SECONDS), *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    return log.read_bytes().decode(errors="replace").replace("\r", "")


@dataclass
class Row:
    """Cases of a suite."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


def _count(row: Row, text: str, status: int) -> str:
    """Add the cases of a test, and return its verdict."""
    cases = re.findall(r"^(not ok|ok)\b *\d* *-? *.*?(# *skip.*)?$", text, re.M | re.I) if "1.." in text else []
    before = row.failed
    for verdict, skipped in cases:
        row.failed += verdict != "ok"
        row.skipped += verdict == "ok" and bool(skipped)
        row.passed += verdict == "ok" and not skipped
    if not cases:
        row.passed += status == 0
        row.skipped += status == 77
    # A test that failed although none of its cases did counts as one more failure.
    row.failed += status not in (0, 77) and row.failed == before
    return "ok" if row.failed == before else "not ok"


def _read_record(text: str) -> tuple[str, int]:
    """Let the command read the record that a guest printed. Returns a line on what it says, and its exit status."""
    lines = [line for line in text.splitlines() if re.fullmatch(r"[A-Za-z0-9+/=]{4,}", line)]
    with tempfile.NamedTemporaryFile(suffix=".sheaf") as file:
        try:
            file.write(gzip.decompress(base64.b64decode("".join(lines))))
        except (ValueError, OSError, EOFError) as problem:
            return f"no record: {problem}\n", 1
        file.flush()
        command = [sys.executable, "-m", "sheaf", "stats", "--format", "json", file.name]
        environment = {**os.environ, "PYTHONPATH": str(TOP / "cli")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return done.stderr, done.returncode
    process = json.loads(done.stdout)["processes"][0]
    return f"{process['program']}, {process['mode']}, {process['state']}\n", process["program"] != "stress"


def _report(platform: Platform, console: str, whole: bool) -> bool:
    """Print TAP, write the platform's figures, and return whether all is well."""
    rows: dict[str, Row] = {}
    version = re.search(r"^Linux \S+ (\d+\.\d+)", console, re.M)
    name_of_rows = platform.name.replace("newest", version[1] if version else "newest")
    well = console.rstrip().rpartition("@done")[1] == "@done"
    ran = re.findall(r"^@begin (\S+) (\S+)\n(.*?)^@end (\d+)$", console, re.M | re.S)
    print(f"# {platform.name}: {next(iter(re.findall(r'^Linux .*', console, re.M)), 'no kernel')}")
    for suite, name, text, status in ran:
        row = rows.setdefault(suite, Row())
        if name == "record" and status == "0":
            text, code = _read_record(text)
            status = str(int(code))
        verdict = _count(row, text, int(status))
        shown = text.rstrip().splitlines()
        if verdict != "ok":
            well = False
        elif suite not in ("kernel", "command"):
            shown = [line for line in shown if re.search(r"# *skip", line, re.I)]
        for line in shown:
            print(line if line.startswith("#") else f"# {line}")
        print(f"{verdict} - {platform.name} {name}" + (" # SKIP" if status == "77" else ""))
    if not console.rstrip().endswith("Power down") and "@done" not in console:
        print(f"not ok - {platform.name}: the guest ended before its tests did; see build/results/guest-{platform.name}.log")
    if not whole:
        return well and bool(ran)
    folder = RESULTS / "platforms"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"{name_of_rows}\t{suite}\t{row.passed}\t{row.failed}\t{row.skipped}\n"
        for suite, row in rows.items()
        if suite != "kernel"
    ]
    (folder / f"{name_of_rows}.tsv").write_text("".join(lines))
    return well and bool(ran)


def _run(platform: Platform, only: str) -> bool:
    kernel, build = _kernel(platform), _build(platform.machine)
    with tempfile.TemporaryDirectory() as folder:
        initrd = _make_image(platform, build, Path(folder))
        return _report(platform, _boot(platform, kernel, initrd, only), not only)


def main() -> int:
    """Run the guests that were asked for, one after the other."""
    names = [platform.name for platform in PLATFORMS]
    parser = argparse.ArgumentParser(description="Run tests in qemu guests with other kernels.")
    parser.add_argument("--only", action="append", choices=names, metavar="PLATFORM", help="one platform; may be repeated")
    parser.add_argument("--tests", default="", metavar="START", help="only tests whose names start so")
    parser.add_argument("--list", action="store_true", help="list the platforms")
    options = parser.parse_args()
    if options.list:
        print("\n".join(names))
        return 0
    KEPT.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{TOP}/.venv/bin:{os.environ['PATH']}"
    status = 0
    for platform in PLATFORMS:
        if options.only and platform.name not in options.only:
            continue
        try:
            status = max(status, 0 if _run(platform, options.tests) else 1)
        except (Unavailable, OSError, subprocess.CalledProcessError) as problem:
            print(f"tests/guest/kernels.py: {platform.name}: {problem}", flush=True)
            status = max(status, 77)
    return 1 if status == 1 else status


if __name__ == "__main__":
    sys.exit(main())
