"""The first quantization tool: `quantize` takes a ModelProto and returns one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from ._job import Job, plain
from ._model import proto_of

if TYPE_CHECKING:
    import onnx


class QuantizationMode(Enum):
    """Which operators, and where the parameters of their inputs come from."""

    IntegerOps_Static = 0
    IntegerOps_Dynamic = 1
    QLinearOps_Static = 2
    QLinearOps_Dynamic = 3

    def __str__(self) -> str:
        return self.name


def _params(params: Mapping[str, Any]) -> str:
    """{"tensor": [zero_point, scale]} as JSON."""
    import json

    return json.dumps({name: [plain(v) for v in pair] for name, pair in params.items()})


def quantize(
    model: onnx.ModelProto,
    per_channel: bool = True,
    nbits: int = 8,
    quantization_mode: QuantizationMode = QuantizationMode.IntegerOps_Dynamic,
    asymmetric_input_types: bool = False,
    input_quantization_params: Mapping[str, Any] | None = None,
    output_quantization_params: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """Quantizes Conv and MatMul of a model and returns the quantized model.

    Args:
        model: the ModelProto to quantize; a path serves too. It is not changed.
        per_channel: quantize weights of Conv for each output channel, else for each tensor.
        nbits: bits of quantized values; only 8 is possible.
        quantization_mode: IntegerOps (ConvInteger, MatMulInteger) or QLinearOps (QLinearConv, QLinearMatMul), each
            with parameters of inputs that are given (Static) or computed while the model runs (Dynamic).
        asymmetric_input_types: signed weights and unsigned inputs; otherwise both are unsigned.
        input_quantization_params: {tensor: [zero_point, scale]} for the inputs of Conv and MatMul, in Static modes.
        output_quantization_params: the same for their outputs, in QLinearOps modes.

    Returns:
        The quantized ModelProto.
    """
    with Job("legacy") as job:
        job.set_model("input", model)
        job.want_bytes("output", "quantized")
        job.set("per_channel", bool(per_channel))
        job.set("nbits", nbits)
        job.set("quantization_mode", quantization_mode)
        job.set("asymmetric_input_types", bool(asymmetric_input_types))
        for name, params in (
            ("input_quantization_params", input_quantization_params),
            ("output_quantization_params", output_quantization_params),
        ):
            if params is not None:
                job.set_file(name, _params(params))
        return proto_of(job.run().files["output"])


__all__ = ["QuantizationMode", "quantize"]
