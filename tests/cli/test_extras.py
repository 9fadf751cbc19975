"""The commands that messages print for missing modules."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT, Run
from sheaf.system import extras

REQUIRES = [
    "click>=8.1",
    "matplotlib>=3.6; extra == 'bench'",
    'prometheus-client>=0.17 ; python_version >= "3" and extra == "serve"',
]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in an environment into which a wheel was installed."""
    monkeypatch.setattr(extras, "_TREE", tmp_path)
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)


def test_in_a_clone_extras_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, packages in project["optional-dependencies"].items():
        assert shlex.split(extras.install(extra)) == [sys.executable, "-m", "pip", "install", *packages]


@pytest.mark.usefixtures("package")
def test_after_an_installation_extras_are_those_of_the_package() -> None:
    assert extras.requirements("") == ["click>=8.1"]
    assert extras.requirements("serve") == ["prometheus-client>=0.17"]
    assert extras.requirements("none") == []
    assert shlex.split(extras.install("bench"))[-1] == "matplotlib>=3.6"


@pytest.mark.usefixtures("package")
def test_a_module_leads_to_its_package() -> None:
    assert shlex.split(extras.install_module("prometheus_client.core"))[-1] == "prometheus-client>=0.17"
    assert shlex.split(extras.install_module("click"))[-1] == "click>=8.1"
    assert shlex.split(extras.install_module("other.module"))[-1] == "other"
    assert shlex.split(extras.install_module("click", "matplotlib"))[-2:] == ["click>=8.1", "matplotlib>=3.6"]
    assert shlex.split(extras.install_module("google.protobuf"))[-1] == "protobuf"


@pytest.mark.parametrize(
    ("module", "advice"), [("zlib", "-m pip install zlib\n"), ("sheaf.records.record", "; reinstall Sheaf\n")]
)
def test_a_missing_module_is_named_with_a_remedy(sheaf: Run, tmp_path: Path, module: str, advice: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    found = sheaf("stats", env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'cli'}"})
    assert found.returncode == 1 and found.stderr.count("\n") == 1
    assert f"stats: the Python module {module} is missing; " in found.stderr and found.stderr.endswith(advice)


def test_no_page_and_no_message_installs_another_project_of_that_name() -> None:
    """On the public index the name belongs to another project. extras.py and docs/install.md say so."""
    wrong = re.compile(r"pip3? install[^\n`]*[ '\"]sheaf(\[|['\"`\s]|$)")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "cli").rglob("*.py"), *(ROOT / "docs/man").glob("*.1")]
    said = [ROOT / "cli/sheaf/system/extras.py", ROOT / "docs/install.md"]
    lines = [f"{page}: {line}" for page in pages if page not in said for line in page.read_text().splitlines()]
    assert [line for line in lines if wrong.search(line)] == []
