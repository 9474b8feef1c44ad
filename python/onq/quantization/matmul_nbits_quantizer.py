"""Weights of MatMul and Gather in 2, 4 or 8 bits, in blocks; also python -m onq.quantization.matmul_nbits_quantizer."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._job import Job, plain
from .._model import onnx_package
from ._guard import Guarded
from ._weight import quantize_weight
from .calibrate import CalibrationDataReader
from .onnx_model import ONNXModel
from .qtypes import QuantFormat
from .quant_utils import attribute_to_kwarg  # noqa: F401 - a name that programs import from here

if TYPE_CHECKING:
    import onnx

logger = logging.getLogger("onq")

_KERNELS = ("quantize_matmul_2bits", "quantize_matmul_4bits", "quantize_matmul_8bits", "quantize_qdq_matmul_4bits")


def __getattr__(name: str) -> Any:
    if name in _KERNELS:  # of the runtime's Python package, which the reference imports here
        from onnxruntime.capi import _pybind_state

        return getattr(_pybind_state, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class WeightOnlyQuantConfig:
    """What the methods have in common; every argument is an attribute."""

    def __init__(
        self,
        algorithm: str,
        quant_format: QuantFormat,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
        customized_weight_config: dict | None = None,
    ):
        """
        Args:
            algorithm: the name of the method.
            quant_format: QOperator (MatMulNBits, GatherBlockQuantized) or QDQ (DequantizeLinear in front).
            op_types_to_quantize: MatMul and Gather; MatMul by default.
            quant_axes: the axis of blocks by operator, (("MatMul", 0), ("Gather", 1)) by default.
            customized_weight_config: options for single nodes, {"node": {"bits": 8}}.
        """
        self.algorithm = algorithm
        self.quant_format = quant_format
        self.op_types_to_quantize = set(op_types_to_quantize) if op_types_to_quantize else {"MatMul"}
        self.quant_axes = dict(quant_axes) if quant_axes else {"MatMul": 0, "Gather": 1}
        self.customized_weight_config = customized_weight_config

    def options(self) -> dict[str, Any]:
        """The options of `onq nbits` that only this method has."""
        return {}


def _only_operators(name: str, quant_format: QuantFormat) -> None:
    if quant_format != QuantFormat.QOperator:
        raise AssertionError(f"{name} only supports QOperator format")


class DefaultWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """Scale and zero point of each block from its extremes."""

    def __init__(
        self,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
        bits: int = 4,
        channel_wised_quantize: bool = False,
    ):
        """
        Args:
            block_size: weights that share a scale.
            is_symmetric: without zero points.
            accuracy_level: how exactly MatMulNBits computes, 0 to 4.
            quant_format, op_types_to_quantize, quant_axes: see WeightOnlyQuantConfig.
            bits: 2, 4 or 8.
            channel_wised_quantize: one block for each channel; in QDQ format.
        """
        super().__init__("DEFAULT", quant_format, op_types_to_quantize, quant_axes)
        self.block_size = block_size
        self.is_symmetric = is_symmetric
        self.bits = bits
        self.accuracy_level = accuracy_level
        self.channel_wised_quantize = channel_wised_quantize
        if channel_wised_quantize and quant_format == QuantFormat.QOperator:
            raise NotImplementedError("channel_wised_quantize is for QuantFormat.QDQ")

    def options(self) -> dict[str, Any]:
        return {
            "block_size": self.block_size,
            "symmetric": bool(self.is_symmetric),
            "bits": self.bits,
            "accuracy_level": self.accuracy_level,
            "channel_wised_quantize": bool(self.channel_wised_quantize),
        }


class _Ratios(WeightOnlyQuantConfig):
    """A method that can cut the ranges of weights."""

    def __init__(self, algorithm, ratios, quant_format, op_types_to_quantize, customized_weight_config) -> None:
        _only_operators(algorithm, quant_format)
        super().__init__(algorithm, quant_format, op_types_to_quantize, None, customized_weight_config)
        self.ratios = ratios or {}

    def options(self) -> dict[str, Any]:
        return {"ratios": [f"{weight}={ratio!r}" for weight, ratio in self.ratios.items()]}


class RTNWeightOnlyQuantConfig(_Ratios):
    """Round to nearest."""

    def __init__(
        self,
        ratios=None,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        customized_weight_config: dict | None = None,
    ):
        """
        Args:
            ratios: {"weight": 0.9}, to cut the ranges of weights.
            quant_format, op_types_to_quantize, customized_weight_config: see WeightOnlyQuantConfig.
        """
        super().__init__("RTN", ratios, quant_format, op_types_to_quantize, customized_weight_config)


class KQuantWeightOnlyQuantConfig(_Ratios):
    """K-quants: a search for the scale and zero point of each block."""

    def __init__(
        self,
        ratios=None,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        customized_weight_config: dict | None = None,
    ):
        """
        Args:
            ratios: {"weight": 0.9}, to cut the ranges of weights.
            quant_format, op_types_to_quantize, customized_weight_config: see WeightOnlyQuantConfig.
        """
        super().__init__("k_quant", ratios, quant_format, op_types_to_quantize, customized_weight_config)


class GPTQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """GPTQ: weights are rounded one after the other, and those that follow make up for the error."""

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None = None,
        percdamp=0.01,
        block_size=128,
        actorder=False,
        mse=False,
        perchannel=True,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
    ):
        """
        Args:
            calibration_data_reader: gives samples.
            percdamp: how much of the mean of the Hessian's diagonal is added to it.
            block_size: weights that share a scale.
            actorder: round the weights of the largest activations first.
            mse: look for the scale with the least square error.
            perchannel: one set of parameters for each channel.
            quant_format, op_types_to_quantize: see WeightOnlyQuantConfig.
        """
        _only_operators("GPTQ", quant_format)
        super().__init__("GPTQ", quant_format, op_types_to_quantize)
        self.calibration_data_reader = calibration_data_reader
        self.percdamp = percdamp
        self.block_size = block_size
        self.actorder = actorder
        self.mse = mse
        self.perchannel = perchannel

    def options(self) -> dict[str, Any]:
        flags = {name: bool(getattr(self, name)) for name in ("actorder", "mse", "perchannel")}
        return {"percdamp": self.percdamp, "block_size": self.block_size, **flags}


class HQQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """HQQ: zero points by half-quadratic optimisation, without samples."""

    def __init__(
        self,
        block_size=128,
        bits=4,
        axis=1,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
    ):
        """
        Args:
            block_size: weights that share a scale.
            bits: 2, 4 or 8.
            axis: 1; accepted for compatibility.
            quant_format, op_types_to_quantize, quant_axes: see WeightOnlyQuantConfig.
        """
        _only_operators("HQQ", quant_format)
        super().__init__("HQQ", quant_format, op_types_to_quantize, quant_axes)
        self.block_size = block_size
        self.bits = bits
        self.axis = axis

    def options(self) -> dict[str, Any]:
        return {"block_size": self.block_size, "bits": self.bits, "symmetric": False}


class AWQWeightOnlyQuantConfig(WeightOnlyQuantConfig):
    """AWQ: channels that large activations meet are scaled before they are rounded. onnxruntime has none of its own."""

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None = None,
        block_size: int = 128,
        is_symmetric: bool = False,
        bits: int = 4,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
    ):
        """
        Args:
            calibration_data_reader: gives samples.
            block_size: weights that share a scale.
            is_symmetric: without zero points.
            bits: 2, 4 or 8.
            quant_format, op_types_to_quantize: see WeightOnlyQuantConfig.
        """
        super().__init__("AWQ", quant_format, op_types_to_quantize)
        self.calibration_data_reader = calibration_data_reader
        self.block_size = block_size
        self.is_symmetric = is_symmetric
        self.bits = bits

    def options(self) -> dict[str, Any]:
        return {"block_size": self.block_size, "bits": self.bits, "symmetric": bool(self.is_symmetric)}


def nbits_job(
    job: Job,
    config: WeightOnlyQuantConfig,
    nodes_to_exclude: Iterable[str] | None = None,
    nodes_to_include: Iterable[str] | None = None,
    fallback: Mapping[str, Any] | None = None,
) -> None:
    """Sets the options of `onq nbits`. `fallback` are options that the method's own go before."""
    job.set("quant_method", config.algorithm.lower())
    job.set("quant_format", config.quant_format)
    for name, value in {**(fallback or {}), **config.options()}.items():
        if isinstance(value, list):
            job.add(name, value)
        else:
            job.set(name, value)
    job.add("op_types_to_quantize", sorted(config.op_types_to_quantize))
    types = config.op_types_to_quantize
    job.add("quant_axes", [f"{op}:{axis}" for op, axis in config.quant_axes.items() if op in types])
    job.add("nodes_to_exclude", sorted(nodes_to_exclude or ()))
    job.add("nodes_to_include", sorted(nodes_to_include or ()))
    if config.customized_weight_config:
        job.set_file("node_config", json.dumps(plain(config.customized_weight_config)))
    reader = getattr(config, "calibration_data_reader", None)
    if reader is not None:
        job.set_reader(reader)


# ---- what the reference quantizes a single node with


class _NodeQuantizer(metaclass=Guarded):
    """Holds the options of a method. libonq quantizes all nodes of a model in one job."""

    _guarded = dict.fromkeys(
        """quantize quantize_matmul quantize_gather quantize_internal optimize_weights pack_on_row_fast_248bit
        quant_slice_symmetric quant_slice_asymmetric pack_int8_to_int4 quantize_ndarray""".split(),
        "use nodes_to_exclude, nodes_to_include and customized_weight_config of MatMulNBitsQuantizer",
    )

    def __init__(self, config: WeightOnlyQuantConfig):
        self.config = config


class DefaultWeightOnlyQuantizer(_NodeQuantizer):
    """Holds the options of DefaultWeightOnlyQuantConfig, and quantizes a weight that is an array."""

    def qbits_block_quant(self, fp32weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Packed integers, scales and zero points of a weight of K rows and N columns, as MatMulNBits reads them.

        In QDQ format they are as DequantizeLinear reads them.
        """
        made = quantize_weight("nbits", fp32weight, lambda job: nbits_job(job, self.config))
        if self.config.quant_format == QuantFormat.QDQ:
            packed, scales = made["_DQ_Q4"], made["_DQ_scales"]
            zeros = made.get("_DQ_zero_points", np.zeros(scales.shape, np.uint8))
            return _nibbles(packed.astype(np.uint8).ravel()), scales, _nibbles(zeros.astype(np.uint8).ravel())
        packed, scales = made[f"_Q{self.config.bits}"], made["_scales"]
        columns, blocks = scales.shape
        none = np.zeros((columns, -(-blocks * self.config.bits // 8)), np.uint8)
        return packed, scales, made.get("_zero_points", none)


class HQQWeightOnlyQuantizer(_NodeQuantizer):
    """Holds the options of HQQWeightOnlyQuantConfig."""


def _nibbles(values: np.ndarray) -> np.ndarray:
    """4-bit values, two to a byte, the first in its lower half."""
    padded = np.append(values, np.zeros(values.size % 2, np.uint8)) & 0xF
    return padded[0::2] | padded[1::2] << 4


def is_divisible(val1: int, val2: int) -> bool:
    """True if the second number divides the first."""
    return val1 % val2 == 0


def get_initializer(name: str, graph_path: list[onnx.GraphProto]) -> tuple[onnx.TensorProto | None, onnx.GraphProto | None]:
    """An initializer by its name, and its graph: of the last graph of the list that has it."""
    for graph in reversed(graph_path):
        for tensor in graph.initializer:
            if tensor.name == name:
                return tensor, graph
    return None, None


def transpose_packed_int4_matrix(packed: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """A matrix of 4-bit values, two to a byte, transposed."""
    values = np.stack([packed & 0xF, packed >> 4], axis=-1).ravel()[: rows * cols]
    return _nibbles(values.reshape(rows, cols).T.ravel())


# ---- the quantizer


class MatMulNBitsQuantizer:
    """Quantizes the constant weights of MatMul and Gather. `process` does it: a ModelProto that is given becomes the result."""

    def __init__(
        self,
        model: onnx.ModelProto | str | Path,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude=None,
        nodes_to_include: list[str] | None = None,
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize: tuple[str, ...] | None = None,
        quant_axes: tuple[tuple[str, int], ...] | None = None,
        channel_wised_quantize: bool = False,
        algo_config: WeightOnlyQuantConfig | None = None,
    ):
        """
        Args:
            model: a path or a ModelProto.
            bits, block_size, is_symmetric, accuracy_level, quant_format, op_types_to_quantize, quant_axes,
            channel_wised_quantize: those of DefaultWeightOnlyQuantConfig, used where there is no algo_config.
            nodes_to_exclude: names of nodes that stay float.
            nodes_to_include: names of nodes that are quantized too, whatever their operator.
            algo_config: the method and its options.
        """
        onnx = onnx_package("MatMulNBitsQuantizer, which holds the model (quantize takes a path and a configuration without it),")
        self.model = ONNXModel(model if isinstance(model, onnx.ModelProto) else onnx.load(os.fspath(model)))
        self.model_path = None if isinstance(model, onnx.ModelProto) else os.fspath(model)
        self.bits = bits
        self.block_size = block_size
        self.is_symmetric = is_symmetric
        self.accuracy_level = accuracy_level
        self.nodes_to_exclude = set(nodes_to_exclude or ())
        self.nodes_to_include = set(nodes_to_include) if nodes_to_include else None
        self.algo_config = algo_config or DefaultWeightOnlyQuantConfig(
            block_size=block_size,
            is_symmetric=is_symmetric,
            accuracy_level=accuracy_level,
            quant_format=quant_format,
            op_types_to_quantize=op_types_to_quantize,
            quant_axes=quant_axes,
            bits=bits,
            channel_wised_quantize=channel_wised_quantize,
        )
        if getattr(self.algo_config, "bits", 4) not in (2, 4, 8):
            raise AssertionError("Only support 2, 4 or 8 bits quantization")
        kinds = {"DEFAULT": DefaultWeightOnlyQuantizer, "HQQ": HQQWeightOnlyQuantizer}
        if self.algo_config.algorithm in kinds:
            self.node_quantizer = kinds[self.algo_config.algorithm](self.algo_config)

    def int4_quant_algo(self) -> None:
        """Quantizes, as process does, by RTN, k_quant or GPTQ."""
        self.process()

    def process(self) -> None:
        """Quantizes; `model` wraps the result from now on."""
        from .quantize import give, set_output

        # What the methods without options of their own take from here.
        own = {"block_size": self.block_size, "symmetric": bool(self.is_symmetric), "accuracy_level": self.accuracy_level}
        with Job("nbits") as job:
            job.set_model("input", self.model.model)
            set_output(job, None)
            job.set("sort_nodes", False)
            nbits_job(job, self.algo_config, self.nodes_to_exclude, self.nodes_to_include, own)
            self.model.model.CopyFrom(give(job.run(), None))  # programs go on with the model that they gave


def quantize_weights(model_input, model_output, config: WeightOnlyQuantConfig) -> onnx.ModelProto | None:
    """`quantize` with a WeightOnlyQuantConfig: weights go to a file of their own, as there."""
    from .quantize import give, set_output

    with Job("nbits") as job:
        job.set_model("input", model_input)
        set_output(job, model_output, model_output is not None)
        nbits_job(job, config, fallback={"block_size": 128, "symmetric": False})
        return give(job.run(), model_output)


# ---- the command


def ort_convert_str_to_bool(value: str) -> bool:
    """True for "true" and "1"."""
    return value.lower() in ("true", "1")


def _truth(text: str) -> bool:
    if text.lower() in ("true", "yes", "t", "y", "1"):
        return True
    if text.lower() in ("false", "no", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is not true or false")


def parse_key_value_pair(s: str) -> tuple[str, int]:
    """"Gather:1" as a name and a number."""
    key, value = s.split(":")
    return key, int(value)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m onq.quantization.matmul_nbits_quantizer", description=__doc__)
    methods = ["default", "hqq", "rtn", "k_quant", "gptq", "awq", "nvidia_awq"]
    parser.add_argument("--input_model", required=True, help="the model to read")
    parser.add_argument("--output_model", required=True, help="the model to write; it must not exist")
    parser.add_argument("--block_size", type=int, default=32, help="weights that share a scale")
    parser.add_argument("--quant_method", default="default", choices=methods, help="how weights are rounded")
    parser.add_argument("--bits", type=int, default=4, help="2, 4 or 8")
    parser.add_argument("--symmetric", nargs="?", type=_truth, const=True, default=True, help="no zero points")
    parser.add_argument("--accuracy_level", type=int, help="how exactly MatMulNBits computes, 0 to 4")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.add_argument("--nodes_to_exclude", nargs="+", default=[], metavar="NAME", help="leave these nodes float")
    parser.add_argument("--nodes_to_include", nargs="+", metavar="NAME", help="quantize these nodes too, whatever their operator")
    parser.add_argument("--quant_format", default="QOperator", choices=["QOperator", "QDQ"], help="form of the result")
    parser.add_argument("--op_types_to_quantize", nargs="+", choices=["MatMul", "Gather"], help="MatMul by default")
    parser.add_argument("--quant_axes", type=parse_key_value_pair, nargs="+", metavar="OP:AXIS", help="MatMul:0 Gather:1 by default")
    parser.add_argument("--data", help="samples for gptq and awq, as `onq nbits --data` takes them")
    nvidia = parser.add_argument_group("nvidia_awq", "arguments of onnxruntime's tool for NVIDIA's ModelOpt")
    for name in ("--calib_dataset_name", "--tokenizer_dir", "--calibration_method", "--cache_dir"):
        nvidia.add_argument(name, help="not used: --quant_method awq takes samples from --data")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Quantizes as the command line says."""
    args = parse_args(argv)
    if args.verbose:
        logging.getLogger("onq").setLevel(logging.DEBUG)
    if os.path.exists(args.output_model):
        raise SystemExit(f"file {args.output_model} already exists")
    if args.quant_method == "nvidia_awq":
        raise SystemExit("nvidia_awq is NVIDIA's ModelOpt, which onq does not use (--quant_method awq --data SOURCE does AWQ)")
    if args.quant_method == "hqq" and args.symmetric:
        logger.warning("hqq always has zero points: symmetric is taken as false")
        args.symmetric = False
    with Job("nbits") as job:
        job.set("input", args.input_model)
        job.set("output", args.output_model)
        job.set("use_external_data_format", True)
        for name in ("block_size", "quant_method", "bits", "symmetric", "accuracy_level", "quant_format", "data"):
            job.set(name, getattr(args, name))
        job.add("nodes_to_exclude", args.nodes_to_exclude)
        job.add("nodes_to_include", args.nodes_to_include)
        job.add("op_types_to_quantize", args.op_types_to_quantize)
        job.add("quant_axes", [f"{op}:{axis}" for op, axis in args.quant_axes or ()])
        job.run()


if __name__ == "__main__":
    main()
