"""Calibrators: collect_data again and again, then compute_data. libonq runs the model and keeps what it saw."""

from __future__ import annotations

import ctypes as c
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _library as L
from .._job import Job
from .._model import onnx_package
from .._samples import Samples
from .._tensors import copy_out
from ..errors import OnqError
from ._guard import Guarded
from ._options import set_carry, set_providers
from .qtypes import FLOAT, FLOAT16

if TYPE_CHECKING:
    import onnx
    import onnxruntime

    from .calibrate import CalibrationDataReader, CalibrationMethod, TensorsData

_ATTRIBUTES = ("lowest", "highest", "avg", "std", "hist", "hist_edges", "bins")


def ranges_of(handle: L.HANDLE) -> dict[str, dict[str, Any]]:
    """The attributes of TensorData by tensor, of the library's ranges."""
    lib = L.library()
    tensors: dict[str, dict[str, Any]] = {}
    for i in range(lib.onq_ranges_count(handle)):
        row = lib.onq_ranges_at(handle, i).contents
        values = {}
        for place, name in enumerate(_ATTRIBUTES):
            tensor = getattr(row, name)
            if tensor.dtype:
                array = copy_out(tensor)
                values[name] = array[()] if row.bare >> place & 1 else array
        tensors[L.name_of(row.name)] = values
    return tensors


_OWN_RUN = "collect ranges yourself and give them to QDQQuantizer or ONNXQuantizer as a TensorsData"


class CalibraterBase(metaclass=Guarded):
    """What all calibrators have in common. `model_path` is a model's path.

    Subclasses may override augment_graph, collect_data and compute_data.
    """

    _guarded = {
        "select_tensors_to_calibrate": f"choose tensors by op_types_to_calibrate, or {_OWN_RUN}",
        "create_inference_session": f"choose where the model runs by set_execution_providers, or {_OWN_RUN}",
        "merge_range": f"use symmetric, moving_average and averaging_constant, or {_OWN_RUN}",
    }

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path="augmented_model.onnx",
        symmetric=False,
        use_external_data_format=False,
        per_channel=False,
    ):
        """
        Args:
            model_path: the model's path.
            op_types_to_calibrate: only tensors at nodes of these operators; all float tensors by default.
            augmented_model_path: where augment_graph writes the model by whose outputs ranges are found.
            symmetric: make ranges symmetric about zero.
            use_external_data_format: write the weights of the augmented model to a file of their own.
            per_channel: one range for each index of axis 1.
        """
        if not isinstance(model_path, (str, os.PathLike)):
            raise ValueError("model_path should be model path.")
        self.model_path = Path(model_path)
        self.op_types_to_calibrate = op_types_to_calibrate
        self.augmented_model_path = augmented_model_path
        self.symmetric = symmetric
        self.use_external_data_format = use_external_data_format
        self.per_channel = per_channel
        self.carry: Mapping[str, str] | Iterable[str] | bool | None = None  # create_calibrator says what it is
        self.execution_providers = ["CPUExecutionProvider"]
        self._model: onnx.ModelProto | None = None
        self._session: onnxruntime.InferenceSession | None = None
        self._job: Job | None = None
        self._handle = L.HANDLE()
        self._collected = False

    # ---- the library's calibrator

    def _method(self) -> CalibrationMethod:
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        """The options of the method."""
        return {}

    def _open(self) -> L.HANDLE:
        """Makes the library's calibrator when it is first needed."""
        if self._handle:
            return self._handle
        self._job = Job("calibrate")
        self._job.set("input", self.model_path)
        self._job.set("method", self._method())
        self._job.add("op_types_to_quantize", self.op_types_to_calibrate)
        for name, value in self._options().items():
            self._job.set(name, value)
        set_providers(self._job, self.execution_providers)
        set_carry(self._job, self.carry)
        self._job.call("onq_calibrator_new", self._job.env, self._job.options, c.byref(self._handle))
        return self._handle

    def close(self) -> None:
        """Frees what was collected."""
        if self._handle:
            L.library().onq_calibrator_free(self._handle)
            self._handle = L.HANDLE()
        if self._job is not None:
            self._job.close()
            self._job = None
        self._collected = False
        self._session = None

    def clear_collected_data(self) -> None:
        """Does nothing: libonq keeps no outputs of samples that it has seen."""

    def __del__(self) -> None:
        if getattr(self, "_job", None) is not None:
            self.close()

    # ---- the model

    @property
    def model(self) -> onnx.ModelProto:
        """The augmented model."""
        return self.get_augment_model()

    def get_augment_model(self) -> onnx.ModelProto:
        """The model with the outputs by which ranges are found: T_ReduceMin and T_ReduceMax, or the tensors."""
        if self._model is None:
            self._model = onnx_package("the augmented model").ModelProto.FromString(self._augmented())
        return self._model

    def augment_graph(self) -> None:
        """Writes the augmented model to augmented_model_path."""
        if not self.use_external_data_format and self._model is None:
            Path(self.augmented_model_path).write_bytes(self._augmented())
            return
        onnx = onnx_package("writing an augmented model with external data")
        copy = onnx.ModelProto()
        copy.CopyFrom(self.get_augment_model())
        onnx.save(copy, os.fspath(self.augmented_model_path), save_as_external_data=bool(self.use_external_data_format))

    def _augmented(self) -> bytes:
        """The augmented model as bytes."""
        data, size = c.c_void_p(), c.c_size_t()
        handle = self._open()
        self._job.call("onq_calibrator_augmented", handle, c.byref(data), c.byref(size))
        return c.string_at(data.value, size.value)

    def select_tensors_to_calibrate(self, model: onnx.ModelProto) -> tuple[set[str], dict[str, onnx.ValueInfoProto]]:
        """The float tensors at the chosen nodes, and what is declared of all tensors."""
        graph = model.graph
        infos = {info.name: info for group in (graph.value_info, graph.output, graph.input) for info in group}
        constants = {init.name for init in graph.initializer}
        chosen = [n for n in graph.node if not self.op_types_to_calibrate or n.op_type in self.op_types_to_calibrate]
        names: Iterable[str] = itertools.chain.from_iterable((*n.input, *n.output) for n in chosen)
        floats = (FLOAT, FLOAT16)
        return {
            name
            for name in names
            if name in infos and name not in constants and infos[name].type.tensor_type.elem_type in floats
        }, infos

    @cached_property
    def model_original_outputs(self) -> set[str]:
        """The names of the outputs that the model had before it was augmented."""
        from .._tools import inspect

        return {row["name"] for row in inspect(self.model_path)["outputs"]}

    @cached_property
    def num_model_outputs(self) -> int:
        """How many outputs these are."""
        return len(self.model_original_outputs)

    @property
    def infer_session(self) -> onnxruntime.InferenceSession:
        """A session of onnxruntime for the augmented model. collect_data does not use it."""
        if self._session is None:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            if not os.path.exists(self.augmented_model_path):
                self.augment_graph()
            path = os.fspath(self.augmented_model_path)
            self._session = onnxruntime.InferenceSession(path, options, providers=self.execution_providers)
        return self._session

    def set_execution_providers(self, execution_providers=("CPUExecutionProvider",)) -> None:
        """Says where the model runs. What was collected before is forgotten."""
        self.close()
        self.execution_providers = list(execution_providers)

    def create_inference_session(self) -> None:
        """Loads the model, which is else done when it is first run."""
        self._open()

    # ---- collecting

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Runs the model on all samples of a reader. It can be called several times."""
        samples = Samples(data_reader, may_rewind=True, model=self.model_path)
        handle = self._open()
        try:
            self._job.call("onq_calibrator_collect", handle, c.byref(samples.struct), samples=samples)
        except OnqError:
            if samples.count:
                raise
            if not self._collected:
                raise ValueError("No data is collected.") from None
        self._collected = True

    def compute_data(self) -> TensorsData:
        """The ranges of all samples so far."""
        from .calibrate import TensorData, TensorsData

        if not self._collected:
            raise ValueError("No data is collected: call collect_data first.")
        handle = L.HANDLE()
        calibrator = self._open()
        self._job.call("onq_calibrator_compute", calibrator, c.byref(handle))
        try:
            found = ranges_of(handle)
        finally:
            L.library().onq_ranges_free(handle)
        return TensorsData(self._method(), {name: TensorData(**values) for name, values in found.items()})


class MinMaxCalibrater(CalibraterBase):
    """Ranges from the lowest to the highest value, or a moving average of them."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path="augmented_model.onnx",
        symmetric=False,
        use_external_data_format=False,
        moving_average=False,
        averaging_constant=0.01,
        max_intermediate_outputs=None,
        per_channel=False,
    ):
        """
        Args:
            model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format, per_channel:
                see CalibraterBase.
            moving_average: a moving average instead of the extremes.
            averaging_constant: the weight of a new sample in it, 0 to 1.
            max_intermediate_outputs: accepted; memory does not grow with the samples.
        """
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format, per_channel
        )
        if moving_average and not 0 <= averaging_constant <= 1:
            raise ValueError("Invalid averaging constant, which should not be < 0 or > 1.")
        self.moving_average = moving_average
        self.averaging_constant = averaging_constant
        self.max_intermediate_outputs = max_intermediate_outputs

    def _method(self) -> CalibrationMethod:
        from .calibrate import CalibrationMethod

        return CalibrationMethod.MinMax

    def _options(self) -> dict[str, Any]:
        options = {
            "calib_symmetric": bool(self.symmetric),
            "calib_moving_average": bool(self.moving_average),
            "calib_per_channel": bool(self.per_channel),
        }
        if self.moving_average:
            options["calib_averaging_constant"] = self.averaging_constant
        return options

    def merge_range(self, old_range: Mapping[str, Any], new_range: dict[str, Any]) -> dict[str, Any]:
        """Two sets of ranges as one: the extremes of both, or a moving average. Ranges are TensorData or pairs."""
        from .calibrate import TensorData

        for name, old in (old_range or {}).items():
            new = new_range[name]
            lows, highs = zip(*(r.range_value if isinstance(r, TensorData) else r for r in (old, new)))
            if self.moving_average:
                low, high = (a + self.averaging_constant * (b - a) for a, b in (lows, highs))
            else:
                low, high = min(lows), max(highs)
            plain = not isinstance(old, TensorData) and not isinstance(new, TensorData)
            new_range[name] = (low, high) if plain else TensorData(lowest=low, highest=high)
        return new_range


class HistogramCalibrater(CalibraterBase):
    """Ranges from histograms."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path="augmented_model.onnx",
        use_external_data_format=False,
        method="percentile",
        symmetric=False,
        num_bins=128,
        num_quantized_bins=2048,
        percentile=99.999,
        scenario="same",
    ):
        """
        Args:
            model_path, op_types_to_calibrate, augmented_model_path, use_external_data_format, symmetric: see
                CalibraterBase.
            method: "entropy", "percentile" or "distribution".
            num_bins: bins of the histograms.
            num_quantized_bins: entropy: bins after quantization.
            percentile: percentile: percentage of the values to keep.
            scenario: distribution: "same" or "p3", the distribution that float 8 values follow.
        """
        super().__init__(model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format)
        if method not in ("entropy", "percentile", "distribution"):
            raise ValueError("Only 'entropy', 'percentile' or 'distribution' methods are supported")
        if not 0 <= percentile <= 100:
            raise ValueError("Invalid percentile. Must be in range 0 <= percentile <= 100.")
        self.method = method
        self.num_bins = num_bins
        self.num_quantized_bins = num_quantized_bins
        self.percentile = percentile
        self.scenario = scenario

    def _method(self) -> CalibrationMethod:
        from .calibrate import CalibrationMethod

        return CalibrationMethod[self.method.capitalize()]

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"calib_num_bins": self.num_bins}
        if self.method == "percentile":
            options |= {"calib_symmetric": bool(self.symmetric), "calib_percentile": self.percentile}
        elif self.method == "entropy":
            options["calib_num_quantized_bins"] = self.num_quantized_bins
        else:
            options["calib_scenario"] = self.scenario
        return options


class EntropyCalibrater(HistogramCalibrater):
    """Ranges that keep the distribution of quantized values nearest to that of the float ones."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path="augmented_model.onnx",
        use_external_data_format=False,
        method="entropy",
        symmetric=False,
        num_bins=128,
        num_quantized_bins=128,
    ):
        """See HistogramCalibrater."""
        super().__init__(
            model_path,
            op_types_to_calibrate,
            augmented_model_path,
            use_external_data_format,
            method=method,
            symmetric=symmetric,
            num_bins=num_bins,
            num_quantized_bins=num_quantized_bins,
        )


class PercentileCalibrater(HistogramCalibrater):
    """Ranges that keep a percentage of the values."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path="augmented_model.onnx",
        use_external_data_format=False,
        method="percentile",
        symmetric=False,
        num_bins=2048,
        percentile=99.999,
    ):
        """See HistogramCalibrater."""
        super().__init__(
            model_path,
            op_types_to_calibrate,
            augmented_model_path,
            use_external_data_format,
            method=method,
            symmetric=symmetric,
            num_bins=num_bins,
            percentile=percentile,
        )


class DistributionCalibrater(HistogramCalibrater):
    """Averages and deviations, for float 8."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path="augmented_model.onnx",
        use_external_data_format=False,
        method="distribution",
        num_bins=128,
        scenario="same",
    ):
        """See HistogramCalibrater."""
        super().__init__(
            model_path,
            op_types_to_calibrate,
            augmented_model_path,
            use_external_data_format,
            method=method,
            num_bins=num_bins,
            scenario=scenario,
        )
