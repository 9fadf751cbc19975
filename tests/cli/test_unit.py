"""`sheaf unit`: the drop-in, and that systemd accepts it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Run

ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a system with two services."""
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    for name in ("demo", "demo@"):
        (folder / f"{name}.service").write_text("[Service]\nExecStart=/bin/sleep 100\n")
    return tmp_path


def verify(path: Path) -> str:
    """What systemd says about a unit and its drop-ins; empty if all is well."""
    if not ANALYZE:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run([ANALYZE, "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=60)
    mine = [line for line in (done.stdout + done.stderr).splitlines() if "sheaf" in line or path.name in line]
    return "\n".join(line for line in mine if "is not executable" not in line)


def test_the_drop_in(sheaf: Run, library: str) -> None:
    done = sheaf("unit", "demo.service", "--option", "decay=1000")
    assert done.returncode == 0
    assert f'Environment="LD_PRELOAD={Path(library).resolve()}"' in done.stdout
    assert 'Environment="SHEAF_RECORD=/var/lib/sheaf/demo"' in done.stdout
    assert 'Environment="SHEAF_DECAY=1000"' in done.stdout
    assert 'Environment="SHEAF_HELPER=1"' in done.stdout
    assert sheaf("unit", "demo", "--option", "helper=auto").stdout.count("SHEAF_HELPER=") == 1
    assert "StateDirectory=sheaf/demo\n" in done.stdout
    assert re.search(r"^ExecStartPre=-.*records --prune --older-than 7d", done.stdout, re.M)


def test_without_records(sheaf: Run, library: str) -> None:
    text = sheaf("unit", "--no-records", "demo").stdout
    assert "LD_PRELOAD" in text
    assert "SHEAF_RECORD" not in text and "ExecStartPre" not in text and "SHEAF_HELPER" not in text


@pytest.mark.parametrize("name", ["demo", "demo@1", "demo@"])
def test_systemd_accepts_it(sheaf: Run, library: str, root: Path, name: str) -> None:
    done = sheaf("unit", "--install", "--root", str(root), name)
    assert done.returncode == 0, done.stderr
    written = root / f"etc/systemd/system/{name}.service.d/sheaf.conf"
    assert written.read_text() == sheaf("unit", name).stdout
    assert written.stat().st_mode & 0o777 == 0o644
    unit = root / f"etc/systemd/system/{name}.service"
    if name == "demo@1":
        unit.symlink_to("demo@.service")
    assert verify(unit if name != "demo@" else root / "etc/systemd/system/demo@.service") == ""
    assert sheaf("unit", "--install", "--root", str(root), name).returncode == 0, "a second time replaces the file"


def test_systemd_would_complain(sheaf: Run, library: str, root: Path) -> None:
    """That verify() sees errors in a drop-in at all."""
    sheaf("unit", "--install", "--root", str(root), "demo")
    written = root / "etc/systemd/system/demo.service.d/sheaf.conf"
    written.write_text(written.read_text().replace("StateDirectory=sheaf", "StateDirectory=/var/lib/sheaf"))
    assert "sheaf.conf" in verify(root / "etc/systemd/system/demo.service")


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["demo/x"], 2, "not the name of a service"),
        (["../demo"], 2, "not the name of a service"),
        ([""], 2, "not the name"),
        (["a b"], 2, "not the name"),
        (["x" * 300], 2, "not the name"),
        (["demo", "--older-than", "soon"], 2, "not an age"),
        (["demo", "--option", "nope=1"], 125, "no such option"),
        (["demo", "--install", "--root", "/nonexistent"], 2, "not a directory"),
    ],
)
def test_wrong_use(sheaf: Run, library: str, args: list[str], status: int, says: str) -> None:
    done = sheaf("unit", *args)
    assert done.returncode == status
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_services_that_do_not_exist(sheaf: Run, library: str, root: Path) -> None:
    done = sheaf("unit", "--install", "--root", str(root), "other")
    assert done.returncode == 1
    assert "no such unit" in done.stderr
    assert not (root / "etc/systemd/system/other.service.d").exists()


def test_the_unit_of_the_server() -> None:
    assert verify(ROOT / "docs/serve/sheaf-serve.service") == ""
