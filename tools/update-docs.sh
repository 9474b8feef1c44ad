#!/usr/bin/env bash
# update-docs.sh [ONQ] — rewrites docs/CLI.md and docs/commands/*.md from the program's option tables.
set -eu
cd -- "$(dirname -- "$0")/.."
onq=${1:-build/onq}
"$onq" --version >/dev/null
mkdir -p docs/commands
rm -f docs/commands/*.md
"$onq" --markdown >docs/CLI.md
for command in $("$onq" --list-commands); do
    "$onq" --markdown "$command" >"docs/commands/$command.md"
done
