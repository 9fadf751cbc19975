#!/usr/bin/env python3
"""
Prints a software bill of materials of Sheaf in the format CycloneDX 1.5 (JSON): this project, and what the command requires.

    cli/sbom.py [WHEEL...]

With wheels, each is listed with its sum.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+) *(.*)")


def _required(requirement: str, scope: str) -> dict[str, Any]:
    """A package of Python that is required, with the versions that suffice; which one is used is decided at installation."""
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise SystemExit(f"cli/sbom.py: {requirement}: not a requirement; correct pyproject.toml")
    name, versions = match.groups()
    component = {"type": "library", "bom-ref": f"pkg:pypi/{name}", "name": name, "purl": f"pkg:pypi/{name}", "scope": scope}
    if versions:
        component["properties"] = [{"name": "sheaf:requirement", "value": versions}]
    return component


def _wheel(path: Path) -> dict[str, Any]:
    total = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"type": "file", "bom-ref": path.name, "name": path.name, "hashes": [{"alg": "SHA-256", "content": total}]}


def document(project: dict[str, Any], wheels: list[Path]) -> dict[str, Any]:
    """The bill of materials of the project that a pyproject.toml describes."""
    itself = {
        "type": "application",
        "bom-ref": f"sheaf@{project['version']}",
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": "MIT"}}],
    }
    required = [_required(one, "required") for one in project["dependencies"]]
    extras = project["optional-dependencies"]
    optional = [_required(one, "optional") for name in sorted(extras) if name != "test" for one in extras[name]]
    libraries: list[dict[str, Any]] = [
        {
            "type": "library",
            "bom-ref": "libgcc",
            "name": "libgcc",
            "scope": "required",
            "description": "the unwinder of the compiler, linked in",
        },
        {"type": "library", "bom-ref": "liburcu", "name": "liburcu", "scope": "optional", "description": "for libsheaf-rcu"},
    ]
    components = required + optional + libraries + [_wheel(path) for path in wheels]
    needs = [component["bom-ref"] for component in required + libraries[:1]]
    body = {
        "metadata": {"component": itself},
        "components": components,
        "dependencies": [{"ref": itself["bom-ref"], "dependsOn": needs}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))  # the same contents have the same number
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


def main() -> None:
    """Print the document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheels = [Path(name) for name in sys.argv[1:]]
    missing = next((path for path in wheels if not path.is_file()), None)
    if missing is not None:
        raise SystemExit(f"cli/sbom.py: {missing}: no such file; name wheels that cli/wheel built")
    print(json.dumps(document(project, wheels), indent=2))


if __name__ == "__main__":
    main()
