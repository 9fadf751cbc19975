"""Recipes that build the newest peers from the sources in their crates. The crates are fetched, never committed."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sheaf.errors import SheafError

# Runs a command in a directory and appends its output to the build log. Raises SheafError if the command fails.
Execute = Callable[[Sequence[str], Path], None]


@dataclass(frozen=True)
class Workplace:
    """The place to build a peer: `source` is the fetched crate, `build` an empty directory."""

    source: Path
    build: Path
    execute: Execute
    jobs: int

    def cmake(self, source: Path, target: str, *options: str) -> None:
        """Configure and build one target with CMake in release mode."""
        configure = ["cmake", "-S", str(source), "-B", str(self.build / "out"), "-DCMAKE_BUILD_TYPE=Release", *options]
        self.execute(configure, self.build)
        self.execute(["cmake", "--build", str(self.build / "out"), "--target", target, "-j", str(self.jobs)], self.build)

    def made(self, pattern: str) -> Path:
        """The first file in the build directory that matches the pattern. Raises SheafError if there is none."""
        found = sorted(self.build.glob(pattern))
        if not found:
            raise SheafError(f"the build produced no {pattern}")
        return found[0].resolve()


@dataclass(frozen=True)
class Recipe:
    """A peer: its crate, the release of the allocator in the crate, and the function that builds the shared object."""

    name: str
    crate: str
    crate_version: str
    release: str
    tools: tuple[str, ...]
    make: Callable[[Workplace], Path]
    variables: tuple[tuple[str, str], ...] = ()
    cargo: tuple[int, int] = (1, 63)  # the oldest version that can read the crate

    @property
    def key(self) -> str:
        """The name of the cached object. It changes with the version and with REVISION, and the peer is then built again."""
        return f"{self.name}-{self.crate_version.partition('+')[0]}-r{REVISION}-{platform.machine()}"

    @property
    def version(self) -> str:
        """The version for reports: release of the allocator and of the crate."""
        crate = f"{self.crate} {self.crate_version.partition('+')[0]}"
        return f"{self.release} ({crate})" if self.release else crate


REVISION = 1  # increase it when a recipe changes

# The crate lacks three files of mimalloc's cmake/: the version, a function that joins paths, and one that may be empty.
_JOIN_PATHS = """function(join_paths joined first)
  set(path "${first}")
  foreach(part IN LISTS ARGN)
    string(APPEND path "/${part}")
  endforeach()
  set(${joined} "${path}" PARENT_SCOPE)
endfunction()
"""


def _mimalloc(series: str) -> Callable[[Workplace], Path]:
    """Build with mimalloc's own release configuration of the shared object."""

    def make(place: Workplace) -> Path:
        source = place.build / "source"
        shutil.copytree(place.source / "c_src" / "mimalloc" / f"v{series}", source)
        header = (source / "include" / "mimalloc.h").read_text()
        number = re.search(r"#define MI_MALLOC_VERSION\s+(\d+)", header)
        digits = number[1].zfill(5) if number else f"{series}0000"
        major, minor, patch = int(digits[:-4]), int(digits[-4:-2]), int(digits[-2:])
        version = f"set(mi_version_major {major})\nset(mi_version_minor {minor})\nset(mi_version_patch {patch})\n"
        files = {
            "mimalloc-config-version.cmake": version + f"set(mi_version {major}.{minor})\n",
            "JoinPaths.cmake": _JOIN_PATHS,
            "mimalloc-config.cmake": "",
        }
        (source / "cmake").mkdir(exist_ok=True)
        for name, text in files.items():
            if not (source / "cmake" / name).exists():
                (source / "cmake" / name).write_text(text)
        left_out = ("-DMI_BUILD_STATIC=OFF", "-DMI_BUILD_OBJECT=OFF", "-DMI_BUILD_TESTS=OFF")
        place.cmake(source, "mimalloc", *left_out)
        return place.made("out/libmimalloc*.so")

    return make


def _jemalloc(place: Workplace) -> Path:
    """Build with configure and make and jemalloc's defaults: no prefix, -O3, statistics, C++ operators."""
    source = place.build / "source"
    shutil.copytree(place.source / "jemalloc", source)
    shutil.copy(place.source / "configure" / "configure", source / "configure")
    release = re.search(r'^version = "[^"+]*\+([^"]+)"', (place.source / "Cargo.toml").read_text(), re.MULTILINE)
    version = f"--with-version={release[1]}" if release else "--with-version=VERSION"
    place.execute(["sh", "configure", version, "--disable-doc"], source)
    place.execute(["make", "-j", str(place.jobs), "build_lib_shared"], source)
    return place.made("source/lib/libjemalloc.so*")


def _snmalloc(place: Workplace) -> Path:
    """Build snmalloc's own shim, without the checked variants."""
    place.cmake(place.source / "upstream", "snmallocshim", "-DSNMALLOC_BUILD_TESTING=OFF")
    return place.made("out/libsnmallocshim.so")


def _rpmalloc(place: Workplace) -> Path:
    """Build with the flags that rpmalloc's own configure.py uses for the library rpmallocwrap."""
    source = place.source / "rpmalloc" / "rpmalloc" / "rpmalloc.c"
    made = place.build / "librpmalloc.so"
    defines = ["RPMALLOC_COMPILE=1", "_GNU_SOURCE=1", "BUILD_RELEASE=1", "BUILD_DYNAMIC_LINK=1", "ENABLE_PRELOAD=1"]
    flags = ["-std=c11", "-U__STRICT_ANSI__", "-O3", "-funroll-loops", "-fPIC", "-shared", "-w"]
    definitions = [f"-D{define}" for define in (*defines, "ENABLE_OVERRIDE=1")]
    place.execute(["cc", *flags, *definitions, str(source), "-o", str(made), "-pthread", "-ldl"], place.build)
    return made


_TCMALLOC_CMAKE = """cmake_minimum_required(VERSION 3.18)
project(tcmalloc C CXX ASM)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
add_library(tcmalloc SHARED
  {sources}
)
set_target_properties(tcmalloc PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
target_include_directories(tcmalloc PRIVATE "{root}/abseil-cpp" "{root}/tcmalloc")
target_compile_options(tcmalloc PRIVATE -w -fno-semantic-interposition -ftls-model=initial-exec)
find_package(Threads REQUIRED)
target_link_libraries(tcmalloc PRIVATE Threads::Threads ${{CMAKE_DL_LIBS}})
target_link_options(tcmalloc PRIVATE -Wl,-Bsymbolic-functions)
"""


def _tcmalloc(place: Workplace) -> Path:
    """
    Build the files that the crate's build script lists, and tcmalloc.cc, which overrides malloc and the C++ operators (the
    crate compiles it without the overrides). The flags are those of Bazel's optimized build, -O2 -DNDEBUG. tcmalloc is meant
    for static linking. The flags for TLS and symbols avoid the additional cost of a shared object, such as a call of
    __tls_get_addr in each malloc and free; the builds of the other peers have similar flags.
    """
    named = re.findall(r'"(c_src/(?:abseil-cpp|tcmalloc)/[^"]+\.(?:cc|S))"', (place.source / "build.rs").read_text())
    files = [f'"{place.source / file}"' for file in dict.fromkeys([*named, "c_src/tcmalloc/tcmalloc/tcmalloc.cc"])]
    project = place.build / "source"
    project.mkdir()
    text = _TCMALLOC_CMAKE.format(sources="\n  ".join(files), root=place.source / "c_src")
    (project / "CMakeLists.txt").write_text(text)
    place.cmake(project, "tcmalloc")
    return place.made("out/libtcmalloc.so")


# Google's tcmalloc registers rseq itself. If glibc has registered it, tcmalloc falls back to caches per thread.
_NO_LIBC_RSEQ = (("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),)

RECIPES = (
    Recipe("mimalloc2", "libmimalloc-sys", "0.1.49", "2.3.2", ("cmake", "cc"), _mimalloc("2")),
    Recipe("mimalloc3", "libmimalloc-sys", "0.1.49", "3.3.2", ("cmake", "cc"), _mimalloc("3")),
    Recipe(
        "jemalloc",
        "tikv-jemalloc-sys",
        "0.7.1+5.3.1-0-g81034ce1f1373e37dc865038e1bc8eeecf559ce8",
        "5.3.1",
        ("make", "cc", "g++"),
        _jemalloc,
    ),
    Recipe("snmalloc", "snmalloc-sys", "0.7.6", "0.7.6", ("cmake", "g++"), _snmalloc),
    Recipe("rpmalloc", "rpmalloc-sys", "0.2.3+b097fd0", "1.4.3", ("cc",), _rpmalloc),
    Recipe("tcmalloc", "libtcmalloc-sys", "0.1.14", "", ("cmake", "g++"), _tcmalloc, _NO_LIBC_RSEQ, (1, 87)),
)


def jobs() -> int:
    """The number of parallel build jobs: the CPUs that this process may use."""
    return max(1, len(os.sched_getaffinity(0)))
