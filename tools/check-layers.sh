#!/usr/bin/env bash
# check-layers.sh — the layers of src/ see only those before them, and programs see include/onq/onq.h and one
# header of base only.
#
# Includes in src/ are written from src/ ("onnx/graph.h"), so that a violation shows in the line itself. File
# names are unique across the tree (breakpoints, __FILE__, object names). Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

layers=(base onnx shape samples engine calibrate prepare quantize debug tune api)
declare -A rank
for i in "${!layers[@]}"; do rank[${layers[i]}]=$i; done
bad=0
checked=0

offence() {
    printf '%s\n' "$1"
    bad=$((bad + 1))
}

# Each line: FILE:NUMBER:#include "x" or <x>
includes() {
    find "$@" \( -name '*.[ch]' -o -name '*.def' \) -print0 2>/dev/null |
        LC_ALL=C sort -z | xargs -0 -r grep -HnE '^[[:space:]]*#[[:space:]]*include'
}

check_src() { # place, layer, quoted name
    local target=${3%%/*}
    if [ "$3" = onq/onq.h ]; then
        return
    elif [[ $3 != */* || $3 == *..* ]]; then
        offence "$1: \"$3\": write it from src/ (\"$2/$3\")"
    elif [ -z "${rank[$target]-}" ]; then
        offence "$1: \"$3\": no layer is called $target"
    elif [ "${rank[$target]}" -gt "${rank[$2]}" ]; then
        offence "$1: \"$3\": $2 may not see $target"
    fi
}

check_program() { # place, quoted name
    if [ "$2" = onq/onq.h ] || [ "$2" = base/os_program.h ]; then
        return
    elif [[ $2 == */* ]]; then
        offence "$1: \"$2\": a program sees only onq/onq.h, base/os_program.h and its own headers"
    elif [ ! -e "cli/$2" ] && [ ! -e "${1%%/*}/$2" ]; then
        offence "$1: \"$2\": not a header of ${1%%/*}/"
    fi
}

for folder in src/*/; do
    [ -d "$folder" ] || continue
    layer=$(basename "$folder")
    [ -n "${rank[$layer]-}" ] || offence "$folder: no layer is called $layer"
done
if compgen -G 'src/*.[ch]' >/dev/null; then
    offence "src/: a source outside a layer: $(compgen -G 'src/*.[ch]' | tr '\n' ' ')"
fi

pattern='^([^:]+):([0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*(["<])([^">]+)[">]'
while IFS= read -r line; do
    [[ $line =~ $pattern ]] || { offence "$line: not a plain include"; continue; }
    file=${BASH_REMATCH[1]} place="${BASH_REMATCH[1]}:${BASH_REMATCH[2]}"
    quote=${BASH_REMATCH[3]} name=${BASH_REMATCH[4]}
    checked=$((checked + 1))
    top=${file%%/*}
    if [ "$quote" = '<' ]; then
        # Angle brackets are for the system, the dependencies and onq/onq.h.
        if [ "$name" != onq/onq.h ] && { [ -e "src/$name" ] || [ -e "cli/$name" ]; }; then
            offence "$place: <$name>: write our own headers in quotes"
        fi
    elif [ "$top" = src ]; then
        layer=${file#src/}
        layer=${layer%%/*}
        [ -n "${rank[$layer]-}" ] && check_src "$place" "$layer" "$name"
    elif [ "$top" = include ]; then
        offence "$place: \"$name\": the public header stands alone"
    else
        check_program "$place" "$name"
    fi
done < <(includes src cli cli-mpi include)

while IFS= read -r name; do
    offence "$name: more than one file of this name: $(find src cli cli-mpi -name "$name" 2>/dev/null | tr '\n' ' ')"
done < <(find src cli cli-mpi -name '*.[ch]' -printf '%f\n' 2>/dev/null | LC_ALL=C sort | uniq -d)

if [ "$bad" -gt 0 ]; then
    echo "check-layers: $bad offence(s)"
    exit 1
fi
echo "check-layers: $checked includes in order"
