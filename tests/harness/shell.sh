# shellcheck shell=bash
# shell.sh — what every shell test has; run_script.sh has bash read it before the script.
unset BASH_ENV

fail() { echo "$*"; exit 1; }

# COMMAND | says ARGUMENTS OF GREP. Reads to the end: grep -q would stop at the first match, the command would die of
# SIGPIPE when it writes on, and pipefail would make that a failure.
says() {
    local text
    text=$(cat)
    grep -q "$@" <<<"$text"
}
