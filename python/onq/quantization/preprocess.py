"""python -m onq.quantization.preprocess: quant_pre_process from the command line, with the arguments it has in onnxruntime."""

from __future__ import annotations

import argparse
import sys

from .shape_inference import quant_pre_process

_SKIPS = {
    "--skip_optimization": "leave the optimisation of the graph out",
    "--skip_onnx_shape": "leave shape inference as onnx does it out",
    "--skip_symbolic_shape": "leave symbolic shape inference out",
}


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m onq.quantization.preprocess",
        description="Prepares a float model for quantization: symbolic shape inference, optimisation, shape inference.",
    )
    parser.add_argument("--input", required=True, help="the model to read")
    parser.add_argument("--output", required=True, help="the model to write")
    for name, text in _SKIPS.items():
        # As in onnxruntime, whose flags take a value and are set by any text but an empty one.
        parser.add_argument(name, type=bool, nargs="?", const=True, default=False, help=text)
    parser.add_argument("--auto_merge", action="store_true", help="make dimensions one that must be equal")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="from here on a bound of Slice is no bound")
    parser.add_argument("--guess_output_rank", action="store_true", help="unknown operators keep the rank of input 0")
    parser.add_argument("--verbose", type=int, default=0, help="0 to 3, how much is logged")
    parser.add_argument("--save_as_external_data", action="store_true", help="write the weights to other files")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="all of them to one file")
    parser.add_argument("--external_data_location", default=None, help="the name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="smaller tensors stay")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs quant_pre_process as the command line says."""
    args = vars(parse_arguments(argv))
    if args["skip_optimization"] and args["skip_onnx_shape"] and args["skip_symbolic_shape"]:
        sys.exit("all three steps are skipped: there is nothing to do")
    quant_pre_process(args.pop("input"), args.pop("output"), **args)


if __name__ == "__main__":
    main()
