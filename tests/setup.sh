#!/bin/sh
# Installs what both README commands need on Debian 12 and Ubuntu 24.04. Source it from the top of the tree:
# `packages A B ...` installs missing packages of the distribution, `environment A B ...` installs Python packages into .venv.
set -eu

say() { printf '== %s\n' "$*" >&2; }

packages() {
    missing=
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | cut -c1-2)" = ii ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "$0: packages are missing:$missing; install them with apt, as root" >&2
        exit 1
    fi
    say "installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null
    # shellcheck disable=SC2086 # a list of names
    apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing >/dev/null
}

# Uses Debian's own python3, because another python3 in PATH may lack venv or be too old.
environment() {
    python=/usr/bin/python3
    .venv/bin/pip --version >/dev/null 2>&1 || "$python" -m venv --clear .venv
    say "installing Python packages into .venv"
    .venv/bin/pip install -q --disable-pip-version-check "$@"
    # pip builds without isolation look for meson and ninja in PATH.
    PATH=$PWD/.venv/bin:$PATH
    export PATH
}
