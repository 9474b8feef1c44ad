"""Completes overrides that give a tensor another type than its neighbours have.

A node wants one type on its float inputs and outputs. Where an override gives a tensor a type, the nodes that make and
use it take that type, and their other tensors are converted: what goes in from the default type, what comes out back to
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...._model import onnx_package
from ...qtypes import FLOAT, FLOAT16, QuantType
from ...tensor_quant_overrides import QuantTypeInfo, TensorQuantOverridesHelper

if TYPE_CHECKING:
    import onnx


@dataclass
class TensorTypeRequest:
    """The types that are wanted of a tensor: by the node that makes it, and by some of those that use it, with their names."""

    producer: QuantTypeInfo | None
    consumers: tuple[QuantTypeInfo, set[str]] | None


class MixedPrecisionTensorQuantOverridesFixer:
    """Adds conversions to overrides, so that every node sees one type."""

    def __init__(
        self,
        overrides: TensorQuantOverridesHelper,
        producers: dict[str, onnx.NodeProto],
        consumers: dict[str, list[onnx.NodeProto]],
        value_infos: dict[str, onnx.ValueInfoProto],
        initializers: dict[str, onnx.TensorProto],
    ):
        """
        Args:
            overrides: the overrides, which `apply` changes.
            producers: the node that makes each tensor.
            consumers: the nodes that use each tensor.
            value_infos: what is declared or inferred of each tensor.
            initializers: the initializers by name.
        """
        self.overrides = overrides
        self.producers = producers
        self.consumers = consumers
        self.value_infos = value_infos
        self.initializers = initializers

    @staticmethod
    def create_from_model(
        overrides: TensorQuantOverridesHelper, model: onnx.ModelProto, default_activation_qtype: QuantType
    ) -> MixedPrecisionTensorQuantOverridesFixer:
        """A fixer for a model. ValueError if the overrides do not fit to it."""
        onnx = onnx_package()

        graph = onnx.shape_inference.infer_shapes(model).graph
        initializers = {init.name: init for init in graph.initializer}
        infos = {info.name: info for group in (graph.value_info, graph.output, graph.input) for info in group}
        consumers: dict[str, list[onnx.NodeProto]] = {}
        producers = {}
        for node in graph.node:
            producers.update({name: node for name in node.output})
            for name in node.input:
                if name:
                    consumers.setdefault(name, []).append(node)
        fixer = MixedPrecisionTensorQuantOverridesFixer(overrides, producers, consumers, infos, initializers)
        fixer._check(default_activation_qtype)
        return fixer

    def _check(self, default_type: QuantType) -> None:
        valid, why = self.overrides.is_valid(self.initializers, set(self.value_infos), default_type)
        if not valid:
            raise ValueError(why)

    def apply(self, default_activation_qtype: QuantType, default_activation_symmetric: bool) -> None:
        """Completes the overrides.

        Args:
            default_activation_qtype: the type of activations that have no override.
            default_activation_symmetric: whether their ranges are symmetric.
        """
        requests = self.get_desired_tensor_types(default_activation_qtype, default_activation_symmetric)
        for name, request in requests.items():
            self._fulfil(name, request, default_activation_qtype)
        self._check(default_activation_qtype)

    def get_desired_tensor_types(
        self, default_activation_qtype: QuantType, default_activation_symmetric: bool
    ) -> dict[str, TensorTypeRequest]:
        """What the overrides ask of the tensors around them."""
        default = QuantTypeInfo(default_activation_qtype, default_activation_symmetric)
        requests: dict[str, TensorTypeRequest] = {}
        for name, entries in self.overrides.items():
            if name in self.initializers or not self._is_float(name) or len(entries) != 1:
                continue
            wanted = QuantTypeInfo.load_from_dict(entries[0], default_activation_qtype)
            if wanted == default or "convert" in entries[0]:
                continue
            around = [self.producers[name]] if name in self.producers else []
            for node in around + self.consumers.get(name, []):
                self._ask(requests, wanted, node)
        return requests

    def _ask(self, requests: dict[str, TensorTypeRequest], wanted: QuantTypeInfo, node: onnx.NodeProto) -> None:
        """Wants one type on all float inputs and outputs of a node."""
        for name in node.output:
            if not self._is_float(name):
                continue
            request = requests.setdefault(name, TensorTypeRequest(None, None))
            if request.producer is not None and request.producer != wanted:
                raise ValueError(f"Tensor {name} has multiple types.")
            request.producer = wanted
        for name in node.input:
            if not name or name in self.initializers or not self._is_float(name):
                continue
            request = requests.setdefault(name, TensorTypeRequest(None, None))
            if request.consumers is not None and request.consumers[0] != wanted:
                raise ValueError(f"Tensor {name} has consumers requesting different types.")
            if not node.name:
                raise ValueError(f"the node of type {node.op_type} that makes {node.output[0]} has no name")
            request.consumers = request.consumers or (wanted, set())
            request.consumers[1].add(node.name)

    def _fulfil(self, name: str, request: TensorTypeRequest, default_type: QuantType) -> None:
        everyone = {node.name for node in self.consumers.get(name, [])}
        made = request.producer or self.overrides.get_node_output_qtype_info(name, default_type)
        if request.consumers is None:  # only made in another type: back to the default for all who use it
            self._convert(name, made, QuantTypeInfo(default_type), everyone)
            return
        wanted, nodes = request.consumers
        if made != wanted:
            self._convert(name, made, wanted, nodes)
        elif request.producer is None:
            self._check_unconverted(name, nodes)
        elif everyone - nodes:
            self._convert(name, made, QuantTypeInfo(default_type), everyone - nodes)
        elif name not in self.overrides:
            self.overrides[name] = [{}]
            made.save_to_dict(self.overrides[name][0])

    def _check_unconverted(self, name: str, nodes: set[str]) -> None:
        entries = self.overrides.get(name)
        convert = entries[0].get("convert") if entries else None
        if convert is not None and ("recv_nodes" not in convert or set(convert["recv_nodes"]) & nodes):
            raise ValueError(f"Tensor override for '{name}' converts the type for consumers that need the original type.")

    def _convert(self, name: str, made: QuantTypeInfo, wanted: QuantTypeInfo, nodes: set[str]) -> None:
        """Has a tensor made in one type, and converted to another for some nodes."""
        if not self.overrides.get(name):
            self.overrides[name] = [{}]
            made.save_to_dict(self.overrides[name][0])
        entry = self.overrides[name][0]
        if made != QuantTypeInfo.load_from_dict(entry):
            raise ValueError(f"Desired producer quant_type for {name} doesn't match existing type.")
        if not nodes:
            return
        if "convert" not in entry:
            entry["convert"] = {}
            wanted.save_to_dict(entry["convert"])
        if wanted != QuantTypeInfo.load_from_dict(entry["convert"]):
            raise ValueError(f"Desired consumer quant_type for {name} doesn't match existing type.")
        entry["convert"].setdefault("recv_nodes", set()).update(nodes)

    def _is_float(self, name: str) -> bool:
        if name in self.initializers:
            return self.initializers[name].data_type in (FLOAT, FLOAT16)
        info = self.value_infos.get(name)
        return info is not None and info.type.tensor_type.elem_type in (FLOAT, FLOAT16)
