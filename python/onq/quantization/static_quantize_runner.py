"""python -m onq.quantization.static_quantize_runner: static quantization from the command line.

The samples are the test_data_set_* folders next to the model, each with input_0.pb, input_1.pb ...
"""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from .._model import onnx_package
from .calibrate import CalibrationDataReader, CalibrationMethod
from .qtypes import QuantFormat, QuantType
from .quantize import StaticQuantConfig, quantize

_TYPES = {t.name.lower(): t for t in QuantType}
_METHODS = {m.name.lower(): m for m in CalibrationMethod}
_FORMATS = {f.name.lower(): f for f in QuantFormat}

# Flags and the keys of extra_options that they set.
_FLAGS = {
    "enable_subgraph": ("EnableSubgraph", "quantize the bodies of If, Loop and Scan too"),
    "force_quantize_no_input_check": (
        "ForceQuantizeNoInputCheck",
        "quantize operators that only move values even if their input is not quantized",
    ),
    "matmul_const_b_only": ("MatMulConstBOnly", "quantize MatMul only with a constant second input"),
    "add_qdq_pair_to_weight": ("AddQDQPairToWeight", "keep weights float and put a pair after them"),
    "dedicated_qdq_pair": ("DedicatedQDQPair", "pairs of its own for every node"),
    "calib_tensor_range_symmetric": ("CalibTensorRangeSymmetric", "make ranges symmetric about zero"),
    "calib_moving_average": ("CalibMovingAverage", "minmax: a moving average instead of the extremes"),
    "use_qdq_contrib_ops": ("UseQDQContribOps", "pairs of the domain com.microsoft"),
    "qdq_keep_removable_activations": ("QDQKeepRemovableActivations", "keep Relu and Clip that a range could replace"),
    "qdq_disable_weight_adjust_for_int32_bias": (
        "QDQDisableWeightAdjustForInt32Bias",
        "do not raise weight scales that are too small for an int32 bias",
    ),
}


class OnnxModelCalibrationDataReader(CalibrationDataReader):
    """Samples from the test_data_set_* folders next to a model, in the order of their numbers."""

    def __init__(self, model_path: str | os.PathLike[str]):
        from .._tools import inspect

        self._inputs = [entry["name"] for entry in inspect(model_path)["inputs"]]
        folders = Path(model_path).resolve().parent.glob("test_data_set_*")
        self._folders = iter(sorted(folders, key=lambda f: [int(n) for n in re.findall(r"\d+", f.name)]))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample."""
        folder = next(self._folders, None)
        if folder is None:
            return None
        return {name: self.read_onnx_pb_data(folder / f"input_{i}.pb") for i, name in enumerate(self._inputs)}

    def read_onnx_pb_data(self, file_pb: str | os.PathLike[str]) -> np.ndarray:
        """The tensor in a .pb file."""
        onnx = onnx_package()

        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(Path(file_pb).read_bytes()))


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m onq.quantization.static_quantize_runner", description=__doc__)
    parser.add_argument("-i", "--input_model_path", required=True, help="the model to read")
    parser.add_argument("-o", "--output_quantized_model_path", required=True, help="the model to write")
    parser.add_argument("--activation_type", choices=list(_TYPES), default="quint8", help="type of activations")
    parser.add_argument("--weight_type", choices=list(_TYPES), default="qint8", help="type of weights")
    parser.add_argument("--calibration_method", choices=list(_METHODS), default="minmax", help="how ranges are found")
    parser.add_argument("--quant_format", choices=list(_FORMATS)[::-1], default="qdq", help="form of the result")
    for name, (_, text) in _FLAGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument("--disable_quantize_bias", action="store_true", help="leave biases float")
    parser.add_argument("--quantize_bias", action="store_true", help="quantize biases, which is the default")
    parser.add_argument(
        "--op_types_to_exclude_output_quantization",
        nargs="+",
        default=[],
        metavar="TYPE",
        help="operator types whose outputs stay float",
    )
    parser.add_argument("--minimum_real_range", type=float, default=0.0001, help="make every range at least this wide")
    parser.add_argument("--per_channel", action="store_true", help="quantize weights per channel")
    parser.add_argument("--nodes_to_quantize", nargs="+", metavar="NAME", help="quantize these nodes only")
    parser.add_argument("--nodes_to_exclude", nargs="+", metavar="NAME", help="leave these nodes float")
    parser.add_argument(
        "--op_per_channel_axis",
        nargs=2,
        action="append",
        metavar=("OP_TYPE", "AXIS"),
        default=[],
        help="the axis of channels in weights of an operator type",
    )
    parser.add_argument("--tensor_quant_overrides", metavar="FILE", help="JSON file with overrides of single tensors")
    return parser.parse_args(argv)


def get_tensor_quant_overrides(file: str | os.PathLike[str] | None) -> dict[str, list[dict[str, Any]]]:
    """The overrides of a JSON file, {"tensor": [{"scale": 0.005, "zero_point": 12}]}."""
    if not file:
        return {}
    with open(file, encoding="utf-8") as f:
        overrides = json.load(f)
    for entries in overrides.values():
        for entry in entries:
            if "quant_type" in entry:
                entry["quant_type"] = _TYPES.get(str(entry["quant_type"]).lower(), entry["quant_type"])
            if "scale" in entry:
                entry["scale"] = np.array(entry["scale"], dtype=np.float32)
            if "zero_point" in entry:
                entry["zero_point"] = np.array(entry["zero_point"])
    return overrides


def main(argv: list[str] | None = None) -> None:
    """Quantizes as the command line says."""
    args = parse_arguments(argv)
    extra: dict[str, Any] = {key: getattr(args, name) for name, (key, _) in _FLAGS.items()}
    extra["OpTypesToExcludeOutputQuantization"] = args.op_types_to_exclude_output_quantization
    extra["QDQOpTypePerChannelSupportToAxis"] = {op: int(axis) for op, axis in args.op_per_channel_axis}
    extra["QuantizeBias"] = not args.disable_quantize_bias
    extra["MinimumRealRange"] = args.minimum_real_range
    extra["TensorQuantOverrides"] = get_tensor_quant_overrides(args.tensor_quant_overrides)
    config = StaticQuantConfig(
        calibration_data_reader=Path(args.input_model_path).resolve().parent,
        calibrate_method=_METHODS[args.calibration_method],
        quant_format=_FORMATS[args.quant_format],
        activation_type=_TYPES[args.activation_type],
        weight_type=_TYPES[args.weight_type],
        nodes_to_quantize=args.nodes_to_quantize,
        nodes_to_exclude=args.nodes_to_exclude,
        per_channel=args.per_channel,
        extra_options=extra,
    )
    quantize(args.input_model_path, args.output_quantized_model_path, config)


if __name__ == "__main__":
    main()
