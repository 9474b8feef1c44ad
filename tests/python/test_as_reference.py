"""test_as_reference.py - onq in the place of onnxruntime.quantization: every way to import it, before and after, and back."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"

IMPORTS = [
    "import onnxruntime.quantization as q",
    "import onnxruntime.quantization; q = onnxruntime.quantization",
    "from onnxruntime import quantization as q",
    "import importlib; q = importlib.import_module('onnxruntime.quantization')",
    "import onnxruntime.quantization.calibrate; import onnxruntime; q = onnxruntime.quantization",
    "from onnxruntime.quantization.quant_utils import QuantType; import onnxruntime.quantization as q",
]
CHECK = """
import onq.quantization as ours
assert q is ours, q
import onnxruntime
assert onnxruntime.quantization is ours
from onnxruntime.quantization.quant_utils import QuantType as a
from onnxruntime.quantization import QuantType as b
assert a is b is ours.QuantType
assert onnxruntime.quantization.quantize.__module__.startswith("onq.")
"""


def python(code, *arguments):
    done = subprocess.run(
        [sys.executable, *(["-c", code] if code else []), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(PYTHON)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", IMPORTS)
@pytest.mark.parametrize("before", ["", "import onnxruntime", "import onnxruntime.quantization.calibrate"])
def test_every_import_gives_onq(line, before):
    python(f"{before}\nimport onq\nonq.as_onnxruntime()\n{line}\n{CHECK}")


@pytest.mark.parametrize("before", ["", "import onnxruntime", "import onnxruntime.quantization.calibrate"])
def test_it_is_taken_back(before):
    python(f"""
{before}
import sys, onq
with onq.as_onnxruntime() as placed:
    import onnxruntime.quantization.calibrate as inside
    with onq.as_onnxruntime():
        import onnxruntime.quantization as nested
    import onnxruntime
    assert onnxruntime.quantization is nested
placed.undo()
import onnxruntime.quantization.calibrate as outside
assert inside.__name__ == "onq.quantization.calibrate", inside.__name__
assert outside.__name__ == "onnxruntime.quantization.calibrate", outside.__name__
assert onnxruntime.quantization.calibrate is outside
""")


def test_a_module_the_reference_has_and_onq_has_not_is_not_mixed_in():
    python("""
import onq
onq.as_onnxruntime()
try:
    import onnxruntime.quantization.no_such_module
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("found")
""")


def test_a_script_and_a_module_run_unchanged(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import sys
import helper
from onnxruntime.quantization import QuantType
print(QuantType.__module__, sys.argv[1:], __name__, helper.here)
""")
    (tmp_path / "helper.py").write_text("here = True\n")
    out = python(None, "-m", "onq.as_reference", script, "one", "--two")
    assert out.split(" ", 1) == ["onq.quantization.qtypes", "['one', '--two'] __main__ True\n"]
    out = python(None, "-m", "onq.as_reference", "-m", "onnxruntime.quantization.preprocess", "--help")
    assert "--input" in out
    done = subprocess.run([sys.executable, "-m", "onq.as_reference"], env={**os.environ, "PYTHONPATH": str(PYTHON)},
                          capture_output=True, text=True)
    assert done.returncode == 2 and "usage: python -m onq.as_reference" in done.stderr
