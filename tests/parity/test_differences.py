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
    "Constants per channel that are moved",
    "Outputs that are inputs",
    "float16 and bfloat16, dynamic",
    "float16 in QOperator format",
    "Resize and Upsample before opset 11",
    "float16 tensors between float32 operators",
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
