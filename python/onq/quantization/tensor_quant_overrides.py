"""Overrides of single tensors: the dictionaries of TensorQuantOverrides, looked up, checked and changed.

Overrides are {"tensor": [{...}]}: one dictionary for a tensor, or for a weight one for each channel. The keys are
quant_type, scale, zero_point, symmetric, reduce_range, rmin, rmax, axis, and convert with a dictionary of its own.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .qtypes import QuantType

if TYPE_CHECKING:
    import onnx

    Overrides = dict[str, list[dict[str, Any]]]

_NOT_WITH_PARAMETERS = ("symmetric", "reduce_range", "rmax", "rmin")


@dataclass
class QuantTypeInfo:
    """The type of a tensor. What is None is the default, and equal to everything."""

    quant_type: QuantType
    symmetric: bool | None = None
    reduce_range: bool | None = None
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantTypeInfo):
            return NotImplemented
        for mine, its in ((self.symmetric, other.symmetric), (self.reduce_range, other.reduce_range)):
            if mine is not None and its is not None and mine != its:
                return False
        return self.quant_type == other.quant_type and self.axis == other.axis

    @staticmethod
    def load_from_dict(
        raw_dict: dict[str, Any],
        default_qtype: QuantType | None = None,
        default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:
        """Reads the keys of an override."""
        return QuantTypeInfo(
            raw_dict.get("quant_type", default_qtype),
            raw_dict.get("symmetric", default_symmetric),
            raw_dict.get("reduce_range", default_reduce_range),
            raw_dict.get("axis"),
        )

    def save_to_dict(self, raw_dict: dict[str, Any]) -> None:
        """Writes what is not a default into an override."""
        raw_dict["quant_type"] = self.quant_type
        for key in ("symmetric", "reduce_range", "axis"):
            if getattr(self, key) is not None:
                raw_dict[key] = getattr(self, key)


class _Wrong(Exception):
    """An override that is not valid; the text says why."""


def _check_parameters(entry: dict[str, Any], where: str = "") -> bool:
    """True if the override has a scale and a zero point."""
    if ("scale" in entry) != ("zero_point" in entry):
        raise _Wrong(f"Must provide both 'scale' and 'zero_point' if one of the overrides is provided{where}")
    if "scale" not in entry:
        return False
    wrong = [key for key in _NOT_WITH_PARAMETERS if key in entry]
    if wrong:
        raise _Wrong(f"Tensor override option(s) [{', '.join(wrong)}] are invalid with 'scale' and 'zero_point'{where}")
    return True


def _check_convert(name: str, entry: dict[str, Any], default_type: QuantType | None) -> None:
    convert = entry["convert"]
    if "quant_type" not in convert:
        raise _Wrong(f"'convert' of tensor '{name}' must have a 'quant_type'")
    if "reduce_range" in convert:
        raise _Wrong(f"'reduce_range' is for weights only, not for activation '{name}'")
    if convert["quant_type"] == entry.get("quant_type", default_type):
        raise _Wrong(f"'convert' of tensor '{name}' must have another type than the tensor")
    _check_parameters(convert, f" (tensor '{name}')")


def _check_tensor(name: str, entry: dict[str, Any], is_weight: bool, default_type: QuantType | None) -> None:
    _check_parameters(entry)
    if "reduce_range" in entry and not is_weight:
        raise _Wrong(f"'reduce_range' is for weights only, not for activation '{name}'")
    if "convert" in entry:
        if is_weight:
            raise _Wrong("Cannot use 'convert' override for initializers")
        _check_convert(name, entry, default_type)


def _check_channels(name: str, entries: list[dict[str, Any]], weight: onnx.TensorProto | None) -> None:
    first = entries[0]
    if weight is None:
        raise _Wrong(f"Tensor '{name}' has per-channel overrides, but is not an initializer")
    if first.get("axis") is None:
        raise _Wrong(f"Per-channel overrides for tensor {name} need an 'axis' in the first dictionary")
    rank = len(weight.dims)
    axis = first["axis"] + rank if first["axis"] < 0 else first["axis"]
    if not 0 <= axis < rank:
        raise _Wrong(f"tensor {name} of rank {rank} has no axis {first['axis']}")
    if len(entries) > 1 and len(entries) != weight.dims[axis]:
        raise _Wrong(f"tensor {name} has {weight.dims[axis]} channels, but {len(entries)} overrides")
    parameters = _check_parameters(first)
    if ("rmin" in first) != ("rmax" in first):
        raise _Wrong("Must provide both 'rmin' and 'rmax' if one is provided")
    for i, entry in enumerate(entries):
        _check_channel(name, i, entry, first, axis)
        if parameters != _check_parameters(entry) and parameters:
            raise _Wrong(f"channel {i} of tensor '{name}' has no scale and zero_point, but the first has")
        if "rmin" in first and not ("rmin" in entry and "rmax" in entry):
            raise _Wrong(f"channel {i} of tensor '{name}' has no rmin and rmax, but the first has")


def _check_channel(name: str, i: int, entry: Any, first: dict[str, Any], axis: int) -> None:
    if not isinstance(entry, dict):
        raise _Wrong(f"override {i} of tensor '{name}' is not a dictionary")
    if "convert" in entry:
        raise _Wrong(f"Cannot use 'convert' override for initializers, such as {name}.")
    for key in ("quant_type", "symmetric", "reduce_range"):
        if key in entry and entry[key] != first.get(key):
            raise _Wrong(f"channel {i} of tensor '{name}' has another {key} than the first")
    if "axis" in entry and entry["axis"] not in (first["axis"], axis):
        raise _Wrong(f"channel {i} of tensor '{name}' has another axis than the first")


class TensorQuantOverridesHelper(MutableMapping):
    """Overrides with questions one can ask them. It changes the dictionary that it is given."""

    def __init__(self, raw_overrides: Overrides):
        self.overrides = raw_overrides

    def _first(self, tensor_name: str) -> dict[str, Any] | None:
        entries = self.overrides.get(tensor_name)
        return entries[0] if entries else None

    def has_per_tensor_overrides(self, tensor_name: str) -> bool:
        """True if the tensor has an override without an axis."""
        first = self._first(tensor_name)
        return first is not None and "axis" not in first

    def has_per_channel_overrides(self, tensor_name: str) -> bool:
        """True if the tensor has overrides for channels."""
        first = self._first(tensor_name)
        return first is not None and "axis" in first

    def overrides_scale_zp(self, tensor_name: str) -> bool:
        """True if scale and zero point are given."""
        first = self._first(tensor_name)
        return first is not None and "scale" in first and "zero_point" in first

    def get_per_tensor_overrides(
        self, tensor_name: str, default_val: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """The override of a tensor that has no axis."""
        entries = self.overrides.get(tensor_name, [default_val] if default_val is not None else None)
        if not entries:
            return None
        if "axis" in entries[0]:
            raise ValueError(f"tensor '{tensor_name}' has overrides for channels where one for the tensor is expected")
        return entries[0]

    def get_per_channel_overrides(
        self, tensor_name: str, default_val: list[dict[str, Any]] | None = None
    ) -> list[dict[str, Any]] | None:
        """The overrides of a tensor's channels."""
        entries = self.overrides.get(tensor_name, default_val)
        if not entries:
            return None
        if "axis" not in entries[0]:
            raise ValueError(f"tensor '{tensor_name}' has an override without an axis where channels are expected")
        return entries

    def get_quant_types(self) -> set[QuantType]:
        """All types that are used."""
        types = set()
        for entries in (self.overrides or {}).values():
            for entry in entries:
                types |= {e["quant_type"] for e in (entry, entry.get("convert") or {}) if "quant_type" in e}
        return types

    def is_valid(
        self,
        initializers: dict[str, onnx.TensorProto],
        activation_names: set[str],
        default_activation_qtype: QuantType | None,
    ) -> tuple[bool, str | None]:
        """Whether the overrides fit together and to the model, and if not, why."""
        try:
            for name, entries in (self.overrides or {}).items():
                if name not in initializers and name not in activation_names:
                    raise _Wrong(f"Tensor '{name}' in TensorQuantOverrides is not present in the model")
                if not isinstance(entries, list):
                    raise _Wrong(f"Tensor quantization overrides for '{name}' are not in a list")
                if not entries or entries[0] == {}:
                    continue
                if not isinstance(entries[0], dict):
                    raise _Wrong(f"override 0 of tensor '{name}' is not a dictionary")
                if len(entries) > 1 or entries[0].get("axis") is not None:
                    _check_channels(name, entries, initializers.get(name))
                else:
                    _check_tensor(name, entries[0], name in initializers, default_activation_qtype)
        except _Wrong as e:
            return False, str(e)
        return True, None

    def update_tensor_overrides(
        self,
        tensor_name: str,
        new_vals: dict[str, Any],
        channels: list[int] | None = None,
        overwrite: bool = True,
    ) -> bool:
        """Sets keys of a tensor's overrides, of all channels or some. Without `overwrite` nothing that is there changes.

        Returns:
            True if the keys were set.
        """
        if not new_vals:
            return False
        entries = self.overrides.get(tensor_name) or [{}]
        chosen = [e for i, e in enumerate(entries) if channels is None or i in channels]
        if not overwrite and any(key in entry for entry in chosen for key in new_vals):
            return False
        for entry in chosen:
            entry.update(new_vals)
        self.overrides[tensor_name] = entries
        return True

    def get_node_output_qtype_info(
        self, output_name: str, default_qtype: QuantType | None, default_symmetric: bool | None = None
    ) -> QuantTypeInfo:
        """The type that a node gives its output."""
        first = self._first(output_name) or {}
        return QuantTypeInfo(first.get("quant_type", default_qtype), first.get("symmetric", default_symmetric))

    def get_node_input_qtype_info(
        self,
        input_name: str,
        node_name: str,
        default_qtype: QuantType | None,
        default_symmetric: bool | None = None,
        default_reduce_range: bool | None = None,
    ) -> QuantTypeInfo:
        """The type that a node sees on its input, after a conversion if there is one for it."""
        first = self._first(input_name) or {}
        convert = first.get("convert")
        if convert is None:
            return QuantTypeInfo.load_from_dict(first, default_qtype, default_symmetric, default_reduce_range)
        converted = "recv_nodes" not in convert or node_name in convert["recv_nodes"]
        seen = convert["quant_type"] if converted else first.get("quant_type", default_qtype)
        return QuantTypeInfo(seen, convert.get("symmetric", default_symmetric))

    def pprint_str(self, indent: int | None = None) -> str:
        """The overrides as JSON, to be read."""
        return json.dumps(self.overrides, default=str, indent=indent)

    def empty(self) -> bool:
        """True if there are none."""
        return not self.overrides

    def get_dict(self) -> Overrides:
        """The dictionary."""
        return self.overrides

    def __setitem__(self, key: str, value: list[dict]) -> None:
        self.overrides[key] = value

    def __getitem__(self, key: str) -> list[dict]:
        return self.overrides[key]

    def __delitem__(self, key: str) -> None:
        del self.overrides[key]

    def __iter__(self):
        return iter(self.overrides)

    def __len__(self) -> int:
        return len(self.overrides)

    def __str__(self) -> str:
        return str(self.overrides)

    def __repr__(self) -> str:
        return f"TensorQuantOverridesHelper({self.overrides})"
