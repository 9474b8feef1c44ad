"""Histograms of tensors that a program has computed itself. libonq makes them, as it does for calibrators."""

from __future__ import annotations

import abc
import ctypes as c
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import _library as L
from .._job import Job
from .._model import onnx_package
from .._samples import Samples
from .._tensors import NUMBER_OF
from ._calibrator import ranges_of
from ._guard import Guarded, missing

_INSTEAD = "collect gives it values, and compute_collection_result their ranges"


class CalibrationDataCollector(abc.ABC):
    """Collects values of tensors, and finds their ranges."""

    @abc.abstractmethod
    def collect(self, name_to_arr: Mapping[str, Any]) -> None:
        """Adds values: {tensor: an array, or a list of arrays}."""
        raise NotImplementedError

    @abc.abstractmethod
    def compute_collection_result(self) -> dict[str, Any]:
        """The ranges of all values so far."""
        raise NotImplementedError


class _Tensor:
    """The histogram of one tensor: a calibrator of a model that only passes the tensor on."""

    def __init__(self, dtype: np.dtype, options: Mapping[str, Any]):
        helper = onnx_package("HistogramCollector").helper
        number = NUMBER_OF[dtype.name]
        value = [helper.make_tensor_value_info(name, number, ["n"]) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "values", value[:1], value[1:])
        self._job = Job("calibrate")
        self._handle = L.HANDLE()
        self._job.set_model("input", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
        for name, setting in options.items():
            self._job.set(name, setting)
        self._job.call("onq_calibrator_new", self._job.env, self._job.options, c.byref(self._handle))

    def add(self, values: np.ndarray) -> None:
        samples = Samples([{"x": values}], may_rewind=True)
        self._job.call("onq_calibrator_collect", self._handle, c.byref(samples.struct), samples=samples)

    def compute(self) -> dict[str, Any]:
        handle = L.HANDLE()
        self._job.call("onq_calibrator_compute", self._handle, c.byref(handle))
        try:
            return ranges_of(handle)["x"]
        finally:
            L.library().onq_ranges_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            L.library().onq_calibrator_free(self._handle)
        if hasattr(self, "_job"):
            self._job.close()


class HistogramCollector(CalibrationDataCollector, metaclass=Guarded):
    """Ranges by the methods "entropy", "percentile" and "distribution", of values that a program gives it."""

    _guarded = dict.fromkeys(
        """get_histogram_dict collect_absolute_value collect_value merge_histogram compute_percentile compute_entropy
        compute_distribution get_entropy_threshold""".split(),
        _INSTEAD,
    )

    def __init__(self, method: str, symmetric: bool, num_bins: int, num_quantized_bins: int, percentile: float, scenario: str):
        """See HistogramCalibrater."""
        self.method = method
        self.symmetric = symmetric
        self.num_bins = num_bins
        self.num_quantized_bins = num_quantized_bins
        self.percentile = percentile
        self.scenario = scenario
        self._tensors: dict[str, _Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        raise missing(self, name, {**HistogramCollector._guarded, "histogram_dict": _INSTEAD})

    def _options(self) -> dict[str, Any]:
        if self.method not in ("entropy", "percentile", "distribution"):
            raise ValueError("Only 'entropy', 'percentile' or 'distribution' methods are supported")
        options: dict[str, Any] = {"method": self.method, "calib_num_bins": self.num_bins}
        if self.method == "percentile":
            if not 0 <= self.percentile <= 100:
                raise ValueError("Invalid percentile. Must be in range 0 <= percentile <= 100.")
            options |= {"calib_symmetric": bool(self.symmetric), "calib_percentile": self.percentile}
        elif self.method == "entropy":
            options["calib_num_quantized_bins"] = self.num_quantized_bins
        else:
            options["calib_scenario"] = self.scenario
        return options

    def collect(self, name_to_arr: Mapping[str, np.ndarray | Sequence[np.ndarray]]) -> None:
        """Adds values: {tensor: an array, or a list of arrays}, float32 or float16."""
        for name, given in name_to_arr.items():
            arrays = [given] if isinstance(given, np.ndarray) else [np.asarray(a) for a in given]
            types = {a.dtype for a in arrays}
            if len(types) != 1 or not types <= {np.dtype(np.float32), np.dtype(np.float16)}:
                raise TypeError(f"tensor {name!r}: all values are float32, or all are float16, not {sorted(map(str, types))}")
            if name not in self._tensors:
                self._tensors[name] = _Tensor(arrays[0].dtype, self._options())
            self._tensors[name].add(np.concatenate([a.ravel() for a in arrays]))

    def compute_collection_result(self) -> dict[str, Any]:
        """{tensor: (lowest, highest, histogram, bins)}, or a TensorData for "distribution"."""
        from .calibrate import TensorData

        if not self._tensors:
            raise ValueError("Histogram has not been collected. Please run collect() first.")
        found = {name: tensor.compute() for name, tensor in self._tensors.items()}
        if self.method == "distribution":
            return {name: TensorData(**values) for name, values in found.items()}
        return {name: tuple(values[key] for key in ("lowest", "highest", "hist", "bins")) for name, values in found.items()}
