"""
Commands that install missing Python modules.

They name the modules' own packages: the public index of Python packages has another project under the name of this one, so
`pip install 'sheaf[bench]'` would install that.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

_PACKAGES = {"google": "protobuf"}  # of modules whose packages are not named like them
_TREE = Path(__file__).resolve().parents[3]  # if this file is in a clone
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r""";.*\bextra *== *["']([^"']+)["']""")


def _of_tree() -> dict[str, list[str]] | None:
    """The requirements of each extra in the source tree of this file; None if it is in none."""
    import tomllib

    try:
        project = tomllib.loads((_TREE / "pyproject.toml").read_text())["project"]
    except (OSError, KeyError, ValueError):
        return None
    extras: dict[str, list[str]] = {"": project.get("dependencies", [])}
    extras.update(project.get("optional-dependencies", {}))
    return extras if project.get("name") == "sheaf" else None


def _of_package() -> dict[str, list[str]]:
    """The requirements of each extra of the installed package."""
    from importlib import metadata  # slow to import

    extras: dict[str, list[str]] = {}
    try:
        lines = metadata.requires("sheaf") or []
    except metadata.PackageNotFoundError:
        return {}
    for line in lines:
        extra = _EXTRA.search(line)
        extras.setdefault(extra[1] if extra else "", []).append(line.partition(";")[0].strip())
    return extras


def requirements(extra: str) -> list[str]:
    """
    What an extra of pyproject.toml requires, such as ["matplotlib>=3.6"]; "" is what every command requires. Empty if there is no
    such extra.
    """
    tree = _of_tree()
    return (_of_package() if tree is None else tree).get(extra, [])


def _plain(requirement: str) -> str:
    """The name of a package, spelled so that it can be compared with others and with a module's name."""
    name = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", name[0] if name else requirement).lower()


def pip_install(packages: list[str]) -> str:
    """The command, for a shell, that installs packages for the Python that runs this."""
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *packages])


def install(extra: str) -> str:
    """The command that installs what an extra requires."""
    return pip_install(requirements(extra) or [extra])


def install_module(*modules: str) -> str:
    """The command that installs modules which were not found, in the versions that Sheaf requires."""
    tree = _of_tree()
    extras = _of_package() if tree is None else tree
    known = {_plain(package): package for packages in extras.values() for package in packages}
    names = [_PACKAGES.get(name, name) for name in (module.partition(".")[0] for module in modules)]
    return pip_install([known.get(_plain(name), name) for name in names])
