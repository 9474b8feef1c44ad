#!/usr/bin/env bash
# check-systems.sh — what differs between systems is in src/base/os*, and nowhere else in src/, cli/ and cli-mpi/.
#
# No file outside asks the compiler for a system, includes a header that only some systems have, calls what only some
# systems have, names a place of one system, or splits paths at a slash by itself. Prints each offence; exits 1 if any.
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

systems='_WIN(16|32|64)|__WIN(32|64|NT)(__)?|WIN(32|64|NT)|__MINGW(32|64)__|__CYGWIN__|__MSYS__|_MSC_VER|_UCRT|__MSVCRT__'
systems+='|__APPLE__|__MACH__|__DARWIN[A-Z0-9_]*|TARGET_OS_[A-Z]+|__(gnu_)?linux(__)?|__unix(__)?|__ANDROID__|__GLIBC__'
systems+='|__GNU_LIBRARY__|__BIONIC__|__(Free|Open|Net)BSD__|__DragonFly__|__ELF__|__sun|_POSIX_VERSION|__has_include'
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

# Any other way to include something: by a macro, after a comment, in other letters.
others='#[[:space:]]*(include_next|import|embed)([^A-Za-z0-9_]|$)|#[[:space:]]*include[[:space:]]*([^<"[:space:]]|$)'
others+='|^[[:space:]]*[^*[:space:]].*#[[:space:]]*include[[:space:]]*[<"]|%:[[:space:]]*[a-z]|^[[:space:]]*#[[:space:]]*[a-z]*\\$'
look "only '#include <...>' and '#include \"...\"' at the beginning of a line can be judged" "$others" "${files[@]}"

# Headers of C declare more than C has, each system its own; what any of these was wanted for is in base/os.h.
functions='access|alarm|v?asprintf|chdir|chmod|close|dirname|dlopen|dlsym|dup2?|environ|execv[pe]*|fdopen|fileno|flock|fmemopen|fork'
functions+='|fseeko|ftello|ftruncate|getc?wd|getdelim|getline|getpid|getppid|getuid|gmtime_r|ioctl|isatty|kill|localtime_r|lseek|lstat'
functions+='|memmem|memrchr|mkdtemp|mkfifo|mkostemps?|mkstemps?|mmap|mprotect|munmap|nanosleep|open_memstream|opendir|openat|pclose'
functions+='|pipe2?|popen|posix_[a-z_]+|pread|putenv|pwrite|random|readlink|realpath|rmdir|secure_getenv|setenv|sigaction|sleep'
functions+='|srandom|stat|stpcpy|strcasestr|strchrnul|strerror_r|strptime|strsep|strverscmp|symlink|sysconf|syscall|system|timegm'
functions+='|uname|unlink|unsetenv|usleep|waitpid|_exit|LoadLibrary[AW]?|GetProcAddress|CreateFile[AW]|_w[a-z]+|_(open|stat64|fileno|setmode|popen)'
# Comments and texts may have the words; onq-mpi is for clusters, which are POSIX systems.
while IFS= read -r line; do
    printf '%s: base/os.h has it for every system\n' "$line"
    bad=$((bad + 1))
done < <(awk -v pattern="(^|[^A-Za-z0-9_.>])($functions)[[:space:]]*\\\\(" '
    FILENAME ~ /^cli-mpi\// { next }
    {
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
        gsub(/\/\*([^*]|\*[^\/])*\*\//, " ", line)
        sub(/\/\*.*|\/\/.*|^ \*.*/, "", line)
        if (line ~ pattern) { sub(/^[ \t]+/, ""); print FILENAME ":" FNR ": " $0 }
    }' "${files[@]}")

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

look "a place of one system" '"([A-Z]:[/\\]+[A-Za-z]|/(proc|dev|tmp|etc|usr|var|run|sys|bin|lib|opt|home)[/"])' \
    "${files[@]/#src\/api\/isolate\/isolate.c//dev/null}"
look "use oq_path_last" "strrchr\(.+, ('/'|'[\\\\]+'|47)\)" "${files[@]/#src\/samples\/feed_stream.c//dev/null}"
look "instructions of one system" '(^|[^A-Za-z0-9_])(__)?asm(__)?([^A-Za-z0-9_]|$)' \
    "${files[@]/#src\/base\/system\/cpu.c//dev/null}"
look "use oq_cpu_has" '__builtin_cpu_(supports|init|is)\(' "${files[@]}"

[ "$bad" -eq 0 ] && { echo "check-systems: ${#files[@]} files know no system"; exit 0; }
echo "check-systems: $bad offence(s)"
exit 1
