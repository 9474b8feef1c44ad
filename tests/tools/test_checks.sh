#!/usr/bin/env bash
# test_checks.sh — the checks of tools/ find what they are for: each offence is planted in a small tree of its own, and
# the same tree without it passes.
mkdir -p tree/tools tree/src/base tree/src/onnx tree/cli tree/include/onq
cp "$ONQ_ROOT"/tools/check-layers.sh "$ONQ_ROOT"/tools/check-exports.sh tree/tools/
cd tree || exit 1
echo '#include <stddef.h>' >include/onq/onq.h
printf '#include "base/low.h"\n\n#include <stdio.h>\n' >src/base/low.c
echo '#include "onq/onq.h"' >src/base/low.h
printf '#include "onnx/high.h"\n#include "base/low.h"\n' >src/onnx/high.c
touch src/onnx/high.h cli/args.h
printf '#include "args.h"\n#include <onq/onq.h>\n' >cli/args.c

# planted NAME FILE LINE WANTED — adds the line, wants a failure that says WANTED, takes it away
planted() {
    local had=no
    [ ! -e "$2" ] || { had=yes; cp "$2" ../kept; }
    mkdir -p "$(dirname "$2")"
    echo "$3" >>"$2"
    if bash tools/check-layers.sh >../said; then
        echo "check-layers does not see: $1"
        exit 1
    fi
    grep -qF -- "$4" ../said || { echo "check-layers on $1 says:"; cat ../said; exit 1; }
    if [ $had = yes ]; then cp ../kept "$2"; else rm "$2"; fi
    rmdir --ignore-fail-on-non-empty "$(dirname "$2")"
    bash tools/check-layers.sh >/dev/null
}
bash tools/check-layers.sh
planted "a lower layer that sees a higher one" src/base/low.c '#include "onnx/high.h"' 'base may not see onnx'
planted "an include not written from src/" src/onnx/high.c '#include "high.h"' 'write it from src/'
planted "a way around by dots" src/base/low.c '#include "base/../onnx/high.h"' 'write it from src/'
planted "our header in angle brackets" src/base/low.c '#include <onnx/high.h>' 'in quotes'
planted "a layer nobody knows" src/misc/x.c '#include <stdio.h>' 'no layer is called misc'
planted "a program that sees the insides" cli/args.c '#include "base/low.h"' 'a program sees only'
planted "a public header that needs another" include/onq/onq.h '#include "base/low.h"' 'stands alone'
planted "one name twice" src/onnx/low.c '#include <stdio.h>' 'more than one file'

# what differs between systems
cp "$ONQ_ROOT"/tools/check-systems.sh tools/
foreign() { # FILE LINE WANTED — the check sees the line in the file, and not in src/base/os_some.c
    [ ! -e "$1" ] || cp "$1" ../kept
    echo "$2" >>"$1"
    echo "$2" >src/base/os_some.c
    if bash tools/check-systems.sh >../said; then
        echo "check-systems does not see: $2"
        exit 1
    fi
    grep -qF -- "$1" ../said && grep -qF -- "$3" ../said && ! grep -q os_some ../said ||
        { echo "check-systems on $2 says:"; cat ../said; exit 1; }
    cp ../kept "$1"
    rm src/base/os_some.c
    bash tools/check-systems.sh >/dev/null
}
bash tools/check-systems.sh
foreign src/onnx/high.c '#ifdef _WIN32' 'asks for a system'
foreign src/onnx/high.c '#if defined(__APPLE__) || defined(__linux__)' 'asks for a system'
foreign cli/args.c '#include <sys/mman.h>' 'not every system'
foreign cli/args.c '#include <unistd.h>' 'not every system'
foreign src/base/low.c '#include <windows.h>' 'not every system'
foreign src/base/low.c '#include "windows.h"' 'not every system'
foreign cli/args.c '#  include "sys/mman.h"' 'not every system'
foreign src/onnx/high.c '#include "base/os/os_windows.h"' 'alone sees the files of a system'
foreign src/onnx/high.c '#define HERE (defined(_WIN32) && 1)' 'asks for a system'
foreign src/onnx/high.c '    || defined(__APPLE__)' 'asks for a system'
foreign src/onnx/high.c 'static const char *place = "/proc/self/exe";' 'a place of one system'
foreign src/onnx/high.c "    const char *slash = strrchr(path, '/');" 'use oq_path_last'
foreign src/onnx/high.c '    p = strrchr(names[i], 47);' 'use oq_path_last'
foreign src/onnx/high.c '    if (__builtin_cpu_supports("avx2"))' 'use oq_cpu_has'
foreign src/onnx/high.c '#ifdef __gnu_linux__' 'asks for a system'
foreign src/onnx/high.c '#if __has_include(<unistd.h>)' 'asks for a system'
foreign src/onnx/high.c '#include HEADER' 'can be judged'
foreign src/onnx/high.c '/**/#include <unistd.h>' 'can be judged'
foreign src/onnx/high.c '%:include <unistd.h>' 'can be judged'
foreign src/onnx/high.c '#include_next <unistd.h>' 'can be judged'
foreign src/onnx/high.c 'int getpid(void);' 'base/os.h has it'
foreign src/onnx/high.c '    int n = *getenv("A") + fileno (stdin);' 'base/os.h has it'
foreign src/onnx/high.c '    /* wait */ usleep(3);' 'base/os.h has it'
foreign src/onnx/high.c '    __asm__("syscall");' 'instructions of one system'
foreign src/onnx/high.c 'static const char *place = "C:/Windows";' 'a place of one system'
echo '    say("kill(1)"); p->kill(2); /* usleep(3) */' >>src/onnx/high.c
bash tools/check-systems.sh >../said || { cat ../said; exit 1; }
rm tools/check-systems.sh

# unused functions
cp "$ONQ_ROOT"/tools/check-unused.sh tools/
sed -i 's/^    \[oq_.*//' tools/check-unused.sh # nothing waits for a caller here
unused() { # WANTED — the check fails and says WANTED
    if bash tools/check-unused.sh >../said; then
        echo "check-unused does not see: $1"
        exit 1
    fi
    grep -qF -- "$1" ../said || { echo "check-unused says:"; cat ../said; exit 1; }
}
mkdir src/shape
cat >src/shape/used.h <<'C'
int oq_called(int x);
int oq_in_a_table(int x);
int oq_rule_made(int x);
static inline int oq_inline(int x) {
    return x;
}
C
cat >src/shape/used.c <<'C'
int oq_called(int x) {
    return oq_inline(x);
}
int oq_in_a_table(int x) {
    return oq_called(x); /* oq_alone(x) */
}
int oq_rule_made(int x) {
    return x;
}
static int (*const all[])(int) = {oq_in_a_table,
#define ROW(rule) oq_rule_##rule,
#include "shape/row.def"
};
C
echo 'ROW(made)' >src/shape/row.def
bash tools/check-unused.sh
echo 'int oq_alone(int x);' >>src/shape/used.h
printf 'int oq_alone(int x) {\n    return x;\n}\n' >>src/shape/used.c
unused 'oq_alone: no caller'
sed -i 's/^declare -A waiting=(/&\n    [oq_alone]="a reason"/' tools/check-unused.sh
bash tools/check-unused.sh
printf 'static int f(int x) {\n    return oq_alone(x);\n}\n' >>src/shape/used.c
unused 'oq_alone: has a caller now'
sed -i 's/oq_alone/oq_another/' tools/check-unused.sh
unused 'oq_another: on the list'
rm -r src/shape tools/check-unused.sh

# options read by their names
cp "$ONQ_ROOT"/tools/check-options.sh tools/
mkdir -p src/api/options
echo 'OQ_EXTRA("Key", FLAG, "", "true|false", "own")' >src/api/options/extra.def
echo 'static x rows[] = {OQ_FLAG("group", 0, "", "A flag.")};' >src/api/options/option_groups.c
printf '#define OQ_ROW_COMMON \\\n    OQ_INT("common", 0, "", "", "2..", "N", "Number.")\n' >src/api/options/shared_rows.h
printf 'static x rows[] = {OQ_ROW_COMMON, OQ_ENUM(\n    "own", 0)};\nint f(o) {\n    return oq_opt_flag(o, "own") + oq_opt_int(\n        o, "group") + oq_opt_int(o, "common");\n}\n' >src/api/one.c
printf 'static x rows[] = {OQ_TEXT("other", 0)};\n' >src/api/two.c
printf 'int f(o) {\n    return OQ_CHOSEN(job->opts, "other", L) + oq_extra_flag(o, "Key", 1);\n}\n' >src/api/shared.c
bash tools/check-options.sh
misnamed() { # FILE LINE NAME — the check fails with the line and names the option
    cp "$1" ../kept
    echo "$2" >>"$1"
    if bash tools/check-options.sh >../said; then
        echo "check-options does not see: $2"
        exit 1
    fi
    grep -qF -- "no option '$3'" ../said || { cat ../said; exit 1; }
    cp ../kept "$1"
}
misnamed src/api/one.c 'x = oq_opt_str(o, "onw");' onw
misnamed src/api/one.c 'x = oq_opt_str(o, "other");' other
misnamed src/api/shared.c 'x = oq_opt_is_set(r->job->opts, "others");' others
misnamed src/api/shared.c 'x = oq_extra_find(o, "own");' own
twice() { # ROW NAME — the check names both files
    printf '%s\n' "$1" >src/api/three.c
    if bash tools/check-options.sh >../said; then
        echo "check-options does not see: $1"
        exit 1
    fi
    grep -qF -- "option '$2' is written in more than one table" ../said && grep -qF '    src/api/three.c' ../said ||
        { cat ../said; exit 1; }
    rm src/api/three.c
}
twice 'static x rows[] = {OQ_TEXT("other", 0, "", "", "A", "Another text.")};' other
twice 'static x rows[] = {OQ_INT("common", 0, "", "", "1..", "N", "Another range.")};' common
printf 'static x rows[] = {/* Own sense: here it is a name. */\n    OQ_TEXT("other", 0)};\n' >src/api/three.c
bash tools/check-options.sh
rm -r src/api tools/check-options.sh

# files named in comments
cp "$ONQ_ROOT"/tools/check-comments.sh "$ONQ_ROOT"/tools/list-files.sh tools/
touch src/onnx/graph.h # an example in check-layers.sh
printf '/* low.c, see base/low.h\n * and high.c. */\nint x; /* tools/check-comments.sh */ char *s = "none.c";\n' >src/base/low.c
bash tools/check-comments.sh
echo ' /* written by gone.c, which went */' >>src/base/low.c
if bash tools/check-comments.sh >../said; then exit 1; fi
grep -qF 'src/base/low.c: a comment names gone.c' ../said
printf '/* onnx/low.h */\n' >src/base/low.c
if bash tools/check-comments.sh >../said; then exit 1; fi
grep -qF 'names onnx/low.h' ../said
rm tools/check-comments.sh

# words
cp "$ONQ_ROOT"/tools/check-words.sh tools/
mkdir -p docs
echo 'Leaves nothing behind.' >docs/page.md
printf 'int behind; /* left behind, and then\n * after it */ char *s = "there is no \\"name\\"";\n' >src/base/low.c
bash tools/check-words.sh
worded() { # TEXT PART
    printf '%s\n' "$1" >src/base/low.c
    if bash tools/check-words.sh >../said; then exit 1; fi
    grep -qF -- "src/base/low.c:1: write $2" ../said || { cat ../said; exit 1; }
}
worded '/* what stands behind it */' '"after"'
worded 'fail("it is none of these");' '"is not one of"'
worded 'fail("x is no number");' '"is not a"'
worded 'int told; /* It tells why. */' '"says"'
worded '/* Is it there? */' 'a statement'
rm -r docs tools/check-words.sh
printf '' >src/base/low.c

# operators that are compared by name
cp "$ONQ_ROOT"/tools/check-operators.sh tools/
mkdir -p src/shape
echo '#define OQ_CONSTANT "Constant"' >src/onnx/operators.h
printf 'make(a, OQ_CONSTANT, "a");\nmake("x_QuantizeLinear");\n/* "Constant" */\n' >src/shape/x.c
bash tools/check-operators.sh
compared() { # LINE WANTED
    echo "$1" >src/shape/y.c
    if bash tools/check-operators.sh >../said; then echo "check-operators does not see: $1"; exit 1; fi
    grep -qF -- "src/shape/y.c:1: $2" ../said || { cat ../said; exit 1; }
}
compared 'if (oq_str_is(n->op_type, "DequantizeLinear"))' 'use OQ_'
compared '{"Constant", 1},' 'use OQ_'
compared 'if (oq_node_is(n, OQ_CONSTANT))' 'ask for the kind'
compared 'return oq_domain_is_onnx(d) || oq_str_is(d, "ai.onnx");' 'use oq_domain_'
rm -r src/shape src/onnx/operators.h tools/check-operators.sh

# errors that may be missing
cp "$ONQ_ROOT"/tools/check-errors.sh tools/
mkdir -p src/shape
echo 'void f(onq_error *err) { *err = why; err->code = 1; }' >src/base/err.c
printf 'int f(const onq_error *why,\n      onq_error *err) {\n    return g(err, why->text); /* *err is free */\n}\n' >src/shape/x.c
bash tools/check-errors.sh
erring() { # LINE WANTED
    echo "$1" >src/shape/y.c
    if bash tools/check-errors.sh >../said; then echo "check-errors does not see: $1"; exit 1; fi
    grep -qF -- "src/shape/y.c:1: $2" ../said || { cat ../said; exit 1; }
}
erring '    *err = why;' 'err may be NULL: hand'
erring 'if (x) *err = (onq_error){0};' 'err may be NULL: hand'
erring 'copy = *err;' 'err may be NULL: hand'
erring '    err->code = ONQ_E_OPTION;' 'err may be NULL: use'
erring 'memmove(err->text, p, n);' 'err may be NULL: use'
erring 'static int f(onq_error *why) {' 'call it err'
rm -r src/shape src/base/err.c tools/check-errors.sh

# exports
mkdir src/api
touch src/api/api.c
echo 'ONQ_API int onq_one(void);' >>include/onq/onq.h
echo 'int onq_one(void) { return 1; }' >ok.c
cc -shared -fPIC ok.c -o ok.so
bash tools/check-exports.sh ok.so
echo 'int oq_inside(void) { return 1; }' >>ok.c
cc -shared -fPIC ok.c -o foreign.so
if bash tools/check-exports.sh foreign.so; then exit 1; fi
echo 'ONQ_API const char *onq_two(int a);' >>include/onq/onq.h
if bash tools/check-exports.sh ok.so >../said; then exit 1; fi
grep -qx onq_two ../said

# what the process shares
cp "$ONQ_ROOT"/tools/check-state.sh tools/
bash tools/check-state.sh ok.so
for call in 'setenv("A", "b", 1)' 'umask(0)' 'signal(1, 0)' 'popen("x", "r") == 0' 'setlocale(0, "") == 0'; do
    printf '#include <locale.h>\n#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <sys/stat.h>\n' >shares.c
    echo "int onq_one(void) { return (int)($call != 0); }" | sed 's/ == 0 != 0/ == 0/' >>shares.c
    cc -w -shared -fPIC shares.c -o shares.so
    if bash tools/check-state.sh shares.so >../said; then echo "check-state does not see: $call"; exit 1; fi
    grep -q 'shares.so imports .*which the process shares' ../said || { cat ../said; exit 1; }
done
echo 'int onq_one(void) { static int n; return ++n; }' >shares.c
cc -shared -fPIC shares.c -o shares.so
if bash tools/check-state.sh shares.so >../said; then echo "check-state does not see a static variable"; exit 1; fi
grep -q 'shares.so has the variable n, which outlives a job' ../said || { cat ../said; exit 1; }
echo 'int f(void) { return clock_gettime(CLOCK_REALTIME, 0); }' >src/base/clock.c
if bash tools/check-state.sh ok.so >../said; then exit 1; fi
grep -qF 'src/base/clock.c:1: use CLOCK_MONOTONIC' ../said
rm src/base/clock.c tools/check-state.sh

# the fuzz driver: a target with a planted fault is caught, and the input kept
cat >target.c <<'C'
#include <stdint.h>
#include <stdlib.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 2 && data[0] == 'a' && data[2] == 0xff) {
        abort();
    }
    return 0;
}
C
mkdir seeds none
printf abc >seeds/one
cc -std=c17 -D_GNU_SOURCE target.c "$ONQ_ROOT/tests/fuzz/replay_main.c" -o target
export ONQ_BUILD=$PWD
./target --rounds 0 seeds
if ./target --rounds 100000 seeds; then exit 1; fi
test "$(head -c 1 crash-target.bin)" = a
if ./target --rounds 0 crash-target.bin; then exit 1; fi
if ./target none; then exit 1; fi # nothing tested is a failure

# links
cp "$ONQ_ROOT"/tools/check-links.sh tools/
mkdir -p docs
printf '# A page\n\n## What `it` does, twice\n\n[here](#what-it-does-twice), [there](docs/other.md#top), [far](https://x.org/a.md)\n' >page.md
printf '# Top\n\n[up](../page.md), `[code](nowhere.md)`\n\n```text\n[block](nowhere.md)\n```\n' >docs/other.md
bash tools/check-links.sh || { echo "check-links complains of good links"; exit 1; }
link() { # LINK WANTED
    echo "[x]($1)" >>docs/other.md
    if bash tools/check-links.sh >../said; then
        echo "check-links does not see: $1"
        exit 1
    fi
    grep -qF -- "$2" ../said || { echo "check-links on $1 says:"; cat ../said; exit 1; }
    sed -i '$d' docs/other.md
}
link nowhere.md 'there is no such file'
link ../page.md#nothing 'no heading of'
link '#what-it-does-twice' 'no heading of'
mkdir -p docs/guides
printf '[other](other.md#top), [how](guides/how.md)\n' >docs/README.md
echo '# How' >docs/guides/how.md
bash tools/check-links.sh || { echo "check-links complains of a whole index"; exit 1; }
for page in docs/more.md docs/guides/more.md; do
    echo '# More' >$page
    if bash tools/check-links.sh >../said; then
        echo "check-links does not see that $page is in no index"
        exit 1
    fi
    grep -qF "docs/README.md: no link to $page" ../said || { cat ../said; exit 1; }
    rm $page
done
