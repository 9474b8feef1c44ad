"""Small floats and the texts of numbers, against numpy, ml_dtypes, onnx and Python.

The conversions are internal, so they are reached through filters that the unit test programs offer: numbers on
standard input, results on standard output.
"""

import subprocess

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest

from common import BUILD

PROGRAMS = BUILD / "tests"

FP8 = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


def run(program, kind, data):
    path = PROGRAMS / program
    if not path.exists():
        pytest.fail(f"{path} is not built")
    return subprocess.run([path, kind], input=data.tobytes(), stdout=subprocess.PIPE, check=True).stdout


@pytest.fixture(scope="module")
def floats():
    """float32 of every exponent: a grid over all bit patterns, all with a short significand, ties, random ones."""
    rng = np.random.default_rng(20261115)
    high = np.arange(65536, dtype=np.uint32) << 16
    bits = np.concatenate(
        [
            np.arange(0, 2**32, 10007, dtype=np.uint64).astype(np.uint32),
            rng.integers(0, 2**32, 1_000_000, dtype=np.uint32),
            high,
            high + 1,
            high + 0x7FFF,
            high + 0x8000,
            high + 0x8001,
            high + 0xFFFF,
        ]
    )
    return bits.view(np.float32)


def quiet(x, dtype):
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def encoders():
    yield "f16", lambda x: quiet(x, np.float16).view(np.uint16)
    yield "bf16", lambda x: quiet(x, ml_dtypes.bfloat16).view(np.uint16)
    for name, dtype in FP8.items():
        yield name, lambda x, dtype=dtype: quiet(x, dtype).view(np.uint8)
        yield (
            name + "_sat",
            lambda x, dtype=dtype: onnx.numpy_helper.saturate_cast(x, np.dtype(dtype)).view(np.uint8),
        )


@pytest.mark.parametrize(("kind", "reference"), list(encoders()))
def test_from_float(kind, reference, floats):
    got = np.frombuffer(run("unit_base_test_real", kind, floats), dtype=np.uint16)
    with np.errstate(all="ignore"):
        wanted = reference(floats).astype(np.uint16)
    differ = np.nonzero(got != wanted)[0]
    assert len(got) == len(floats)
    assert len(differ) == 0, [(floats[i], hex(got[i]), hex(wanted[i])) for i in differ[:5]]


def decoders():
    yield "f16_f32", np.float16, 65536
    yield "bf16_f32", ml_dtypes.bfloat16, 65536
    yield "fp4_f32", ml_dtypes.float4_e2m1fn, 16
    yield "e8m0_f32", ml_dtypes.float8_e8m0fnu, 256
    yield "e2m3_f32", ml_dtypes.float6_e2m3fn, 64
    yield "e3m2_f32", ml_dtypes.float6_e3m2fn, 64
    for name, dtype in FP8.items():
        yield name + "_f32", dtype, 256


@pytest.mark.parametrize(("kind", "dtype", "count"), list(decoders()))
def test_to_float(kind, dtype, count):
    codes = np.arange(count, dtype=np.uint16)
    got = np.frombuffer(run("unit_base_test_real", kind, codes), dtype=np.uint32)
    wanted = codes.astype(np.uint16 if count == 65536 else np.uint8).view(dtype).astype(np.float32)
    assert np.array_equal(got, wanted.view(np.uint32))


def test_half_from_double(floats):
    rng = np.random.default_rng(7)
    wide = quiet(floats, np.float64)
    values = np.concatenate(
        [
            rng.integers(0, 2**64, 300_000, dtype=np.uint64).view(np.float64),
            np.ldexp(rng.standard_normal(600_000), rng.integers(-30, 20, 600_000)),
            wide[-200_000:],
            np.nextafter(wide[-200_000:], np.inf),
            np.nextafter(wide[-200_000:], -np.inf),
        ]
    )
    got = np.frombuffer(run("unit_base_test_real", "f64_f16", values), dtype=np.uint16)
    assert np.array_equal(got, quiet(values, np.float16).view(np.uint16))


def test_text_of_doubles():
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [
            rng.integers(0, 2**64, 60_000, dtype=np.uint64).view(np.float64),
            rng.standard_normal(20_000),
            np.ldexp(1.0, np.arange(-1074, 1024)),
            np.nextafter(np.ldexp(1.0, np.arange(-1070, 1024)), 0),
            np.array([float(f"1e{k}") for k in range(-323, 309)]),
            np.arange(5000) / 100,
            np.array([0.0, -0.0, np.inf, -np.inf, 5e-324]),
        ]
    )
    values = values[~np.isnan(values)]
    got = run("unit_base_test_json", "numbers", values).decode().splitlines()
    wanted = [repr(v) if repr(v) == "-0.0" else repr(v).removesuffix(".0") for v in values.tolist()]
    assert got == wanted


def test_text_of_floats():
    rng = np.random.default_rng(2)
    values = np.concatenate(
        [
            rng.integers(0, 2**32, 60_000, dtype=np.uint32).view(np.float32),
            np.ldexp(np.float32(1), np.arange(-149, 128)),
            rng.standard_normal(20_000).astype(np.float32),
        ]
    )
    values = values[np.isfinite(values)]
    got = run("unit_base_test_json", "floats", values).decode().splitlines()
    assert len(got) == len(values)
    for text, value in zip(got, values):
        assert np.float32(text) == value
        digits = np.format_float_scientific(value, unique=True, trim="-")
        assert float(text) == float(digits), (text, digits)
