"""Weights of MatMul in FP4 or NF4, as bitsandbytes has them; also python -m onq.quantization.matmul_bnb4_quantizer."""

from __future__ import annotations

import argparse
import logging
import os
from typing import TYPE_CHECKING

import numpy as np

from .._job import Job
from ._weight import quantize_weight
from .onnx_model import ONNXModel
from .quant_utils import attribute_to_kwarg  # noqa: F401 - a name that programs import from here

if TYPE_CHECKING:
    import onnx


class MatMulBnb4Quantizer:
    """Quantizes the constant weights of MatMul. `process` does it: the ModelProto that is given becomes the result."""

    FP4 = 0
    NF4 = 1

    def __init__(self, model: onnx.ModelProto, quant_type: int, block_size: int, nodes_to_exclude=None):
        """
        Args:
            model: a ModelProto.
            quant_type: FP4 or NF4.
            block_size: weights that share a scale.
            nodes_to_exclude: names of nodes that stay float.
        """
        if quant_type not in (self.FP4, self.NF4):
            raise AssertionError(f"quant_type is {self.FP4} (FP4) or {self.NF4} (NF4), not {quant_type!r}")
        self.model = ONNXModel(model)
        self.quant_type = quant_type
        self.block_size = block_size
        self.nodes_to_exclude = set(nodes_to_exclude or ())

    def bnb4_block_quant(self, fpweight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Packed 4-bit values and the largest magnitude of each block of a weight."""
        made = quantize_weight("bnb4", fpweight, self._set_options)
        return made["_Bnb4"], made["_absmax"]

    def _set_options(self, job: Job) -> None:
        job.set("quant_type", ("fp4", "nf4")[self.quant_type])
        job.set("block_size", self.block_size)

    def process(self) -> None:
        """Quantizes; `model` wraps the result from now on."""
        from .quantize import give, set_output

        with Job("bnb4") as job:
            job.set_model("input", self.model.model)
            set_output(job, None)
            job.set("sort_nodes", False)
            self._set_options(job)
            job.add("nodes_to_exclude", sorted(self.nodes_to_exclude))
            self.model.model.CopyFrom(give(job.run(), None))  # programs go on with the model that they gave


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m onq.quantization.matmul_bnb4_quantizer", description=__doc__)
    parser.add_argument("--input_model", required=True, help="the model to read")
    parser.add_argument("--output_model", required=True, help="the model to write; it must not exist")
    parser.add_argument("--quant_type", type=int, default=1, choices=[0, 1], help="0: FP4, 1: NF4")
    parser.add_argument("--block_size", type=int, default=64, help="weights that share a scale")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.add_argument("--nodes_to_exclude", nargs="+", default=[], metavar="NAME", help="leave these nodes float")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Quantizes as the command line says."""
    args = parse_args(argv)
    if args.verbose:
        logging.getLogger("onq").setLevel(logging.DEBUG)
    if os.path.exists(args.output_model):
        raise SystemExit(f"file {args.output_model} already exists")
    with Job("bnb4") as job:
        job.set("input", args.input_model)
        job.set("output", args.output_model)
        job.set("use_external_data_format", True)
        job.set("quant_type", ("fp4", "nf4")[args.quant_type])
        job.set("block_size", args.block_size)
        job.add("nodes_to_exclude", args.nodes_to_exclude)
        job.run()


if __name__ == "__main__":
    main()
