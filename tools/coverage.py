#!/usr/bin/env python3
"""coverage.py JSON - every branch of the files in tests/coverage/explained.txt is taken by a test, or explained there.

JSON is what `gcovr --json` wrote. A file of the list begins with its path and a colon; below it, indented, are the branches
that no test takes: a piece of the statement, a bar, the reason. Rows under `*:` hold in every file.
Fails when a branch is neither taken nor explained, and when an explanation explains nothing any more.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = ROOT / "tests/coverage/explained.txt"


def read_list():
    files, rows = {}, None
    for line in LIST.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            rows = files.setdefault(line.strip().rstrip(":"), {})
            continue
        piece, *reason = re.split(r"\s\|\s", line.strip(), maxsplit=1)
        if not reason:
            sys.exit(f"{LIST}: no reason: {line.strip()}")
        rows[piece.strip()] = reason[0].strip()
    return files


def statement(source, number):
    """The line, those before it that belong to the same statement, and what follows a condition."""
    text, first = source[number - 1].strip(), number - 1
    if not text.endswith(";") and number < len(source):
        text += " " + source[number].strip()
    while first > 0 and not re.search(r"[;{}:]\s*(/\*.*\*/)?$", source[first - 1].rstrip()) and source[first - 1].strip():
        first -= 1
        text = source[first].strip() + " " + text
    return text


def main():
    wanted = read_list()
    general = wanted.pop("*", {})
    used, failed, counts = set(), 0, [0, 0, 0]
    seen = {f["file"]: f for f in json.loads(pathlib.Path(sys.argv[1]).read_text())["files"]}
    for path, rows in wanted.items():
        if path not in seen:
            print(f"coverage: {path} was not compiled or run")
            failed += 1
            continue
        source = (ROOT / path).read_text().splitlines()
        for line in seen[path]["lines"]:
            branches = line.get("branches", [])
            missed = [b for b in branches if b["count"] == 0]
            counts[0] += len(branches)
            counts[1] += len(branches) - len(missed)
            if not missed:
                continue
            text = statement(source, line["line_number"])
            why = next((p for p in rows if p in text), None)
            common = next((p for p in general if p in text), None) if why is None else None
            if why is not None:
                used.add((path, why))
            elif common is not None:
                used.add(("*", common))
            else:
                print(f"{path}:{line['line_number']}: {len(missed)} of {len(branches)} branches: {source[line['line_number'] - 1].strip()}")
                failed += 1
                continue
            counts[2] += len(missed)
    for path, rows in [*wanted.items(), ("*", general)]:
        for piece in rows:
            if (path, piece) not in used:
                print(f"coverage: {path}: nothing is left to explain by '{piece}'")
                failed += 1
    print(f"coverage: {counts[0]} branches in {len(wanted)} files, {counts[1]} taken, {counts[2]} explained, {failed} open")
    return failed > 0


sys.exit(main())
