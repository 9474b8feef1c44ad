"""A ModelProto with the conveniences that scripts around quantization use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._model import onnx_package
from .quant_utils import attribute_to_kwarg, find_by_name  # noqa: F401 - the first for programs

if TYPE_CHECKING:
    import numpy as np
    onnx = onnx_package()


class ONNXModel:
    """Wraps a ModelProto, `model`, which its methods change in place."""

    def __init__(self, model: onnx.ModelProto):
        self.model = model

    # ---- parts

    def graph(self) -> onnx.GraphProto:
        """The graph."""
        return self.model.graph

    def nodes(self) -> Any:
        """The nodes of the graph."""
        return self.model.graph.node

    def initializer(self) -> Any:
        """The initializers of the graph."""
        return self.model.graph.initializer

    def ir_version(self) -> int:
        """The version of the format."""
        return self.model.ir_version

    def opset_import(self) -> Any:
        """The opsets."""
        return self.model.opset_import

    def set_opset_import(self, domain: str, version: int) -> None:
        """Sets the version of a domain."""
        entry = next((o for o in self.model.opset_import if o.domain == domain), None)
        if entry is None:
            entry = self.model.opset_import.add(domain=domain)
        entry.version = version

    # ---- looking

    def get_initializer(self, name: str) -> onnx.TensorProto | None:
        """The initializer of this name."""
        return find_by_name(name, self.model.graph.initializer)

    def get_initializer_name_set(self) -> set[str]:
        """The names of all initializers."""
        return {init.name for init in self.model.graph.initializer}

    def find_graph_input(self, input_name: str):
        """The input of this name."""
        return find_by_name(input_name, self.model.graph.input)

    def find_graph_output(self, output_name: str):
        """The output of this name."""
        return find_by_name(output_name, self.model.graph.output)

    def is_graph_input(self, tensor_name: str) -> bool:
        """True for a name of an input."""
        return self.find_graph_input(tensor_name) is not None

    def is_graph_output(self, output_name: str) -> bool:
        """True for a name of an output."""
        return self.find_graph_output(output_name) is not None

    def get_tensor_type(self, tensor_name: str):
        """The declared type of a tensor, or None."""
        graph = self.model.graph
        for infos in (graph.value_info, graph.input, graph.output):
            info = find_by_name(tensor_name, infos)
            if info is not None:
                return info.type.tensor_type
        return None

    def get_constant_value(self, output_name: str) -> np.ndarray | None:
        """The value of a Constant node or an initializer, or None."""
        onnx = onnx_package()

        for node in self.nodes():
            if node.op_type == "Constant" and node.output[0] == output_name:
                for attribute in node.attribute:
                    if attribute.name == "value":
                        return onnx.numpy_helper.to_array(attribute.t)
        initializer = self.get_initializer(output_name)
        return None if initializer is None else onnx.numpy_helper.to_array(initializer)

    def get_non_initializer_inputs(self) -> set[str]:
        """The names of inputs that have no default."""
        return {i.name for i in self.model.graph.input} - self.get_initializer_name_set()

    def input_name_to_nodes(self) -> dict[str, list]:
        """The consumers of each tensor."""
        consumers: dict[str, list] = {}
        for node in self.nodes():
            for name in node.input:
                if name:
                    consumers.setdefault(name, []).append(node)
        return consumers

    def output_name_to_node(self) -> dict[str, onnx.NodeProto]:
        """The producer of each tensor."""
        return {name: node for node in self.nodes() for name in node.output if name}

    def get_children(self, node, input_name_to_nodes=None) -> list:
        """The nodes that use an output of a node."""
        consumers = self.input_name_to_nodes() if input_name_to_nodes is None else input_name_to_nodes
        return [child for name in node.output for child in consumers.get(name, ())]

    def get_parents(self, node, output_name_to_node=None) -> list:
        """The nodes that make the inputs of a node."""
        producers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return [producers[name] for name in node.input if name in producers]

    def get_parent(self, node, idx: int, output_name_to_node=None):
        """The node that makes input `idx` of a node, or None."""
        producers = self.output_name_to_node() if output_name_to_node is None else output_name_to_node
        return producers.get(node.input[idx]) if idx < len(node.input) else None

    def find_node_by_name(self, node_name: str, new_nodes_list: Iterable, graph):
        """The node of this name, in the graph or the list."""
        return find_by_name(node_name, [*graph.node, *new_nodes_list])

    def find_nodes_by_initializer(self, graph, initializer) -> list:
        """The nodes that use an initializer, one entry for each use."""
        return [node for node in graph.node for name in node.input if name == initializer.name]

    @staticmethod
    def _largest_suffix(names: Iterable[str], prefix: str) -> int:
        rests = (name[len(prefix) :] for name in names if name.startswith(prefix))
        return max((int(rest) for rest in rests if rest.lstrip("-").isdigit()), default=-1)

    def get_largest_node_name_suffix(self, node_name_prefix: str) -> int:
        """The largest number that follows a prefix in the names of nodes, or -1."""
        return max(-1, self._largest_suffix((n.name for n in self.nodes()), node_name_prefix))

    def get_largest_initializer_name_suffix(self, initializer_name_prefix: str) -> int:
        """The largest number that follows a prefix in the names of initializers, or -1."""
        return max(-1, self._largest_suffix((i.name for i in self.initializer()), initializer_name_prefix))

    # ---- changing

    def add_node(self, node) -> None:
        """Appends a node."""
        self.model.graph.node.append(node)

    def add_nodes(self, nodes_to_add: Iterable) -> None:
        """Appends nodes."""
        self.model.graph.node.extend(nodes_to_add)

    def remove_node(self, node) -> None:
        """Takes a node out, if it is there."""
        if node in self.model.graph.node:
            self.model.graph.node.remove(node)

    def remove_nodes(self, nodes_to_remove: Iterable) -> None:
        """Takes nodes out."""
        for node in nodes_to_remove:
            self.remove_node(node)

    def add_initializer(self, tensor) -> None:
        """Appends an initializer, unless there is one of its name."""
        if self.get_initializer(tensor.name) is None:
            self.model.graph.initializer.append(tensor)

    def initializer_extend(self, inits) -> None:
        """Appends initializers."""
        if len(inits) == 0:
            raise ValueError("there are no initializers to add")
        self.model.graph.initializer.extend(inits)

    def remove_initializer(self, tensor) -> None:
        """Takes an initializer out, and the input of its name."""
        if tensor not in self.model.graph.initializer:
            return
        as_input = self.find_graph_input(tensor.name)
        self.model.graph.initializer.remove(tensor)
        if as_input is not None:
            self.model.graph.input.remove(as_input)

    def remove_initializers(self, init_to_remove: Iterable) -> None:
        """Takes initializers out."""
        for tensor in init_to_remove:
            self.remove_initializer(tensor)

    @staticmethod
    def _rename(names, old: str, new: str) -> None:
        for i, name in enumerate(names):
            if name == old:
                names[i] = new

    @staticmethod
    def replace_node_input(node, old_input_name: str, new_input_name: str) -> None:
        """Has a node use another tensor."""
        ONNXModel._rename(node.input, old_input_name, new_input_name)

    @staticmethod
    def replace_node_output(node, old_output_name: str, new_output_name: str) -> None:
        """Has a node make a tensor of another name."""
        ONNXModel._rename(node.output, old_output_name, new_output_name)

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Has all nodes use another tensor."""
        for node in self.nodes():
            self.replace_node_input(node, old_input_name, new_input_name)

    def replace_input_of_nodes(self, old_input_name: str, new_input_name: str, node_names_set: set[str]) -> None:
        """Has the nodes of these names use another tensor."""
        for node in self.nodes():
            if node.name in node_names_set:
                self.replace_node_input(node, old_input_name, new_input_name)

    def replace_output_of_all_nodes(self, old_output_name: str, new_output_name: str) -> None:
        """Has all nodes that make a tensor make one of another name."""
        for node in self.nodes():
            self.replace_node_output(node, old_output_name, new_output_name)

    def replace_output_of_nodes(self, old_output_name: str, new_output_name: str, node_names_set: set[str]) -> None:
        """The same for the nodes of these names."""
        for node in self.nodes():
            if node.name in node_names_set:
                self.replace_node_output(node, old_output_name, new_output_name)

    def remove_unused_constant(self) -> None:
        """Takes Constant nodes and initializers out that nothing uses."""
        used = set(self.input_name_to_nodes()) | {o.name for o in self.model.graph.output}
        self.remove_nodes([n for n in self.nodes() if n.op_type == "Constant" and n.output[0] not in used])
        self.remove_initializers([i for i in self.initializer() if i.name not in used])

    def clean_initializers(self) -> tuple[onnx.GraphProto, set[str]]:
        """Takes initializers out that neither the graph nor its subgraphs use.

        Returns:
            The graph, and the names that it takes from outside.
        """
        return self.model.graph, _clean(self.model.graph)

    def replace_gemm_with_matmul(self) -> None:
        """Turns Gemm nodes without alpha, beta and transA into MatMul and Add, in subgraphs too."""
        _split_gemm(self.model.graph, [])

    def topological_sort(self) -> None:
        """Puts the nodes into an order in which each comes after those it depends on.

        Nodes without inputs come first, then those that graph inputs and initializers (by name) make ready, then as
        nodes before them do.
        """
        nodes = list(self.nodes())
        waiting = [sum(1 for name in node.input if name) for node in nodes]
        users: dict[str, list[int]] = {}
        for i, node in enumerate(nodes):
            for name in node.input:
                if name:
                    users.setdefault(name, []).append(i)
        order = [i for i, count in enumerate(waiting) if count == 0]

        def arrived(name: str) -> None:
            for i in users.get(name, ()):
                waiting[i] -= 1
                if waiting[i] == 0:
                    order.append(i)

        for name in sorted(self.get_initializer_name_set() | {i.name for i in self.model.graph.input}):
            arrived(name)
        done = 0
        while done < len(order):
            for name in nodes[order[done]].output:
                arrived(name)
            done += 1
        if len(order) != len(nodes):
            raise AssertionError("Graph is not a DAG")
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes[i] for i in order)

    # ---- saving

    def save_model_to_file(self, output_path, use_external_data_format: bool = False) -> None:
        """Sorts the nodes and writes the model.

        Args:
            output_path: the file.
            use_external_data_format: write all weights to OUTPUT.data next to it.
        """
        onnx = onnx_package()

        self.topological_sort()
        path = os.fspath(output_path)
        if use_external_data_format:
            onnx.external_data_helper.convert_model_to_external_data(
                self.model,
                all_tensors_to_one_file=True,
                location=os.path.basename(path) + ".data",
                convert_attribute=True,
            )
        onnx.save_model(self.model, path)


# ---- subgraphs


def subgraphs(node) -> list:
    """The graphs in a node's attributes."""
    return [g for a in node.attribute for g in ([a.g] if a.type == a.GRAPH else a.graphs)]


def _clean(graph) -> set[str]:
    wanted = {name for node in graph.node for name in node.input if name} | {o.name for o in graph.output}
    for node in graph.node:
        for subgraph in subgraphs(node):
            wanted |= _clean(subgraph)
    unused = [init for init in graph.initializer if init.name not in wanted]
    for init in unused:
        as_input = find_by_name(init.name, graph.input)
        graph.initializer.remove(init)
        if as_input is not None:
            graph.input.remove(as_input)
    made = {name for node in graph.node for name in node.output}
    return wanted - made - {i.name for i in graph.initializer} - {i.name for i in graph.input}


def _attribute(node, name: str, default: float) -> float:
    onnx = onnx_package()

    found = find_by_name(name, node.attribute)
    return default if found is None else onnx.helper.get_attribute_value(found)


def _transposed(node, outer: list, nodes: list) -> str:
    """The name of Gemm's second input, transposed: in place where it is an initializer, else by a node."""
    onnx = onnx_package()

    name = node.input[1]
    for graph in reversed(outer):
        init = find_by_name(name, graph.initializer)
        if init is not None:
            init.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(init).T, name))
            as_input = find_by_name(name, graph.input)
            if as_input is not None:
                graph.input.remove(as_input)
            return name
    turned = f"{name}_Transposed"
    label = f"{node.name}_Transpose" if node.name else ""
    nodes.append(onnx.helper.make_node("Transpose", [name], [turned], name=label))
    return turned


def _split_gemm(graph, outer: list) -> None:
    onnx = onnx_package()

    inside = [*outer, graph]
    nodes: list = []
    for node in graph.node:
        for subgraph in subgraphs(node):
            _split_gemm(subgraph, inside)
        plain = _attribute(node, "alpha", 1.0) == 1.0 and _attribute(node, "beta", 1.0) == 1.0
        if node.op_type != "Gemm" or not plain or _attribute(node, "transA", 0):
            nodes.append(node)
            continue
        second = _transposed(node, inside, nodes) if _attribute(node, "transB", 0) else node.input[1]
        has_bias = len(node.input) > 2
        product = f"{node.output[0]}_MatMul" if has_bias else node.output[0]
        label = f"{node.name}_MatMul" if node.name else ""
        nodes.append(onnx.helper.make_node("MatMul", [node.input[0], second], [product], name=label))
        if has_bias:
            label = f"{node.name}_Add" if node.name else ""
            nodes.append(onnx.helper.make_node("Add", [product, node.input[2]], node.output, name=label))
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
