#!/usr/bin/env bash
# check-systems.sh — what differs between systems is in src/base/os*, and nowhere else in src/, cli/ and cli-mpi/.
#
# No file outside asks the compiler for a system, includes a header that only some systems have, names a place of one
# system, or splits paths at a slash by itself. Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

mapfile -t files < <(find src cli cli-mpi \( -name '*.[ch]' -o -name '*.def' \) ! -path 'src/base/os*' 2>/dev/null | LC_ALL=C sort)
bad=0

look() { # what it is, pattern, files...
    local what=$1 pattern=$2 line
    shift 2
    while IFS= read -r line; do
        printf '%s: %s\n' "$line" "$what"
        bad=$((bad + 1))
    done < <(grep -nHE -- "$pattern" "$@" | sed -E 's/^([^:]+:[0-9]+):[[:space:]]*/\1: /')
}

systems='_WIN32|_WIN64|__MINGW(32|64)__|WIN32|__APPLE__|__MACH__|__linux__|__linux|__unix__|__unix|__GLIBC__|__FreeBSD__|_MSC_VER'
# Anywhere in a line: a condition may be hidden in a #define, or go on after a backslash.
look "src/base/os* alone asks for a system" "(^|[^A-Za-z0-9_])($systems)([^A-Za-z0-9_]|$)" "${files[@]}"

# What C itself has, and what every system of ours has besides (threads; the rest belongs to dependencies).
headers='assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic'
headers+='|stdbool|stddef|stdint|stdio|stdlib|stdnoreturn|string|strings|tgmath|time|uchar|wchar|wctype|pthread|immintrin'
headers+='|arm_neon|cpuid|jansson|zlib|spng|jpeglib|jerror|mpi|onq/onq|sanitizer/asan_interface'
while IFS= read -r line; do
    [[ $line =~ \<($headers)\.h\> ]] && continue
    # onq-mpi is for clusters, which are POSIX systems.
    [[ $line == cli-mpi/*'<unistd.h>' || $line == cli-mpi/*'<sched.h>' ]] && continue
    printf '%s: not every system has this header\n' "$line"
    bad=$((bad + 1))
done < <(grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<' "${files[@]}" | sed -E 's/^([^:]+:[0-9]+):[[:space:]]*/\1: /')

# In quotes stands a file of the tree; headers of a system would be found in quotes too.
while IFS=: read -r file number line; do
    [[ $line =~ \"([^\"]+)\" ]] || continue
    name=${BASH_REMATCH[1]}
    if [[ $name == base/os/* ]]; then
        printf '%s:%s: %s: src/base/os* alone sees the files of a system\n' "$file" "$number" "$name"
    elif [ -e "src/$name" ] || [ -e "include/$name" ] || [ -e "cli/$name" ] || [ -e "${file%/*}/$name" ]; then
        continue
    else
        printf '%s:%s: %s: not every system has this header\n' "$file" "$number" "$name"
    fi
    bad=$((bad + 1))
done < <(grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "${files[@]}")

look "a place of one system" '"/(proc|dev|tmp|etc|usr)/' $(printf '%s\n' "${files[@]}" | grep -v '^src/api/isolate/isolate\.c$')
look "use oq_path_last" "strrchr\([a-z_>.-]+, '/'\)" $(printf '%s\n' "${files[@]}" | grep -v '^src/samples/feed_stream\.c$')
look "use oq_cpu_has" '__builtin_cpu_(supports|init|is)\(' "${files[@]}"

[ "$bad" -eq 0 ] && { echo "check-systems: ${#files[@]} files know no system"; exit 0; }
echo "check-systems: $bad offence(s)"
exit 1
