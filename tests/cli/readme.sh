#!/usr/bin/env bash
# readme.sh — the walk of README.md works as pasted: its sh blocks are run as one script, in a folder with the examples.
ln -s "$ONQ_ROOT/examples" examples
awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$ONQ_ROOT/README.md" >walk.sh
test -s walk.sh || { echo "README.md has no sh block"; exit 1; }
bash -euo pipefail walk.sh >out 2>err || { cat out err; exit 1; }
cat out err
# What a comment shows as the answer is the answer.
sed -n 's/^# \(onq: .*\)$/\1/p' walk.sh | while IFS= read -r line; do
    grep -qxF -e "$line" out err || { echo "README.md shows '$line', which did not come"; exit 1; }
done
# Links lead to files.
for page in README.md CONTRIBUTING.md docs/*.md; do
    [ -e "$ONQ_ROOT/$page" ] || continue
    folder=$(dirname "$ONQ_ROOT/$page")
    grep -o '](\([^)#]*\)' "$ONQ_ROOT/$page" | sed 's/^](//' | grep -v '^http' | while IFS= read -r link; do
        [ -e "$folder/$link" ] || { echo "$page: no $link"; exit 1; }
    done
done
