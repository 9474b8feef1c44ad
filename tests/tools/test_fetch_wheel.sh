#!/usr/bin/env bash
# test_fetch_wheel.sh — parts of a wheel come from an index as pip knows it, and only from the wheel with the sum that is
# written down. The index is a folder that this machine serves to itself.
set -eu
root=${ONQ_ROOT:?}
command -v python3 >/dev/null || exit 77
mkdir -p tools index/tool index/other
cp "$root/tools/fetch-wheel.py" tools/
python3 - <<'PY'
import zipfile
with zipfile.ZipFile("index/tool-1-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
    for name, mode in ("tool/LICENSE", 0o644), ("tool/bin/run", 0o755):
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        wheel.writestr(info, name * 1000)
PY
sum=$(sha256sum <index/tool-1-py3-none-any.whl)
sum=${sum%% *}
wrong=${sum//[0-7]/8}
printf '<a href="../tool-0-py3-none-any.whl#sha256=0">0</a>\n<a href="../tool-1-py3-none-any.whl#sha256=%s">1</a>\n' "$sum" >index/tool/index.html
printf '<a href="../tool-1-py3-none-any.whl#sha256=%s">1</a>\n' "$wrong" >index/other/index.html
printf '%s\n' "tool 1 here $sum" "tool 1 there $wrong" "other 1 here $wrong" >tools/wheels.txt

python3 -u -c 'import functools, http.server as h
class Quiet(h.SimpleHTTPRequestHandler):
    log_message = lambda *words: None
server = h.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory="index"))
print(server.server_port)
server.serve_forever()' >port &
server=$!
trap 'kill "$server"' EXIT
for _ in $(seq 100); do [ -s port ] && break; sleep 0.1; done
index=http://127.0.0.1:$(cat port)
export HOME=$PWD/home XDG_CONFIG_HOME=$PWD/home/config XDG_CONFIG_DIRS=$PWD/home/all PIP_CONFIG_FILE=/dev/null PIP_CERT='' no_proxy=127.0.0.1
unset PIP_INDEX_URL
fetch() { PIP_INDEX_URL=$index python3 tools/fetch-wheel.py "$@"; }

fetch tool here whole
[ -x whole/tool/bin/run ] && [ -f whole/tool/LICENSE ] && [ ! -x whole/tool/LICENSE ] || { echo "not unpacked as it was packed"; exit 1; }
fetch tool here part tool/LICENSE
[ "$(cd part && find . -type f)" = ./tool/LICENSE ] || { echo "more than was asked for"; exit 1; }

refused() { # text, arguments...
    ! fetch "${@:2}" none 2>err || { echo "${*:2} passes"; exit 1; }
    grep -q "$1" err || { cat err; exit 1; }
    [ ! -e none ] || { echo "${*:2}: unpacked all the same"; exit 1; }
}
refused 'does not list the wheel of tool' tool there    # a sum that the index has not
refused "has the sum $sum, not $wrong" other here       # a wheel that is not what the index says
refused 'wheels.txt has no tool for elsewhere' tool elsewhere

# Without the variable the index is the one that pip's files name: the nearest to the user wins, the variable over all.
says() { # file, index
    mkdir -p "$(dirname "$1")"
    printf '[global]\nindex-url = %s\n' "$2" >"$1"
}
configured() { # what is tried
    rm -rf found
    env -u PIP_CONFIG_FILE "${@:2}" python3 tools/fetch-wheel.py tool here found tool/LICENSE || { echo "$1 is not read"; exit 1; }
    [ -f found/tool/LICENSE ]
}
nowhere=http://127.0.0.1:1
if [ ! -e /etc/pip.conf ] && [ ! -e "$(python3 -c "import sys; print(sys.prefix)")/pip.conf" ]; then # which win over these
    says home/all/pip/pip.conf "$index"
    configured 'the configuration of the machine'
    says home/all/pip/pip.conf "$nowhere"
    says home/.pip/pip.conf "$index"
    configured "the user's old configuration"
    says home/.pip/pip.conf "$nowhere"
    says home/config/pip/pip.conf "$index/"
    configured "the user's configuration"
    says home/config/pip/pip.conf "$nowhere"
fi
says named.conf "$index"
configured 'PIP_CONFIG_FILE' PIP_CONFIG_FILE=named.conf
printf '[global]\nindex-url = %s\n[download]\nindex_url = %s\n' "$nowhere" "$index" >named.conf
configured 'the section for downloads' PIP_CONFIG_FILE=named.conf
configured 'PIP_INDEX_URL' PIP_INDEX_URL="$index"
printf 'no section\n' >named.conf
! PIP_CONFIG_FILE=named.conf python3 tools/fetch-wheel.py tool here none 2>err || { echo "nonsense passes"; exit 1; }
grep -q "^fetch-wheel: pip's configuration: " err || { cat err; exit 1; }
