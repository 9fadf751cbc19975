"""The instruction counts of the fast paths (bench/counts), on code written by hand."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "bench" / "counts"))

import callgrind
import paths

X86 = """mov    0x8(%rdi),%rax
jb     7 <f+0x7>
jmp    *0x75aa(%rip)        # 40 <g@@Base+0x1>
call   9 <h>
add    $0x1,(%rax)
nopl   0x0(%rax)
push   %rbx
ret"""

ARM = """ldp\tx4, x5, [x1, #80]
adrp\tx16, 2f000 <x+0x1>
ldr\tx16, [x16, #16]
br\tx16
str\tx8, [x7]
ret"""

PROFILE = """ob=(1) /x/libsheaf.so
fn=(1) f
10 5
cob=(2) /lib/libc.so
cfn=(2) g
calls=3 20
11 700
+1 2

ob=(2)
fn=(2)
20 700
"""


def _code(text: str) -> dict[int, Any]:
    return {address: paths.parse(line) for address, line in enumerate(text.splitlines())}


def test_a_path_follows_untaken_branches_and_jumps_through_slots() -> None:
    walk = paths.Walk(_code(X86), {"f": 0, "g": 4}, {0x40: "g"})
    found = [(i.mnemonic, *paths.x86_memory(i)) for i in walk.from_start(0)]
    assert found == [
        ("mov", True, False),
        ("jb", False, False),
        ("jmp", True, False),
        ("add", True, True),
        ("push", False, True),
        ("ret", False, False),
    ]


def test_a_path_that_leaves_is_refused() -> None:
    with pytest.raises(paths.CountError, match="calls a function"):
        paths.Walk(_code(X86), {}, {}).from_start(3)
    with pytest.raises(paths.CountError, match="leaves the object"):
        paths.Walk(_code(X86), {}, {}).from_start(0)


def test_a_path_on_aarch64() -> None:
    walk = paths.Walk(_code(ARM), {"g": 4}, {0x2F010: "g"})
    found = [(i.mnemonic, *paths.arm_memory(i)) for i in walk.from_start(0)]
    assert found == [
        ("ldp", True, False),
        ("adrp", False, False),
        ("ldr", True, False),
        ("br", False, False),
        ("str", False, True),
        ("ret", False, False),
    ]


def test_costs_are_those_of_one_object() -> None:
    assert callgrind.self_cost(PROFILE, "libsheaf.so") == 7
    assert callgrind.self_cost(PROFILE, "libc.so") == 700
