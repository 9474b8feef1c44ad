# shellcheck shell=bash disable=SC2034  # what others read
# setting.sh — read by the run.sh of each example: the program that `make` built, and a folder for what is made.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[1]}")" && pwd)
root=$(cd -- "$here/../.." && pwd)
out=${OUT:-$root/build/examples/${here##*/}}
mkdir -p "$out"
PATH=${ONQ_BUILD:-$root/build}:$PATH
digits=$root/examples/digits_cnn

step() { # shows the command, then runs it
    printf '\n$ %s\n' "$*"
    "$@"
}
