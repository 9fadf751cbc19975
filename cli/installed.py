#!/usr/bin/env python3
"""
Writes what pip would make of the project's metadata, for installations without pip.

    installed.py script|metadata PYPROJECT OUTPUT
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

SCRIPT = """#!/usr/bin/python3
from {module} import {function}

{function}()
"""


def metadata(project: dict[str, Any]) -> str:
    """The core metadata of an installed package, which the command reads for its version and the packages that it names."""
    fields = [("Metadata-Version", "2.1"), ("Name", project["name"]), ("Version", project["version"])]
    fields += [("Summary", project["description"]), ("Requires-Python", project["requires-python"])]
    fields += [("Requires-Dist", requirement) for requirement in project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        fields.append(("Provides-Extra", extra))
        fields += [("Requires-Dist", f'{requirement} ; extra == "{extra}"') for requirement in requirements]
    return "".join(f"{name}: {value}\n" for name, value in fields)


def main() -> None:
    """Write one of the two files."""
    what, source, output = sys.argv[1:]
    project = tomllib.loads(Path(source).read_text())["project"]
    module, function = project["scripts"]["sheaf"].split(":")
    Path(output).write_text(metadata(project) if what == "metadata" else SCRIPT.format(module=module, function=function))


if __name__ == "__main__":
    main()
