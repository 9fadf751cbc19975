# shellcheck shell=bash
# For tests that are bash scripts: prints the line of each case, and counts them. Source it, and call `finish` at the end.
number=0
failed=0

good() { # NAME
    number=$((number + 1))
    echo "ok $number $1"
}
# The end of each file is printed with the case.
bad() { # NAME [FILE...]
    local file
    number=$((number + 1))
    failed=1
    echo "not ok $number $1"
    shift
    for file in "$@"; do tail -n 20 "$file" | sed 's/^/# /'; done
}
skip() { # NAME WHY
    good "$1 # SKIP $2"
}
# Compares a text with a pattern.
verdict() { # NAME GOT WANTED
    # shellcheck disable=SC2053 # a pattern
    if [[ $2 == $3 ]]; then
        good "$1"
    else
        bad "$1 - printed '${2//$'\n'/ }' instead of '${3//$'\n'/ }'"
    fi
}
finish() {
    echo "1..$number"
    exit "$failed"
}
skip_all() { # WHY
    echo "1..0 # SKIP $1"
    exit 0
}
