#!/usr/bin/env bash
# setup.sh STAGE... — makes the machine ready; quick when it is. Stages:
#   build, mpi, test, bench, check   Debian packages of that section of tools/packages.txt
#   venv                             build/venv with what tests/requirements.txt pins
#   runtime                          build/runtime/libonnxruntime.so.VERSION, unpacked from the wheel of PyPI
#
# setup.sh --look STAGE... installs nothing: it says in one line what is missing and what installs it, and exits 1.
#
# Each stage looks at what is really there, not only at a mark it left, and can be run again after a broken run.
# Packages are installed as root or with sudo. Says one line about what it does and nothing when there is nothing to do.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

runtime_version=1.31.1
runtime_file=build/runtime/libonnxruntime.so.$runtime_version
requirements=tests/requirements.txt
venv=build/venv

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}

# ---- Debian packages

section() { # names of one section of packages.txt
    awk -v want="[$1]" '/^\[/ { on = $0 == want; next } on && NF && !/^#/ { print $1 }' tools/packages.txt
}

missing_packages() { # of the names given
    local installed
    # shellcheck disable=SC2016  # dpkg's own placeholders
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
        awk '$1 == "installed" { print $2 }' | LC_ALL=C sort -u)
    LC_ALL=C comm -23 <(printf '%s\n' "$@" | LC_ALL=C sort -u) <(printf '%s\n' "$installed")
}

as_root() {
    local sudo=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || return 1
        sudo=(sudo)
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive "$@"
}

apt() { as_root apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"; }

have() { # every one of these programs
    local program
    for program in "$@"; do command -v "$program" >/dev/null || return 1; done
}

# What a section is for, looked for directly: serves where packages came another way.
have_by_hand() {
    case $1 in
    build)
        have cc cmake ninja pkg-config python3 &&
            pkg-config --exists jansson libjpeg spng zlib
        ;;
    test) have nm c++ && pkg-config --exists cmocka ;;
    *) false ;;
    esac
}

install_packages() { # section, package...
    local name=$1 log=build/setup-apt.log
    shift
    say "installing Debian packages ($name): $*"
    : >"$log"
    # A failing update may still leave usable lists.
    apt update >>"$log" 2>&1
    apt install --no-install-recommends "$@" >>"$log" 2>&1 && return 0
    # An interrupted run leaves packages half-installed: finish those, then once more.
    {
        as_root dpkg --configure -a
        apt --fix-broken install
        apt install --no-install-recommends "$@"
    } >>"$log" 2>&1
}

is_optional() { case $1 in mpi | bench | check) true ;; *) false ;; esac; }

# What is missing of a section, on one line; nothing when it can be built.
look_packages() { # section
    local wanted missing
    mapfile -t wanted < <(section "$1")
    if is_optional "$1" || have_by_hand "$1"; then return 0; fi
    missing=("${wanted[@]}")
    ! have dpkg-query || mapfile -t missing < <(missing_packages "${wanted[@]}")
    printf '%s\n' "${missing[@]}"
}

look() { # stage...
    local stage missing=()
    for stage in "$@"; do
        case $stage in
        runtime)
            is_elf "$runtime_file" ||
                say "ONNX Runtime is not in build/runtime; commands that run a model will look elsewhere ('make setup' fetches it)"
            ;;
        *) mapfile -t -O "${#missing[@]}" missing < <(look_packages "$stage") ;;
        esac
    done
    [ "${#missing[@]}" -eq 0 ] ||
        fail "missing: ${missing[*]} ('make setup' installs them; on Debian: apt-get install ${missing[*]})"
}

stage_packages() { # section
    local wanted missing package
    mapfile -t wanted < <(section "$1")
    [ "${#wanted[@]}" -gt 0 ] || fail "tools/packages.txt has no section [$1]"
    if ! have dpkg-query apt-get; then
        have_by_hand "$1" || is_optional "$1" ||
            fail "not a Debian system: install by hand what corresponds to: ${wanted[*]}"
        return 0
    fi
    mapfile -t missing < <(missing_packages "${wanted[@]}")
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        say "cannot install ${missing[*]}: neither root nor sudo"
    else
        install_packages "$1" "${missing[@]}" && return 0
        tail -n 5 build/setup-apt.log >&2
    fi
    if is_optional "$1"; then
        for package in "${missing[@]}"; do
            apt install --no-install-recommends "$package" >>build/setup-apt.log 2>&1 ||
                say "skipped: package $package cannot be installed"
        done
        return 0
    fi
    have_by_hand "$1" ||
        fail "packages are missing: as root, apt-get install ${missing[*]}"
    say "going on with what is there"
}

# ---- Python

find_python() { # Debian's own first: python3-venv belongs to it
    local candidate
    for candidate in /usr/bin/python3 python3; do
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

new_venv() {
    local python
    [ ! -L "$venv" ] || fail "$venv is a link and not as $requirements wants it; not touched"
    python=$(find_python) || fail "no python3 with venv (Debian: python3-venv)"
    "$python" -m venv --clear "$venv" >build/setup-venv.log 2>&1 ||
        { cat build/setup-venv.log >&2; fail "cannot make $venv"; }
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# Every pin is installed to its end (pip writes RECORD last).
venv_complete() {
    local line name found
    "$venv/bin/python" -c '' 2>/dev/null || return 1
    while IFS= read -r line; do
        name=${line%%==*}
        found=("$venv"/lib/python3.*/site-packages/"${name//-/_}-${line##*==}".dist-info/RECORD)
        [ -f "${found[0]}" ] || return 1
    done < <(grep -E '^[a-z0-9_.-]+==' "$requirements")
}

stage_venv() {
    local stamp=$venv/.onq-requirements
    if venv_complete && { [ -L "$venv" ] || cmp -s "$requirements" "$stamp"; }; then
        return 0
    fi
    say "making $venv (Python packages of $requirements)"
    # Without the mark of a finished run nothing in there can be relied on.
    { [ -e "$stamp" ] && pip --version >/dev/null 2>&1; } || new_venv
    rm -f "$stamp"
    pip install -q -r "$requirements" || fail "pip could not install $requirements"
    venv_complete || fail "$venv is incomplete after pip install"
    cp "$requirements" "$stamp"
}

# ---- ONNX Runtime

is_elf() { [ "$(head -c 4 -- "$1" 2>/dev/null | tr -d '\0' | od -An -c | tr -d ' ')" = '177ELF' ]; }

stage_runtime() {
    local work found
    is_elf "$runtime_file" && return 0
    mkdir -p build/runtime
    rm -rf build/runtime/unpack.*
    work=$(mktemp -d build/runtime/unpack.XXXXXX) || fail "cannot write to build/runtime"
    # shellcheck disable=SC2064  # the value of now
    trap "rm -rf -- '$work'" EXIT
    found=("$venv"/lib/python3.*/site-packages/onnxruntime/capi/"${runtime_file##*/}")
    if [ -f "${found[0]}" ]; then
        say "copying ONNX Runtime $runtime_version from $venv"
        cp -L -- "${found[0]}" "$work/library" || fail "cannot copy ${found[0]}"
    else
        say "downloading ONNX Runtime $runtime_version (wheel of PyPI, only ${runtime_file##*/} is kept)"
        pip --version >/dev/null 2>&1 || new_venv
        pip -q download --no-deps --dest "$work" "onnxruntime==$runtime_version" ||
            fail "pip could not download onnxruntime $runtime_version"
        "$venv/bin/python" - "$work" "capi/${runtime_file##*/}" <<'PY' || fail "the wheel has no ${runtime_file##*/}"
import pathlib, shutil, sys, zipfile
work, member = pathlib.Path(sys.argv[1]), "onnxruntime/" + sys.argv[2]
(wheel,) = work.glob("*.whl")
with zipfile.ZipFile(wheel) as z, z.open(member) as src, open(work / "library", "wb") as dst:
    shutil.copyfileobj(src, dst)
PY
    fi
    is_elf "$work/library" || fail "what came as ONNX Runtime is not a library"
    chmod 644 "$work/library"
    mv -f -- "$work/library" "$runtime_file"
}

if [ "${1-}" = --look ]; then
    shift
    look "$@"
    exit 0
fi

mkdir -p build || exit 1
exec 8>build/.setup.lock
command -v flock >/dev/null && ! flock -n 8 && { say "waiting for another set-up"; flock 8; }
for stage in "$@"; do
    case $stage in
    build | mpi | test | bench | check) stage_packages "$stage" ;;
    venv) stage_venv ;;
    runtime) stage_runtime ;;
    *) fail "no stage is called $stage" ;;
    esac
done
