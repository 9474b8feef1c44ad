"""libonq through ctypes: where it is, its structs and the signatures of its functions.

ctypes, not a compiled extension: one wheel serves every version of Python, and the interpreter's lock is released during
each call. Only _job.py and the modules named there use this.
"""

from __future__ import annotations

import ctypes as c
import importlib.util
import os
import threading
from pathlib import Path

TEXT = c.c_char_p
HANDLE = c.c_void_p


def text(value: str | bytes) -> bytes:
    """A text for the library, which ends texts with a NUL. Names of files that are no UTF-8 are what the system calls them."""
    data = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    if b"\0" in data:
        raise ValueError(f"embedded null character in {value!r}")
    return data


def name_of(data: bytes) -> str:
    """A name from a model, which may be no UTF-8."""
    return data.decode(errors="surrogateescape")


LOG_FN = c.CFUNCTYPE(None, c.c_void_p, c.c_int, TEXT)
PROGRESS_FN = c.CFUNCTYPE(c.c_int, c.c_void_p, TEXT, c.c_uint64, c.c_uint64)


class Error(c.Structure):
    _fields_ = [("code", c.c_int), ("offset", c.c_int64), ("text", c.c_char * 1024)]


class OptionInfo(c.Structure):
    _fields_ = [
        ("name", TEXT),
        ("aliases", TEXT),
        ("letter", c.c_char),
        ("type", c.c_int),
        ("fallback", TEXT),
        ("choices", TEXT),
        ("word", TEXT),
        ("help", TEXT),
    ]


class Tensor(c.Structure):
    _fields_ = [
        ("name", TEXT),
        ("dtype", c.c_int32),
        ("rank", c.c_size_t),
        ("dims", c.POINTER(c.c_int64)),
        ("data", c.c_void_p),
        ("size", c.c_size_t),
        ("strings", c.POINTER(TEXT)),
        ("strides", c.POINTER(c.c_int64)),
    ]


NEXT_FN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.POINTER(Tensor)), c.POINTER(c.c_size_t))
REWIND_FN = c.CFUNCTYPE(c.c_int, c.c_void_p)


class Reader(c.Structure):
    _fields_ = [("next", NEXT_FN), ("ctx", c.c_void_p), ("rewind", REWIND_FN), ("count", c.c_uint64)]


class Bytes(c.Structure):
    _fields_ = [
        ("label", TEXT),
        ("data", c.c_void_p),
        ("size", c.c_size_t),
        ("folder", TEXT),
        ("open", c.c_void_p),
        ("ctx", c.c_void_p),
    ]


class File(c.Structure):
    _fields_ = [("option", TEXT), ("name", TEXT), ("data", c.c_void_p), ("size", c.c_size_t)]


class Range(c.Structure):
    _fields_ = [
        ("name", TEXT),
        *((name, Tensor) for name in ("lowest", "highest", "avg", "std", "hist", "hist_edges", "bins")),
        ("bare", c.c_uint),
    ]


class WeightRow(c.Structure):
    _fields_ = [("name", TEXT), ("flt", Tensor), ("dequantized", Tensor)]


_P = c.POINTER
_ERR = _P(Error)

# name: (result, arguments)
_SIGNATURES = {
    "onq_version": (TEXT, []),
    "onq_env_new": (HANDLE, [c.c_void_p]),
    "onq_env_free": (None, [HANDLE]),
    "onq_env_set_log": (None, [HANDLE, LOG_FN, c.c_void_p]),
    "onq_env_set_progress": (None, [HANDLE, PROGRESS_FN, c.c_void_p]),
    "onq_env_set_threads": (None, [HANDLE, c.c_uint]),
    "onq_option_count": (c.c_size_t, [TEXT]),
    "onq_option_at": (_P(OptionInfo), [TEXT, c.c_size_t]),
    "onq_options_new": (c.c_int, [HANDLE, TEXT, _P(HANDLE), _ERR]),
    "onq_options_free": (None, [HANDLE]),
    "onq_options_set": (c.c_int, [HANDLE, TEXT, TEXT, _ERR]),
    "onq_options_add": (c.c_int, [HANDLE, TEXT, TEXT, _ERR]),
    "onq_options_clear": (c.c_int, [HANDLE, TEXT, _ERR]),
    "onq_options_find": (_P(OptionInfo), [HANDLE, TEXT]),
    "onq_options_set_bytes": (c.c_int, [HANDLE, TEXT, _P(Bytes), _ERR]),
    "onq_options_want_bytes": (c.c_int, [HANDLE, TEXT, TEXT, _ERR]),
    "onq_options_set_reader": (c.c_int, [HANDLE, _P(Reader), _ERR]),
    "onq_run": (c.c_int, [HANDLE, HANDLE, _P(HANDLE), _ERR]),
    "onq_result_free": (None, [HANDLE]),
    "onq_result_text": (TEXT, [HANDLE]),
    "onq_result_json": (TEXT, [HANDLE]),
    "onq_result_status": (c.c_int, [HANDLE]),
    "onq_result_file": (_P(File), [HANDLE, c.c_size_t]),
    "onq_ranges_count": (c.c_size_t, [HANDLE]),
    "onq_ranges_at": (_P(Range), [HANDLE, c.c_size_t]),
    "onq_ranges_free": (None, [HANDLE]),
    "onq_calibrator_new": (c.c_int, [HANDLE, HANDLE, _P(HANDLE), _ERR]),
    "onq_calibrator_free": (None, [HANDLE]),
    "onq_calibrator_augmented": (c.c_int, [HANDLE, _P(c.c_void_p), _P(c.c_size_t), _ERR]),
    "onq_calibrator_collect": (c.c_int, [HANDLE, _P(Reader), _ERR]),
    "onq_calibrator_compute": (c.c_int, [HANDLE, _P(HANDLE), _ERR]),
    "onq_debug_modify_model": (c.c_int, [HANDLE, TEXT, TEXT, _P(TEXT), c.c_size_t, c.c_int, _ERR]),
    "onq_activations_collect": (c.c_int, [HANDLE, HANDLE, _P(Reader), _P(HANDLE), _ERR]),
    "onq_activations_free": (None, [HANDLE]),
    "onq_activations_count": (c.c_size_t, [HANDLE]),
    "onq_activations_name": (TEXT, [HANDLE, c.c_size_t]),
    "onq_activations_at": (_P(Tensor), [HANDLE, c.c_size_t, _P(c.c_size_t)]),
    "onq_weight_match_new": (c.c_int, [HANDLE, TEXT, TEXT, c.c_int, _P(HANDLE), _ERR]),
    "onq_weight_match_free": (None, [HANDLE]),
    "onq_weight_match_count": (c.c_size_t, [HANDLE]),
    "onq_weight_match_at": (c.c_int, [HANDLE, c.c_size_t, _P(_P(WeightRow)), _ERR]),
    "onq_sqnr": (c.c_int, [_P(Tensor), c.c_size_t, _P(Tensor), c.c_size_t, _P(c.c_double), _ERR]),
}

# What the libraries are called: Linux, macOS, Windows. A wheel has those of its system.
_LIBRARIES = ("libonq.so*", "libonq*.dylib", "onq.dll")
_RUNTIMES = ("libonnxruntime.so*", "libonnxruntime*.dylib", "onnxruntime.dll")

_lock = threading.Lock()
_library: c.CDLL | None = None


def native_folder() -> Path:
    """The folder of the package that holds libonq and the program."""
    return Path(__file__).resolve().parent / "_native"


def library_path() -> Path:
    """libonq: $ONQ_LIBRARY, or the one inside the package."""
    named = os.environ.get("ONQ_LIBRARY")
    if named:
        return Path(named)
    found = sorted(path for name in _LIBRARIES for path in (native_folder() / "lib").glob(name))
    if not found:
        raise ImportError(
            f"libonq is not in {native_folder()} (install the package with `pip install ./python`, or name the library "
            "in ONQ_LIBRARY)"
        )
    return found[0]


def find_runtime() -> str | None:
    """The ONNX Runtime library inside the installed package onnxruntime, which is not imported for it."""
    spec = importlib.util.find_spec("onnxruntime")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = (path for name in _RUNTIMES for path in Path(folder, "capi").glob(name))
        for path in sorted(found, reverse=True):
            return str(path)
    return None


def library() -> c.CDLL:
    """libonq, loaded when it is first asked for."""
    global _library
    with _lock:
        if _library is None:
            # onnxruntime reads this once, when it is loaded; what the user set stays.
            os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
            lib = c.CDLL(str(library_path()))
            for name, (result, arguments) in _SIGNATURES.items():
                fn = getattr(lib, name, None)
                if fn is not None:  # an older library lacks some: calling them says so
                    fn.restype, fn.argtypes = result, arguments
            _library = lib
    return _library


def version() -> str:
    """The version of libonq."""
    return library().onq_version().decode()
