# shellcheck shell=bash
# Bare roots of other distributions, for tests that run in them as chroots. Source it from the top of the tree, as root, where
# debootstrap and curl are installed. Roots stay in build/roots/ for the next time; remove the folder to have new ones.
debian=http://deb.debian.org/debian
ubuntu=http://archive.ubuntu.com/ubuntu
ubuntu_keyring=$PWD/build/roots/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg
mkdir -p build/roots

# Debian's packages have no keys of Ubuntu's archive. They are in a package of Ubuntu's, which this sum identifies.
ubuntu_keys() {
    local package=$PWD/build/roots/ubuntu-keyring.deb
    local sum=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8
    [ ! -e build/roots/keys ] || return 0
    curl -fsS -o "$package" "$ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
    echo "$sum  $package" | sha256sum -c --quiet
    dpkg-deb -x "$package" build/roots/keys
}

# Makes build/roots/SUITE unless it exists.
root() { # SUITE MIRROR PACKAGES [OPTIONS...]
    local suite=$1 mirror=$2 packages=$3 script=/usr/share/debootstrap/scripts
    shift 3
    [ ! -e "build/roots/$suite.made" ] || return 0
    rm -rf "build/roots/$suite" "build/roots/$suite.packages"
    [ ! -e "$script/$suite" ] || script=$script/$suite
    [ -f "$script" ] || script=$script/gutsy # the script for all releases of Ubuntu, where debootstrap is older than the release
    echo "== making a root of $suite"
    debootstrap --variant=minbase ${packages:+"--include=$packages"} "$@" "$suite" "build/roots/$suite" "$mirror" "$script" \
        >"build/roots/$suite.log" 2>&1 || {
        tail -n 5 "build/roots/$suite.log"
        echo "$0: $mirror: no root of $suite could be made; see build/roots/$suite.log"
        return 1
    }
    touch "build/roots/$suite.made"
}

debian_root() { # SUITE [PACKAGES]
    root "$1" "$debian" "${2-}"
}
ubuntu_root() { # SUITE [PACKAGES]
    ubuntu_keys && root "$1" "$ubuntu" "${2-}" --components=main,universe --keyring="$ubuntu_keyring"
}

# Installs packages into a root, those of the list that its distribution has.
furnish() { # SUITE PACKAGES...
    local suite=$1 at=build/roots/$1
    shift
    [ "$(cat "$at.packages" 2>/dev/null)" != "$*" ] || return 0
    echo "== installing packages in the root of $suite"
    cp /etc/resolv.conf "$at/etc/resolv.conf"
    # Services must not start in a chroot.
    printf '#!/bin/sh\nexit 101\n' >"$at/usr/sbin/policy-rc.d"
    chmod 755 "$at/usr/sbin/policy-rc.d"
    # shellcheck disable=SC2016 # for the inner shell
    chroot "$at" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive sh -euc '
        apt-get -q -o Acquire::Check-Valid-Until=false update # a copy of the archive may lag
        for package in "$@"; do
            apt-cache show "$package" >/dev/null 2>&1 || { echo "$package: not in this distribution"; continue; }
            known="${known-} $package"
        done
        apt-get -q -y install --no-install-recommends $known
        apt-get -q clean' sh "$@" >>"$at.log" 2>&1 || {
        tail -n 5 "$at.log"
        echo "$0: packages could not be installed in the root of $suite; see $at.log"
        return 1
    }
    echo "$*" >"$at.packages"
}

# Runs a command of this machine where a root has what programs expect: /proc, /sys, an empty /tmp, shared memory. The namespaces
# of mounts and processes end with the command, so that nothing of it stays.
mounted() { # SUITE COMMAND...
    local at=$PWD/build/roots/$1
    shift
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --pid --fork sh -euc '
        mount -t proc proc "$0/proc"
        mount -t sysfs -o ro sysfs "$0/sys"
        mount -t tmpfs tmpfs "$0/tmp"
        mkdir -p "$0/dev/shm"
        mount -t tmpfs tmpfs "$0/dev/shm"
        exec "$@"' "$at" "$@"
}

# Runs a command in a root. The contents of FILES are in its /tmp.
inside() { # SUITE FILES COMMAND...
    local suite=$1 at=$PWD/build/roots/$1 files=$2
    shift 2
    # shellcheck disable=SC2016 # for the inner shell
    mounted "$suite" sh -euc '
        cp -r "$1"/. "$0/tmp"
        shift
        exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"' "$at" "$files" "$@"
}

# Runs a command in a root that sees the source tree at its own path, and is in it.
inside_tree() { # SUITE COMMAND...
    local suite=$1 at=$PWD/build/roots/$1
    shift
    mkdir -p "$at$PWD"
    # shellcheck disable=SC2016 # for the inner shell
    mounted "$suite" sh -euc '
        mount --bind "$1" "$0$1"
        exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 sh -euc "cd \"\$0\"; exec \"\$@\"" "$@"' \
        "$at" "$PWD" "$@"
}
