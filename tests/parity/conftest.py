"""conftest.py - fixtures that several of the parity tests share."""
import numpy as np
import pytest

import modeltool


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture(scope="module")
def tool():
    """The program beside the tests that reads and writes models."""
    t = modeltool.Tool()
    yield t
    assert t.close() == 0
