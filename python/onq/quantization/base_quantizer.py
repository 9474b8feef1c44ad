"""What the quantizer objects have in common: a model, its types, and what to quantize.

Subclasses may override should_quantize_node and quantize_model. The other methods of the reference's quantizers are steps
of a quantization that libonq does as a whole: a subclass that overrides one is refused when it is made (_guard.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from . import quant_utils
from ._guard import Guarded, missing
from .calibrate import TensorData  # noqa: F401 - a name that programs import from here
from .onnx_model import ONNXModel, subgraphs
from .qtypes import quant_type_of
from .quant_utils import (  # noqa: F401 - names that programs import from here
    DEQUANT_OP_NAME,
    QUANT_OP_NAME,
    TENSOR_NAME_QUANT_SUFFIX,
    find_by_name,
    get_opset_version,
    model_has_infer_metadata,
    normalize_axis,
    pack_bytes_to_4bit,
    quantize_data,
    quantize_nparray,
    save_and_reload_model_with_shape_infer,
    tensor_proto_to_array,
)
from .tensor_quant_overrides import TensorQuantOverridesHelper

if TYPE_CHECKING:
    import onnx

    from .calibrate import TensorsData

_FLOATS = (1, 10)  # FLOAT and FLOAT16 of TensorProto.DataType


# Methods of the reference's quantizers that are steps of one quantization.
_STEPS = dict.fromkeys(
    """quantize_bias_static_impl quantize_initializer_impl quantize_weight_per_channel_impl adjust_tensor_ranges
    quantize_subgraph quantize_node_with_sub_graph add_new_nodes find_quantized_value adjust_single_weight_scale_if_needed
    quantize_bias_static quantize_activation quantize_weight quantize_initializer quantize_weight_per_channel
    calculate_quantization_params quantize_activation_tensor quantize_output_same_as_input quantize_weight_tensor
    quantize_weight_tensor_per_channel quantize_bias_tensor remove_node remove_nodes try_replacing_upstream_output
    is_tensor_quantized is_tensor_per_channel calc_quant_params calc_graph_quant_params is_weight_symmetric
    is_valid_quantize_weight is_float_tensor""".split(),
    "override should_quantize_node, or use nodes_to_exclude, op_types_to_quantize and TensorQuantOverrides",
)


class QuantizationParams:
    """Parameters of a tensor by name: scale, zero_point, quant_type, axis and the like, as numpy arrays and numbers."""

    def __init__(self, **data: Any) -> None:
        self.data: dict[str, Any] = {}
        for key, value in data.items():
            if key == "axis":
                if value is not None and not isinstance(value, int):
                    raise TypeError(f"Axis value must be an int or None, not {type(value)}.")
            elif not isinstance(value, (int, str, np.ndarray, float)):
                raise TypeError(f"Values must be numpy arrays, int, float, str not {type(value)} for k={key!r}.")
            if key == "scale" and value.dtype not in (np.float32, np.float16):
                raise ValueError(f"scale must a float32 or float16 numpy element but is {value.dtype} for k={key!r}")
            self.data[key] = value

    def get(self, key: str, default_value: Any = None) -> Any:
        return self.data.get(key, default_value)

    def __iter__(self):
        return iter(self.data)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.data[key] = value

    def __len__(self) -> int:
        return len(self.data)


class BaseQuantizer(metaclass=Guarded):
    """Holds the arguments of a quantization. `model` is an ONNXModel; quantize_model changes what it wraps."""

    _guarded = _STEPS

    def __getattr__(self, name: str) -> Any:
        raise missing(self, name, _STEPS)

    def __init__(
        self,
        model: onnx.ModelProto,
        per_channel: bool,
        reduce_range: bool,
        weight_qType,  # noqa: N803
        activation_qType,  # noqa: N803
        tensors_range: TensorsData | Mapping[str, Any] | None,
        nodes_to_quantize: Sequence[str] | None,
        nodes_to_exclude: Sequence[str] | None,
        op_types_to_quantize: Sequence[str] | None,
        extra_options: Mapping[str, Any] | None = None,
    ):
        self.model = ONNXModel(model)
        self.opset_version = get_opset_version(model)
        self.per_channel = per_channel
        self.reduce_range = reduce_range
        self.weight_qType = quant_type_of(weight_qType).tensor_type
        self.activation_qType = quant_type_of(activation_qType).tensor_type
        self.tensors_range = tensors_range
        self.nodes_to_quantize = nodes_to_quantize
        self.nodes_to_exclude = nodes_to_exclude
        self.op_types_to_quantize = op_types_to_quantize
        self.extra_options = dict(extra_options or {})
        self.enable_subgraph_quantization = bool(self.extra_options.get("EnableSubgraph"))
        self.force_quantize_no_input_check = bool(self.extra_options.get("ForceQuantizeNoInputCheck"))
        self.is_activation_symmetric = self.extra_options.get("ActivationSymmetric", False)
        self.is_activation_restricted_asymmetric = self.extra_options.get("ActivationRestrictedAsymmetric", False)
        self.min_real_range = self.extra_options.get("MinimumRealRange")
        self.tensor_quant_overrides = TensorQuantOverridesHelper(self.extra_options.get("TensorQuantOverrides") or {})
        self.parent = None
        if not self.tensor_quant_overrides.empty():
            default = quant_type_of(activation_qType)
            valid, why = self.tensor_quant_overrides.is_valid(self.initializers, set(self.value_infos), default)
            if not valid:
                raise ValueError(why)
        self.tensor_quant_override_qtypes = self.tensor_quant_overrides.get_quant_types()

    # ---- questions about the model

    @cached_property
    def value_infos(self) -> dict[str, onnx.ValueInfoProto]:
        """Types and shapes by the name of a tensor: what inference finds, and the inputs and outputs."""
        model = self.model.model
        if not model_has_infer_metadata(model):
            model = save_and_reload_model_with_shape_infer(model)
        graph = model.graph
        return {info.name: info for infos in (graph.value_info, graph.output, graph.input) for info in infos}

    @property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """The initializers of the main graph by name."""
        return {tensor.name: tensor for tensor in self.model.initializer()}

    def is_weight_symmetric(self, weight_quant_type) -> bool:
        """True if weights of this type are quantized symmetrically."""
        given = self.extra_options.get("WeightSymmetric")
        return quant_type_of(weight_quant_type).name.startswith(("QInt", "QFLOAT8")) if given is None else given

    def is_per_channel(self) -> bool:
        """True if weights get a scale for each channel."""
        return self.per_channel

    def is_input_a_initializer(self, input_name: str) -> bool:
        """True if an initializer of the main graph has the name."""
        return find_by_name(input_name, self.model.initializer()) is not None

    def is_valid_quantize_weight(self, weight_name: str) -> bool:
        """True if a float initializer of the main graph has the name."""
        return self._elem_type(find_by_name(weight_name, self.model.initializer())) in _FLOATS

    def is_float_tensor(self, tensor_name: str) -> bool:
        """True if a tensor is float32 or float16, as far as inference finds its type."""
        if self.is_input_a_initializer(tensor_name):
            return self.is_valid_quantize_weight(tensor_name)
        return tensor_name in self.value_infos and self.value_infos[tensor_name].type.tensor_type.elem_type in _FLOATS

    @staticmethod
    def _elem_type(tensor: onnx.TensorProto | None) -> int:
        return 0 if tensor is None else tensor.data_type

    def adjust_tensor_ranges(self) -> None:
        """Does nothing: libonq gives the inputs of Clip and Relu and the outputs of Softmax their ranges itself."""

    # ---- what is quantized

    def should_quantize_node(self, node: onnx.NodeProto) -> bool:
        """True if the node is chosen by its name and type. A subclass may decide otherwise."""
        if self.nodes_to_quantize and node.name not in self.nodes_to_quantize:
            return False
        if node.op_type not in self.op_types_to_quantize or node.op_type in (QUANT_OP_NAME, DEQUANT_OP_NAME):
            return False
        return not self.nodes_to_exclude or node.name not in self.nodes_to_exclude

    def _nodes(self, graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
        """The nodes that may be quantized: those of the graph, with EnableSubgraph those inside of them too."""
        for node in graph.node:
            for inner in subgraphs(node) if self.enable_subgraph_quantization else ():
                yield from self._nodes(inner)
            yield node

    def _choice(self) -> dict[str, Sequence[str] | None]:
        """What is quantized, as options: by types and names, or as a subclass decides node by node."""
        types = self.op_types_to_quantize
        if type(self).should_quantize_node is BaseQuantizer.should_quantize_node:
            return {
                "op_types_to_quantize": types,
                "nodes_to_quantize": self.nodes_to_quantize,
                "nodes_to_exclude": self.nodes_to_exclude,
            }
        taken, left = [], []
        for node in self._nodes(self.model.model.graph):
            (taken if self.should_quantize_node(node) else left).append(node)
        types = list(dict.fromkeys([*(types or ()), *(node.op_type for node in taken)]))
        left = [node.name for node in left if node.op_type in types]
        unclear = {node.name for node in taken} & set(left)
        if unclear or "" in left:
            raise ValueError("should_quantize_node tells nodes apart that have no names, or the same; name the nodes first")
        return {"op_types_to_quantize": types, "nodes_to_quantize": None, "nodes_to_exclude": left}

    def _static(self, quant_format) -> onnx.ModelProto:
        """Quantizes by ranges. A model that says that its shapes are inferred becomes the result, others are left alone."""
        from .quantize import quantize_with_ranges

        made = quantize_with_ranges(
            self.model.model,
            self.tensors_range,
            quant_format=quant_format,
            activation_type=self.activation_qType,
            weight_type=self.weight_qType,
            per_channel=self.per_channel,
            reduce_range=self.reduce_range,
            **self._choice(),
            extra_options=self.extra_options,
        )
        if model_has_infer_metadata(self.model.model):
            self.model.model.CopyFrom(made)
        else:
            self.model.model = made
        return self.model.model

    def quantize_model(self) -> onnx.ModelProto:
        """Quantizes; the result is returned, and `model` wraps it from now on."""
        raise NotImplementedError


to_array_extended = None  # of onnx before 1.18; the reference has None there too

def __getattr__(name: str) -> Any:
    if name == "ONNX_TYPE_TO_NP_TYPE":  # made when it is asked for: it needs ml_dtypes
        return quant_utils.ONNX_TYPE_TO_NP_TYPE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
