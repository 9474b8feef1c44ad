"""test_differences.py - docs/DIFFERENCES.md and the tests name each other.

Every `##` heading of the page is the argument of a marker on a test that shows both sides:

    @pytest.mark.difference("Weights per channel below opset 13")

and every marker names a heading.
"""
import ast
import collections
import pathlib
import re

import quantcase

HERE = pathlib.Path(__file__).parent
PAGE = quantcase.ROOT / "docs" / "DIFFERENCES.md"
WIDTH = 120

# Headings that no test names yet. Take yours out when you name it.
UNNAMED = {
    "float16 models below opset 19",
    "4-bit and float 8 activations",
    "Biases that are no vectors",
    "Constants per channel that are moved",
    "Outputs that are inputs",
    "float16 and bfloat16, dynamic",
    "float16 in QOperator format",
    "Biases behind computed weights, QOperator",
    "What the converter drops",
    "Operators that onnx does not know",
    "GroupNormalization past opset 20",
    "Clip and Pad of float16 and double",
    "Pad that is not constant",
    "Softmax inside If and Loop",
    "BatchNormalization with five outputs",
    "Imports of ai.onnx",
    "Names of a split Softmax",
    "Resize and Upsample before opset 11",
    "CalibMaxIntermediateOutputs",
    "Samples of different shapes in histograms",
    "Ranges that have no bins",
    "Scalars with symmetric Percentile",
    "Scalars per channel",
    "Scenario p3 of Distribution",
    "The sign of a zero",
    "Nothing to calibrate",
    "float16 tensors between float32 operators",
    "Threads",
    "`--fast`",
    "No optimiser before qat",
    "Pairs on inputs, weights and outputs",
    "Trained tensors with two kinds of readers",
    "Trained int8 zero points",
    "Two pairs on one tensor",
    "Incomplete symbolic inference",
    "If with a constant condition",
    "Optimisation that fails",
    "Preprocessing external data",
    "Preprocessing below opset 11",
    "Temporary files of preprocessing",
    "Size of external tensors",
    "QNN preparation",
    "Attention with named sizes",
    "MeanVarianceNormalization and unk__N",
    "Domains that are not imported",
    "Symbolic inference that goes on",
    "Names that are broadcast",
    "Existing value_infos",
    "One normal form of expressions",
    "Names that are no names",
    "Shapes that the reference gets wrong",
    "Zero points that are not 0",
    "Scalars, missing counterparts, float16",
    "Models that were preprocessed",
    "The calls of onq.h",
}


def headings():
    return re.findall(r"^## (.+)$", PAGE.read_text(), re.M)


def markers():
    """Heading -> the tests whose decorators name it."""
    found = collections.defaultdict(list)
    for path in sorted(HERE.glob("test_*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            for node in (n for d in getattr(function, "decorator_list", []) for n in ast.walk(d)):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "difference":
                    for heading in node.args:
                        found[ast.literal_eval(heading)].append(f"{path.name}::{function.name}")
    return found


def test_headings_are_unique():
    assert [h for h, n in collections.Counter(headings()).items() if n > 1] == []


def test_every_heading_has_a_test():
    missing = set(headings()) - set(markers())
    assert sorted(missing - UNNAMED) == [], "no test carries @pytest.mark.difference(HEADING)"


def test_every_marker_has_a_heading():
    assert {h: tests for h, tests in markers().items() if h not in headings()} == {}


def test_page_is_wrapped():
    assert [line for line in PAGE.read_text().splitlines() if len(line) > WIDTH and not line.startswith("|")] == []
