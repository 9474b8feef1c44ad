"""test_differences.py - docs/DIFFERENCES.md and the tests name each other.

Every `##` heading of the page is the argument of a marker on a test that shows both sides:

    @pytest.mark.difference("Weights per channel below opset 13")

and every marker names a heading. The table at the top of the page says what either side does, and names such a test.
"""
import ast
import collections
import pathlib
import re

import quantcase

HERE = pathlib.Path(__file__).parent
PAGE = quantcase.ROOT / "docs" / "DIFFERENCES.md"
WIDTH = 120

REFERENCE = {"fails", "does not load", "does not run", "invalid", "wrong", "extra", "other"}  # the page says what they mean


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
    assert sorted(set(headings()) - set(markers())) == [], "no test carries @pytest.mark.difference(HEADING)"


def test_every_marker_has_a_heading():
    assert {h: tests for h, tests in markers().items() if h not in headings()} == {}


def test_index():
    """A row for each section, in order: what the reference does, what onq does, and a test that shows it."""
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    assert rows[0] == ["Section", "Reference", "onq", "Test"]
    assert [r[0] for r in rows[2:]] == headings()
    named = markers()
    for heading, reference, onq, test in rows[2:]:
        assert set(reference.split(", ")) <= REFERENCE and onq, heading
        assert test in named[heading], f"{heading}: {test} does not name it"


def test_page_is_wrapped():
    assert [line for line in PAGE.read_text().splitlines() if len(line) > WIDTH and not line.startswith("|")] == []
