#!/usr/bin/env python3
"""zip.py FOLDER NAME FILE — a zip file of what is in FOLDER/NAME: the same files give the same bytes."""
import sys
import zipfile
from pathlib import Path

folder, name, file = sys.argv[1:]
with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
    for path in sorted(p for p in Path(folder, name).rglob("*") if p.is_file()):
        info = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
        info.external_attr = 0o100644 << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        out.writestr(info, path.read_bytes())
