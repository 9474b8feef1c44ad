"""What the calibration tests share: models, samples, the reference's calibrators, and a comparison to the bit."""

import contextlib
import io
import json
import math
import re
import struct
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import calibrate as ref

import common
from common import MODELS, ONQ, ROOT, model_names  # noqa: F401 - for those who import them from here
from quantcase import METHODS, Reader

DIGITS = ROOT / "examples" / "digits_cnn"


def sample_folders(folder):
    found = [p for p in Path(folder).glob("test_data_set_*") if p.is_dir()]
    return sorted(found, key=lambda p: int(re.search(r"(\d+)$", p.name).group(1)))


def read_samples(folder, limit=None):
    """The samples as the reference's reader gives them: one dictionary each, by input name."""
    model = onnx.load(Path(folder) / "model.onnx", load_external_data=False)
    inits = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in inits]
    samples = []
    for d in sample_folders(folder)[:limit]:
        sample = {}
        for k, name in enumerate(names):
            t = onnx.TensorProto()
            t.ParseFromString((d / f"input_{k}.pb").read_bytes())
            sample[name] = numpy_helper.to_array(t)
        samples.append(sample)
    return samples


def write_samples(folder, samples):
    """Samples (dictionaries in the order of the inputs) as test_data_set folders."""
    for n, sample in enumerate(samples):
        d = Path(folder) / f"test_data_set_{n}"
        d.mkdir(parents=True)
        for k, (name, value) in enumerate(sample.items()):
            (d / f"input_{k}.pb").write_bytes(numpy_helper.from_array(np.asarray(value), name).SerializeToString())


def reference(model, samples, method, tmp, op_types=None, stride=None, **options):
    """The reference's TensorsData. The model is read from a folder that may be written to."""
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        c = ref.create_calibrator(
            str(model),
            op_types,
            augmented_model_path=str(Path(tmp) / "augmented.onnx"),
            calibrate_method=METHODS[method],
            extra_options=options,
        )
        reader = Reader(samples)
        for start in range(0, len(samples), stride or len(samples)):
            reader.set_range(start, start + (stride or len(samples)))
            c.collect_data(reader)
        return c.compute_data()


def onq(*args, check=True, **kwargs):
    return common.onq(*args, status=0 if check else None, **kwargs)


# ---- comparing


def bits(x):
    """A float as its bits, all NaN alike."""
    x = float(x)
    return "nan" if math.isnan(x) else struct.pack("<d", x)


def differences(a, b):
    """Places where two parsed cache files differ, numbers compared by their bits. The order of tensors is free."""
    found = []

    def walk(where, x, y):
        if isinstance(x, dict) and isinstance(y, dict):
            if set(x) != set(y):
                found.append(f"{where}: {sorted(set(x) ^ set(y))[:5]} only on one side")
            elif where and list(x) != list(y) and where != ".data":
                found.append(f"{where}: keys in another order")
            for k in x:
                if k in y:
                    walk(f"{where}.{k}", x[k], y[k])
        elif isinstance(x, list) and isinstance(y, list):
            if len(x) != len(y):
                found.append(f"{where}: {len(x)} and {len(y)} elements")
                return
            bad = [i for i in range(len(x)) if type(x[i]) is not type(y[i]) or bits(x[i]) != bits(y[i])]
            if bad:
                found.append(f"{where}: {len(bad)} of {len(x)} differ, first [{bad[0]}] {x[bad[0]]!r} {y[bad[0]]!r}")
        elif type(x) is not type(y):
            found.append(f"{where}: {x!r} and {y!r}")
        elif isinstance(x, float):
            if bits(x) != bits(y):
                found.append(f"{where}: {x!r} and {y!r}")
        elif x != y:
            found.append(f"{where}: {x!r} and {y!r}")

    walk("", a, b)
    return found


def load_json(path):
    return json.loads(Path(path).read_text())


def saved(data, path):
    ref.save_tensors_data(data, path)
    return load_json(path)
