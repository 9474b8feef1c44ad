"""A drop-in for onnxruntime.quantization: the same names, signatures, defaults and results, computed by libonq.

    from onq.quantization import quantize_static, CalibrationDataReader, QuantType

`strict` says what happens where onnxruntime.quantization refuses a job that libonq can do (qint8 activations with
quint8 weights, histogram methods for a model with If, Where in QOperator format): True raises as it does, False does
the job.

A script that cannot be changed runs after `onq.as_onnxruntime()`, or by `python -m onq.as_reference script.py`.
"""

from __future__ import annotations

strict: bool = True

from ._alias import install as _install  # noqa: E402

_install()

from . import CalTableFlatBuffers, cuda_quantizer  # noqa: E402, F401 - modules that the reference imports here
from .calibrate import (  # noqa: E402
    CalibraterBase,
    CalibrationDataReader,
    CalibrationMethod,
    MinMaxCalibrater,
    TensorData,
    TensorsData,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from .qdq_quantizer import QDQQuantizer  # noqa: E402
from .quant_utils import QuantFormat, QuantType, write_calibration_table  # noqa: E402
from .quantize import (  # noqa: E402
    DynamicQuantConfig,
    QuantConfig,
    QuantizationMode,
    StaticQuantConfig,
    get_qdq_config,
    quantize,
    quantize_dynamic,
    quantize_qat,
    quantize_static,
)
from .shape_inference import quant_pre_process  # noqa: E402

__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationMethod",
    "DynamicQuantConfig",
    "MinMaxCalibrater",
    "QDQQuantizer",
    "QuantConfig",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "StaticQuantConfig",
    "TensorData",
    "TensorsData",
    "create_calibrator",
    "get_qdq_config",
    "load_tensors_data",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "quantize_static",
    "save_tensors_data",
    "strict",
    "write_calibration_table",
]
