"""Fetch packages of Debian and Ubuntu for any release and machine by apt, without installing them."""

from __future__ import annotations

import hashlib
import re
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

DEBIAN = "http://deb.debian.org/debian"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
_DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Debian's packages have no keys of Ubuntu's archive. They are in a package of Ubuntu's, which this sum identifies.
_UBUNTU_KEYRING = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
_UBUNTU_SUM = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"


class Unavailable(Exception):
    """A package cannot be had; the message says why."""


@dataclass(frozen=True)
class Archive:
    """One release of a distribution for one machine; `folder` holds apt's lists and what is downloaded."""

    folder: Path
    mirror: str
    release: str
    machine: str

    def _keys(self) -> Path:
        if self.mirror == DEBIAN:
            return _DEBIAN_KEYS
        keys = self.folder.parent / "ubuntu-keys"
        if not keys.exists():
            with urllib.request.urlopen(f"{UBUNTU}/{_UBUNTU_KEYRING}", timeout=60) as answer:
                package: bytes = answer.read()
            if hashlib.sha256(package).hexdigest() != _UBUNTU_SUM:
                raise Unavailable(f"{UBUNTU}/{_UBUNTU_KEYRING} is not the file that was expected")
            file = self.folder.parent / "ubuntu-keyring.deb"
            file.write_bytes(package)
            unpack(file, keys)
        return keys / "usr/share/keyrings/ubuntu-archive-keyring.gpg"

    def _apt(self, tool: str, *arguments: str) -> str:
        folder = self.folder
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        settings = {
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": folder / "parts",
            "Dir::Etc::preferencesparts": folder / "parts",
            "APT::Architecture": self.machine,
            "APT::Architectures": self.machine,
            "APT::Sandbox::User": "root",
            # A release that is no longer supported stays as it is, with lists that have expired.
            "Acquire::Check-Valid-Until": "false",
        }
        command = [tool, "-qq", *(f"-o{name}={value}" for name, value in settings.items()), *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"{self.release}: {done.stderr.strip().splitlines()[-1:] or tool}")
        return done.stdout

    def update(self) -> None:
        """Fetch the lists of packages."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = f"deb [signed-by={self._keys()}] {self.mirror} {self.release} main\n"
        (self.folder / "sources.list").write_text(line)
        self._apt("apt-get", "update")

    def needed_by(self, package: str, pattern: str) -> str:
        """Return the package of this pattern that a metapackage depends on."""
        found = re.search(rf"Depends: ({pattern})", self._apt("apt-cache", "depends", package))
        if not found:
            raise Unavailable(f"{self.release}: no package {pattern} is needed by {package}")
        return found[1]

    def download(self, package: str) -> Path:
        """Download a package, and return its file."""
        for old in self.folder.glob(f"{package}_*.deb"):
            old.unlink()
        self._apt("apt-get", "download", package)
        return next(self.folder.glob(f"{package}_*.deb"))


def unpack(package: Path, into: Path) -> None:
    """Unpack the files of a package."""
    into.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg-deb", "-x", str(package), str(into)], check=True)
