"""Ranges of activations: readers of samples, methods, calibrators, and the ranges themselves."""

from __future__ import annotations

import abc
import contextlib
import json
import os
import tempfile
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from .qtypes import member_of


class CalibrationMethod(Enum):
    """How a range is found."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class CalibrationDataReader(metaclass=abc.ABCMeta):
    """Gives samples. A class with a method get_next is one, whether it inherits from this or not."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> dict | None:
        """The next sample, {input name: array}, or None at the end."""
        raise NotImplementedError

    def __iter__(self) -> CalibrationDataReader:
        return self

    def __next__(self) -> dict:
        sample = self.get_next()
        if sample is None:
            raise StopIteration
        return sample

    def __len__(self) -> int:
        """The number of samples; CalibStridedMinMax needs it."""
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        """Has get_next give these samples; CalibStridedMinMax needs it."""
        raise NotImplementedError


class TensorData:
    """What is known of a tensor: lowest and highest, or a histogram, or average and deviation."""

    _allowed = frozenset(["avg", "std", "lowest", "highest", "hist", "hist_edges", "bins"])
    _floats = frozenset(["avg", "std", "lowest", "highest", "hist_edges"])

    def __init__(self, **kwargs: Any):
        self._attrs = list(kwargs)
        for name, value in kwargs.items():
            if name not in self._allowed:
                raise ValueError(f"{name!r} is not known of tensors ({', '.join(sorted(self._allowed))} are)")
            if name in self._floats and getattr(value, "dtype", None) not in (np.float16, np.float32):
                kind = getattr(value, "dtype", type(value).__name__)
                raise ValueError(f"{name} must be numpy's float32 or float16, not {kind}")
            setattr(self, name, value)

    def _both(self, first: str, second: str) -> tuple:
        for name in (first, second):
            if not hasattr(self, name):
                raise AttributeError(f"{name!r} is not known of this tensor ({', '.join(self._attrs)} are)")
        return getattr(self, first), getattr(self, second)

    @property
    def range_value(self) -> tuple:
        """(lowest, highest)"""
        return self._both("lowest", "highest")

    @property
    def avg_std(self) -> tuple:
        """(avg, std)"""
        return self._both("avg", "std")

    def to_dict(self) -> dict[str, Any]:
        """What save_tensors_data writes."""
        return {**{name: getattr(self, name) for name in self._attrs}, "CLS": type(self).__name__}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorData:
        """A TensorData of what to_dict gave, or JSON has of it."""
        values = {}
        for name, value in d.items():
            if isinstance(value, Mapping) and value.get("CLS") == "numpy.array":
                value = np.array(value["data"], dtype=np.dtype(value["dtype"]))
            elif name in cls._floats and isinstance(value, (int, float)):
                value = np.array(value, dtype=np.float32)
            if name != "CLS":
                values[name] = value
        return cls(**values)

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)}" for n in self._attrs if n not in ("hist", "hist_edges"))
        return f"TensorData({shown})"


class TensorsData:
    """Ranges by tensor: a mapping of names to TensorData, and the method that found them."""

    def __init__(self, calibration_method: CalibrationMethod, data: Mapping[str, TensorData | tuple]):
        self.calibration_method = member_of(CalibrationMethod, calibration_method)
        self.data: dict[str, TensorData] = {}
        for name, value in data.items():
            if not isinstance(name, str):
                raise TypeError(f"tensors are named by texts, not by a {type(name).__name__}")
            self.data[name] = self._tensor(name, value)

    def _tensor(self, name: str, value: TensorData | tuple) -> TensorData:
        if isinstance(value, TensorData):
            return value
        if type(value).__name__ == "TensorData":  # onnxruntime's own
            return TensorData(**{k: v for k, v in value.to_dict().items() if k != "CLS"})
        if not isinstance(value, tuple):
            raise TypeError(f"tensor {name!r}: a TensorData or a tuple is needed, not a {type(value).__name__}")
        if len(value) == 2 and self.calibration_method == CalibrationMethod.MinMax:
            return TensorData(lowest=value[0], highest=value[1])
        if len(value) == 4:
            return TensorData(lowest=value[0], highest=value[1], hist=value[2], bins=value[3])
        raise TypeError(f"tensor {name!r}: a tuple of {len(value)} is not (lowest, highest) or (lowest, highest, hist, bins)")

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def __getitem__(self, key: str) -> TensorData:
        return self.data[key]

    def __setitem__(self, key: str, value: TensorData) -> None:
        if key not in self.data:
            raise RuntimeError(f"{key!r} has no range yet: only existing ones can be changed")
        self.data[key] = value

    def __len__(self) -> int:
        return len(self.data)

    def keys(self) -> KeysView[str]:
        """The names of the tensors."""
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        """Their TensorData."""
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        """Names with TensorData."""
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:
        """What save_tensors_data writes."""
        return {"CLS": type(self).__name__, "data": self.data, "calibration_method": self.calibration_method}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorsData:
        """A TensorsData of what to_dict gave, or JSON has of it."""
        method = d["calibration_method"]
        if isinstance(method, Mapping) and method.get("CLS") == "CalibrationMethod":
            method = CalibrationMethod[method["value"].rpartition(".")[2]]
        return cls(method, {name: TensorData.from_dict(value) for name, value in d["data"].items()})


class CalibrationCacheEncoder(json.JSONEncoder):
    """Writes ranges, arrays and numpy's numbers as JSON."""

    def default(self, obj: object) -> object:
        if isinstance(obj, (TensorData, TensorsData)):
            return obj.to_dict()
        if isinstance(obj, np.ndarray):
            return {"data": obj.tolist(), "dtype": str(obj.dtype), "CLS": "numpy.array"}
        if isinstance(obj, CalibrationMethod):
            return {"CLS": type(obj).__name__, "value": str(obj)}
        if isinstance(obj, (np.integer, np.floating)):
            return obj.item()
        return super().default(obj)


def cache_text(tensors_data: TensorsData, smooth_quant: bool = False) -> str:
    """Ranges as a calibration cache has them."""
    return json.dumps({**tensors_data.to_dict(), "smooth_quant": smooth_quant}, cls=CalibrationCacheEncoder)


def save_tensors_data(tensors_data: TensorsData, path: str | Path, *, smooth_quant: bool = False) -> None:
    """Writes ranges to a JSON file, which appears whole or not at all.

    Args:
        tensors_data: the ranges.
        path: the file. Its folder is made.
        smooth_quant: whether they are ranges of a model changed by SmoothQuant.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".calibration.", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            f.write(cache_text(tensors_data, smooth_quant))
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def load_tensors_data(path: str | Path) -> TensorsData:
    """Reads ranges that save_tensors_data or `onq calibrate` wrote."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"Calibration cache not found: {path}")
    if not path.is_file():
        raise ValueError(f"Calibration cache path is not a file: {path}")
    with path.open(encoding="utf-8") as f:
        return TensorsData.from_dict(json.load(f))


# ---- entropy


def rel_entr(pk: np.ndarray, qk: np.ndarray) -> np.ndarray:
    """pk * log(pk / qk) by element; 0 where pk is 0, infinity where qk is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        out = (pk * np.log(pk / qk)).astype(pk.dtype)
    out[~((pk > 0) & (qk > 0))] = np.inf
    out[(pk == 0) & (qk >= 0)] = 0
    return out


def entropy(pk: np.ndarray, qk: np.ndarray, base: float | None = None, axis: int = 0) -> np.ndarray:
    """The relative entropy (Kullback-Leibler divergence) of two distributions, which are normalised first."""
    if base is not None and base <= 0:
        raise AssertionError(f"base={base} must be a positive number or `None`.")
    if qk is None:
        raise AssertionError("qk is None")
    pk, qk = np.broadcast_arrays(np.asarray(pk).astype(np.float32), np.asarray(qk).astype(np.float32))
    pk = 1.0 * pk / np.sum(pk, axis=axis, keepdims=True)
    qk = 1.0 * qk / np.sum(qk, axis=axis, keepdims=True)
    total = np.sum(rel_entr(pk, qk), axis=axis)
    if base is not None:
        total /= np.log(base)
    return total.astype(pk.dtype)


# ---- calibrators

from ._calibrator import (  # noqa: E402
    CalibraterBase,
    DistributionCalibrater,
    EntropyCalibrater,
    HistogramCalibrater,
    MinMaxCalibrater,
    PercentileCalibrater,
)
from ._collector import CalibrationDataCollector, HistogramCollector  # noqa: E402
from .quant_utils import apply_plot, load_model_with_shape_infer, smooth_distribution  # noqa: E402, F401 - names of the reference

# The options of create_calibrator by method, with their defaults.
_METHODS: dict[CalibrationMethod, tuple[type[CalibraterBase], dict[str, Any]]] = {
    CalibrationMethod.MinMax: (
        MinMaxCalibrater,
        {
            "symmetric": False,
            "moving_average": False,
            "averaging_constant": 0.01,
            "max_intermediate_outputs": None,
            "per_channel": False,
        },
    ),
    CalibrationMethod.Entropy: (EntropyCalibrater, {"num_bins": 128, "num_quantized_bins": 128, "symmetric": False}),
    CalibrationMethod.Percentile: (PercentileCalibrater, {"num_bins": 2048, "percentile": 99.999, "symmetric": True}),
    CalibrationMethod.Distribution: (DistributionCalibrater, {"num_bins": 2048, "scenario": "same"}),
}


def create_calibrator(
    model: str | Path,
    op_types_to_calibrate: Sequence[str] | None = None,
    augmented_model_path="augmented_model.onnx",
    calibrate_method=CalibrationMethod.MinMax,
    use_external_data_format=False,
    providers=None,
    extra_options={},  # noqa: B006 - as in onnxruntime, and never changed
    carry: Mapping[str, str] | Iterable[str] | bool | None = None,
) -> CalibraterBase:
    """A calibrator for a model.

    Args:
        model: the model's path.
        op_types_to_calibrate: only tensors at nodes of these operators; all float tensors by default.
        augmented_model_path: where the model is written by whose outputs the reference finds ranges.
        calibrate_method: how ranges are found.
        use_external_data_format: write the weights of that model to a file of their own.
        providers: execution providers for running the model; the CPU by default.
        extra_options: options of the method: symmetric, moving_average, averaging_constant, max_intermediate_outputs,
            per_channel, num_bins, num_quantized_bins, percentile, scenario.
        carry: which outputs are states and go into which inputs at the next step, as in quantize_static.

    Returns:
        A calibrator: call collect_data(reader), as often as needed, then compute_data().
    """
    kind, defaults = _METHODS[member_of(CalibrationMethod, calibrate_method)]
    options = {name: (extra_options or {}).get(name, default) for name, default in defaults.items()}
    calibrator = kind(
        model,
        op_types_to_calibrate,
        augmented_model_path,
        use_external_data_format=use_external_data_format,
        **options,
    )
    if providers:
        calibrator.execution_providers = providers
    calibrator.carry = carry
    calibrator.augment_graph()
    calibrator.create_inference_session()
    return calibrator


__all__ = [
    "CalibraterBase",
    "CalibrationCacheEncoder",
    "CalibrationDataCollector",
    "CalibrationDataReader",
    "CalibrationMethod",
    "DistributionCalibrater",
    "EntropyCalibrater",
    "HistogramCalibrater",
    "HistogramCollector",
    "MinMaxCalibrater",
    "PercentileCalibrater",
    "TensorData",
    "TensorsData",
    "cache_text",
    "create_calibrator",
    "entropy",
    "load_tensors_data",
    "rel_entr",
    "save_tensors_data",
]
