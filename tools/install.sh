#!/usr/bin/env bash
# install.sh install|uninstall PREFIX — installs what was built under PREFIX and keeps a manifest there; takes it away again.
#
# PREFIX/lib/onq/manifest.txt lists, relative to PREFIX, the files ("F path") and the folders that did not exist
# before ("D path"), so that uninstalling removes exactly what installing made. DESTDIR is put before PREFIX for packagers.
# ONQ_BUILD names another build folder.
set -eu
cd -- "$(dirname -- "$0")/.."
build=${ONQ_BUILD:-build}
verb=$1
prefix=$(realpath -m -- "$2")
root=${DESTDIR-}$prefix
manifest=$root/lib/onq/manifest.txt

remove_files() { # "F path" lines on standard input
    while read -r kind path; do
        [ "$kind" != F ] || rm -f -- "$root/$path"
    done
}

do_install() {
    local stage old
    stage=$(mktemp -d)
    # shellcheck disable=SC2064  # the value of now
    trap "rm -rf -- '$stage'" EXIT
    DESTDIR=$stage cmake --install "$build" --prefix "$prefix" >/dev/null
    mkdir -p "$stage$prefix/lib/onq"
    (cd "$stage$prefix" && find . -mindepth 1 \( -type f -o -type l \) -printf 'F %P\n') >"$stage/files"
    echo "F lib/onq/manifest.txt" >>"$stage/files"
    (cd "$stage$prefix" && find . -mindepth 1 -type d -printf '%P\n') | while IFS= read -r folder; do
        [ -d "$root/$folder" ] || echo "D $folder"
    done >"$stage/folders"
    if [ -f "$manifest" ]; then # an earlier version: its folders stay known, its leftover files go
        old=$stage/old
        cp "$manifest" "$old"
        grep '^D ' "$old" >>"$stage/folders" || true
        LC_ALL=C comm -13 <(LC_ALL=C sort "$stage/files") <(grep '^F ' "$old" | LC_ALL=C sort) | remove_files
    fi
    mkdir -p "$root" || return 1
    cmake --install "$build" --prefix "$prefix" >/dev/null
    rm -f "$build/install_manifest.txt"
    mkdir -p "$root/lib/onq"
    LC_ALL=C sort -u "$stage/folders" "$stage/files" >"$manifest"
    echo "installed $(wc -l <"$stage/files") files under $root"
}

do_uninstall() {
    if [ ! -f "$manifest" ]; then
        echo "uninstall: $manifest is not there: nothing was installed under $root" >&2
        exit 1
    fi
    local list
    list=$(cat "$manifest")
    remove_files <<<"$list"
    # Deepest first; a folder that holds something else stays.
    { grep '^D ' <<<"$list" || true; } | LC_ALL=C sort -r | while read -r _ folder; do
        rmdir --ignore-fail-on-non-empty -- "$root/$folder" 2>/dev/null || true
    done
    echo "uninstalled $(grep -c '^F ' <<<"$list") files from $root"
}

case $verb in
install) do_install ;;
uninstall) do_uninstall ;;
*) echo "install.sh install|uninstall PREFIX" >&2; exit 2 ;;
esac
