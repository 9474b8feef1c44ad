#!/usr/bin/env bash
# setup.sh STAGE... — makes the machine ready; quick when it is. Stages:
#   build, mpi, test, pages, bench, check, package   Debian packages of that section of tools/packages.txt
#   venv        build/venv with what tests/requirements.txt pins
#   runtime     build/runtime/libonnxruntime.so.VERSION and its licences, unpacked from the wheel of PyPI
#   windows     a cross compiler for Windows (Debian packages), and that system's ONNX Runtime in build/windows
#   macos       the ONNX Runtime of macOS in build/macos
#   wine        wine, which runs what was built for Windows
#   older       build/runtimes/VERSION with an older runtime, which tests compare with
#   runtimes    the same for every version of tools/wheels.txt
#   aarch64     a cross compiler and qemu-user (Debian packages), and in build/aarch64 the libraries and the runtime of
#               that architecture, and a qemu-user that runs it: root, runtime, qemu
#
# setup.sh --look STAGE... installs nothing: it says in one line what is missing and what installs it, and exits 1.
#
# Each stage looks at what is really there, not only at a mark it left, and can be run again after a broken run.
# Packages are installed as root or with sudo. Says one line about what it does and nothing when there is nothing to do.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

runtime_version=$(awk '$1 == "onnxruntime" { print $2; exit }' tools/wheels.txt)
runtime_name=libonnxruntime.so.$runtime_version
requirements=tests/requirements.txt
venv=build/venv

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: error: %s\n' "$*" >&2
    exit 1
}

# ---- packages

section() { # names of one section of packages.txt, for the system given (Debian without)
    awk -v want="[$1]" -v names="${2:-debian}" '
        /^# debian / { for (i = 2; i <= NF; i++) column[$i] = i - 1 }
        /^\[/ { on = $0 == want; next }
        on && NF && !/^#/ && $column[names] != "-" { gsub(",", "\n", $column[names]); print $column[names] }
    ' tools/packages.txt
}

# The column of packages.txt for this machine; nothing when there is none.
this_system() {
    local id='' like='' word
    if [ -r "${ONQ_OS_RELEASE:-/etc/os-release}" ]; then
        id=$(sed -n 's/^ID=//p' "${ONQ_OS_RELEASE:-/etc/os-release}" | tr -d '"')
        like=$(sed -n 's/^ID_LIKE=//p' "${ONQ_OS_RELEASE:-/etc/os-release}" | tr -d '"')
    fi
    for word in $id $like; do
        case $word in
        debian | ubuntu) echo debian; return ;;
        fedora | rhel | centos) echo fedora; return ;;
        arch) echo arch; return ;;
        alpine) echo alpine; return ;;
        *suse*) echo opensuse; return ;;
        esac
    done
    ! have brew || echo homebrew
}

install_command() { # system
    case $1 in
    debian) echo "apt-get install" ;;
    fedora) echo "dnf install" ;;
    arch) echo "pacman -S" ;;
    alpine) echo "apk add" ;;
    opensuse) echo "zypper install" ;;
    homebrew) echo "brew install" ;;
    esac
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

lists_are_fresh() { [ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -mmin -60 2>/dev/null)" ]; }

install_packages() { # section, package...
    local name=$1 log=build/setup-apt.log
    shift
    say "installing Debian packages ($name): $*"
    : >"$log"
    # A failing update may still leave usable lists.
    lists_are_fresh || apt update >>"$log" 2>&1
    apt install --no-install-recommends "$@" >>"$log" 2>&1 && return 0
    # Lists may be older than the mirror, and an interrupted run leaves packages half-installed: mend both, then once more.
    {
        apt update
        as_root dpkg --configure -a
        apt --fix-broken install
        apt install --no-install-recommends "$@"
    } >>"$log" 2>&1
}

is_optional() { case $1 in mpi | pages | bench | check | package | windows | wine | aarch64) true ;; *) false ;; esac; }

# What is missing of a section, a name a line; nothing when it can be built. Only dpkg is asked what is there already.
look_packages() { # section, system
    local wanted missing
    mapfile -t wanted < <(section "$1" "$2")
    if is_optional "$1" || have_by_hand "$1"; then return 0; fi
    missing=("${wanted[@]}")
    [ "$2" != debian ] || ! have dpkg-query || mapfile -t missing < <(missing_packages "${wanted[@]}")
    printf '%s\n' "${missing[@]}"
}

look() { # stage...
    local stage system how missing=()
    system=$(this_system)
    for stage in "$@"; do
        case $stage in
        runtime)
            is_elf "build/runtime/$runtime_name" ||
                say "ONNX Runtime is not in build/runtime; commands that run a model will look elsewhere ('make setup' fetches it)"
            ;;
        *) mapfile -t -O "${#missing[@]}" missing < <(look_packages "$stage" "${system:-debian}") ;;
        esac
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    how=$(install_command "$system")
    case $system in
    debian) fail "missing: ${missing[*]} ('make setup' installs them; or: $how ${missing[*]})" ;;
    '') fail "missing: what Debian calls ${missing[*]} (tools/packages.txt has the names of other systems)" ;;
    *) fail "something is missing to build onq: $how ${missing[*]}" ;;
    esac
}

stage_packages() { # section
    local wanted missing package
    mapfile -t wanted < <(section "$1")
    [ "${#wanted[@]}" -gt 0 ] || fail "tools/packages.txt has no section [$1]"
    if ! have dpkg-query apt-get; then
        is_optional "$1" || look "$1"
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

runtime_texts=(LICENSE ThirdPartyNotices.txt) # what may not be missing where the library is passed on

runtime_complete() { # folder, version
    local text
    is_elf "$1/libonnxruntime.so.$2" || return 1
    for text in "${runtime_texts[@]}"; do [ -s "$1/$text" ] || return 1; done
}

# Puts the library and its licences into a folder: from build/venv, or from the wheel of an architecture.
get_runtime() { # folder, architecture, version (without: the one that onq is built for)
    local folder=$1 arch=$2 version=${3:-$runtime_version} name work package file
    name=libonnxruntime.so.$version
    runtime_complete "$folder" "$version" && return 0
    mkdir -p "$folder"
    rm -rf "$folder"/unpack.*
    work=$(mktemp -d "$folder/unpack.XXXXXX") || fail "cannot write to $folder"
    # shellcheck disable=SC2064  # the value of now
    trap "rm -rf -- '$work'" EXIT
    package=("$venv"/lib/python3.*/site-packages/onnxruntime)
    if [ "$arch" = "$(uname -m)" ] && [ -f "${package[0]}/capi/$name" ]; then
        say "copying ONNX Runtime $version from $venv"
    else
        say "downloading ONNX Runtime $version for $arch (wheel of PyPI, only $name is kept)"
        have python3 || fail "no python3 to download it with"
        python3 tools/fetch-wheel.py "onnxruntime==$version" "$arch" "$work" "onnxruntime/capi/$name" \
            "${runtime_texts[@]/#/onnxruntime/}" || fail "cannot get ONNX Runtime $version for $arch"
        package=("$work/onnxruntime")
    fi
    for file in "capi/$name" "${runtime_texts[@]}"; do
        cp -L -- "${package[0]}/$file" "$work/" || fail "cannot copy ${package[0]}/$file"
    done
    is_elf "$work/$name" || fail "what came as ONNX Runtime is not a library"
    for file in "$name" "${runtime_texts[@]}"; do
        chmod 644 "$work/$file" && mv -f -- "$work/$file" "$folder/$file" || fail "cannot write to $folder"
    done
}

older_version=1.21.1 # the oldest with which minmax gives the same bytes

# Where there is no network, tests that want it say so.
stage_older() {
    local version
    for version in "$@"; do
        (get_runtime "build/runtimes/$version" "$(uname -m)" "$version") ||
            say "skipped: no ONNX Runtime $version; tests of older runtimes are left out"
    done
}

all_versions() { awk -v arch="$(uname -m)" '$1 == "onnxruntime" && $3 == arch { print $2 }' tools/wheels.txt; }

# ---- aarch64

# What the programs and tests of that architecture link with and run with. Unpacked, not installed: nothing of the
# machine changes, and no root is needed.
aarch64_libraries=(libc6 libc6-dev linux-libc-dev libgcc-s1 libstdc++6 libjansson4 libjansson-dev libjpeg62-turbo
    libjpeg62-turbo-dev libspng0 libspng-dev zlib1g zlib1g-dev libcmocka0 libcmocka-dev libcrypt-dev)

unpack_packages() { # folder, architecture, suite of Debian (nothing: this machine's lists), package...
    local folder=$1 arch=$2 suite=$3 work options package
    work=$(mktemp -d) || return 1
    chmod 755 "$work"
    mkdir -p "$folder" "$work/lists/partial" "$work/archives/partial" "$work/debs"
    : >"$work/status"
    options=(-q -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o "Dir::State::Lists=$work/lists"
        -o "Dir::State::Status=$work/status" -o "Dir::Cache::Archives=$work/archives" -o "Dir::Cache::pkgcache="
        -o "Dir::Cache::srcpkgcache=" -o "Acquire::Retries=3" -o "APT::Sandbox::User=root" -o "Acquire::Languages=none")
    if [ -n "$suite" ]; then
        echo "deb ${ONQ_DEBIAN_MIRROR:-http://deb.debian.org/debian} $suite main" >"$work/sources.list"
        options+=(-o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=-")
    fi
    {
        apt-get "${options[@]}" update || true # lists of other makers may fail
        (cd "$work/debs" && apt-get "${options[@]}" download "${@:4}") &&
            for package in "$work"/debs/*.deb; do dpkg -x "$package" "$folder" || break; done
    } >build/setup-aarch64.log 2>&1
    local status=$?
    rm -rf "$work"
    return "$status"
}

get_aarch64_root() {
    local root=$PWD/build/aarch64/root
    [ ! -e "$root/.complete" ] || return 0
    have apt-get dpkg || return 0
    say "unpacking Debian's libraries for arm64 into build/aarch64/root"
    rm -rf "$root"
    unpack_packages "$root" arm64 '' "${aarch64_libraries[@]}" ||
        { tail -n 5 build/setup-aarch64.log >&2; fail "cannot fetch libraries for arm64"; }
    touch "$root/.complete"
}

# ONNX Runtime crashes under the qemu of Debian 12 and runs under that of its backports.
get_aarch64_qemu() {
    local found least=8
    [ ! -x build/aarch64/qemu/usr/bin/qemu-aarch64 ] || return 0
    found=$(qemu-aarch64 --version 2>/dev/null | sed -n 's/^qemu-aarch64 version \([0-9]*\).*/\1/p')
    [ "${found:-0}" -lt "$least" ] && have apt-get dpkg || return 0
    say "unpacking a newer qemu-user into build/aarch64/qemu (Debian's backports)"
    unpack_packages build/aarch64/qemu "$(dpkg --print-architecture)" bookworm-backports qemu-user ||
        { rm -rf build/aarch64/qemu; say "skipped: no newer qemu-user; models of 64-bit Arm cannot be run"; }
}

# The runtime of another system, as its wheel has it, with its licences.
get_foreign_runtime() { # system, name of the library in the wheel
    local folder=build/$1/runtime file
    [ ! -s "$folder/$2" ] || [ ! -s "$folder/LICENSE" ] || return 0
    say "downloading ONNX Runtime $runtime_version for $1 (wheel of PyPI, only $2 is kept)"
    rm -rf "$folder"
    mkdir -p "$folder"
    python3 tools/fetch-wheel.py onnxruntime "$1" "$folder" "onnxruntime/capi/$2" "${runtime_texts[@]/#/onnxruntime/}" ||
        fail "cannot get ONNX Runtime $runtime_version for $1"
    for file in "capi/$2" "${runtime_texts[@]}"; do mv -- "$folder/onnxruntime/$file" "$folder/"; done
    rm -rf "$folder/onnxruntime"
}

stage_windows() {
    stage_packages windows
    get_foreign_runtime windows onnxruntime.dll
}

stage_aarch64() {
    stage_packages aarch64
    get_aarch64_root
    get_aarch64_qemu
    get_runtime build/aarch64/runtime aarch64
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
    build | mpi | test | pages | bench | check | package) stage_packages "$stage" ;;
    venv) stage_venv ;;
    runtime) get_runtime build/runtime "$(uname -m)" ;;
    windows) stage_windows ;;
    macos) get_foreign_runtime macos "libonnxruntime.$runtime_version.dylib" ;;
    wine) stage_packages wine ;;
    older) stage_older "$older_version" ;;
    runtimes)
        mapfile -t versions < <(all_versions)
        stage_older "${versions[@]}"
        ;;
    aarch64) stage_aarch64 ;;
    *) fail "no stage is called $stage" ;;
    esac
done
