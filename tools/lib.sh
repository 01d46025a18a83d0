# lib.sh - what the shell scripts in this folder share. Source it from the project's root.

say() {
    printf 'msprobe: %s\n' "$*"
}

# die <what is wrong> [<command that mends it>]
die() {
    printf '\nmsprobe: cannot go on: %s\n' "$1" >&2
    if [ $# -gt 1 ]; then
        printf '  run:  %s\n' "$2" >&2
    fi
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# logged <log> <command...>: run quietly; when it fails show the log's end.
logged() {
    local log=$1
    shift
    mkdir -p "$(dirname "$log")"
    "$@" >"$log" 2>&1 </dev/null && return 0
    tail -n 40 "$log" >&2
    return 1
}
