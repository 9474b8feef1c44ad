"""test_migration.py - docs/guides/migration.md has all that is public in the reference, and names only options that exist."""
import inspect
import pathlib
import re
import types

import onnxruntime.quantization as reference
import pytest
from onnxruntime.quantization import calibrate, matmul_bnb4_quantizer, matmul_nbits_quantizer, qdq_loss_debug
from onnxruntime.quantization import static_quantize_runner
from onnxruntime.quantization.execution_providers import qnn

from common import ROOT, onq

PAGE = (ROOT / "docs" / "guides" / "migration.md").read_text()
# Names in `code`, first words of calls and options left apart.
NAMES = {name for code in re.findall(r"`([^`\n]+)`", PAGE) for name in re.findall(r"[\w.]+", code)}


def parameters(*functions):
    return {p for f in functions for p in inspect.signature(f).parameters} - {"self"}


def classes(module):
    return [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__
            and not c.__name__.endswith("Quantizer") or c in (matmul_nbits_quantizer.MatMulNBitsQuantizer,
                                                              matmul_bnb4_quantizer.MatMulBnb4Quantizer)]


WANTED = {
    "names": {n for n, v in vars(reference).items() if not n.startswith("_") and not isinstance(v, types.ModuleType)},
    "quantize": parameters(reference.quantize_static, reference.quantize_dynamic, reference.quantize,
                           reference.StaticQuantConfig, reference.DynamicQuantConfig, reference.get_qdq_config,
                           qnn.get_qnn_qdq_config) - {"quant_config"},
    "prepare": parameters(reference.quant_pre_process, qnn.qnn_preprocess_model),
    "calibrate": parameters(reference.create_calibrator, calibrate.MinMaxCalibrater, calibrate.EntropyCalibrater,
                            calibrate.PercentileCalibrater, calibrate.DistributionCalibrater),
    "nbits": parameters(*classes(matmul_nbits_quantizer), *classes(matmul_bnb4_quantizer)) - {"config"},
    "debug": {n for n, f in vars(qdq_loss_debug).items()
              if inspect.isfunction(f) and f.__module__ == qdq_loss_debug.__name__ and not n.startswith("_")},
    "extra": set(re.findall(r"^\s+([A-Z]\w+) = ", reference.quantize_static.__doc__, re.M)),
}


def source_keys():
    """What the sources of the reference read from extra_options."""
    found = set()
    for path in pathlib.Path(reference.__file__).parent.rglob("*.py"):
        found |= set(re.findall(r'extra_options(?:\.get\(|\[)\s*"([A-Z][^"]+)"', path.read_text()))
    return found


@pytest.mark.parametrize("what", sorted(WANTED))
def test_nothing_is_missing(what):
    assert WANTED[what], what
    assert WANTED[what] - NAMES == set()


def test_all_keys_are_there():
    rows = re.findall(r"^\| `(\w[\w.]*)=", onq("--markdown", "static", status=0).stdout, re.M)
    assert len(rows) > 20
    assert (set(rows) | source_keys()) - set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.M)) == set()


def options(command):
    text = onq("--markdown", command, status=0).stdout
    return set(re.findall(r"--([a-z_0-9]+)", text))


def test_options_exist():
    known = set().union(*(options(c) for c in onq("--list-commands", status=0).stdout.split())) | {"help"}
    named = {n.rstrip("_") for n in re.findall(r"`[^`\n]*?--([a-z_0-9]+)", PAGE)} - {"calib"}
    assert named and named - known == set()


def test_options_of_the_scripts_are_taken():
    """As they are: none is unknown to the command that does the script's job."""
    scripts = {"static": static_quantize_runner, "nbits": matmul_nbits_quantizer, "bnb4": matmul_bnb4_quantizer}
    # of NVIDIA's algorithm, which the page says is not offered
    absent = {"calib_dataset_name", "tokenizer_dir", "calibration_method", "cache_dir"}
    for command, module in scripts.items():
        wanted = set(re.findall(r'"--([a-z_]+)"', inspect.getsource(module)))
        wanted -= absent if command == "nbits" else set()
        assert wanted and wanted - options(command) == set(), command
