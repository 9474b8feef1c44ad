"""tests/hostile/malformed holds what its make.py makes, and nothing else; and the onnx package does not load what onq calls damaged."""
import pathlib
import subprocess
import sys

import onnx
import pytest
from google.protobuf.message import DecodeError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))

import modeltool  # noqa: E402

FOLDER = modeltool.ROOT / "tests" / "hostile" / "malformed"


def test_files_are_up_to_date(tmp_path):
    subprocess.run([sys.executable, str(FOLDER / "make.py"), str(tmp_path)], check=True, stdout=subprocess.DEVNULL)
    made = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    kept = {p.name: p.read_bytes() for p in FOLDER.iterdir() if p.name in made or p.suffix in (".onnx", ".tsv")}
    assert kept == made, "run tests/hostile/malformed/make.py"


def test_damaged_files_are_damaged_for_protobuf_too():
    """What open refuses as malformed is not a message for protobuf either, so onq refuses nothing that others read.

    Exceptions: an empty file is an empty message; upb takes a number of more than 64 bits and cuts it."""
    for line in (FOLDER / "expected.tsv").read_text().splitlines():
        name, stage, code, _, _ = line.split("\t")
        if (stage, code) != ("open", "20") or name in ("empty_file", "varint_too_large"):
            continue
        with pytest.raises(DecodeError):
            onnx.ModelProto().ParseFromString((FOLDER / f"{name}.onnx").read_bytes())
