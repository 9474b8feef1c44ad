"""Arguments of the reference's functions as options of the library's commands."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .._job import Job, plain, text_of
from ..errors import OptionError
from .qtypes import quant_type_of
from .registry import op_types_for


def set_types(job: Job, **types: Any) -> None:
    """Sets activation_type and weight_type from a QuantType or a number."""
    for name, value in types.items():
        job.set(name, quant_type_of(value))


def set_choice(
    job: Job,
    quant_format: Any,
    op_types_to_quantize: Iterable[str] | None,
    nodes_to_quantize: Iterable[str] | None,
    nodes_to_exclude: Iterable[str] | None,
) -> None:
    """Sets what is quantized; empty lists say nothing. `quant_format` is None in dynamic quantization."""
    job.add("op_types_to_quantize", op_types_for(quant_format, op_types_to_quantize))
    job.add("nodes_to_quantize", nodes_to_quantize)
    job.add("nodes_to_exclude", nodes_to_exclude)


def set_providers(job: Job, providers: Iterable[Any] | None) -> None:
    """Sets where the model runs: the first of a list of execution providers."""
    for provider in providers or ():
        name = provider[0] if isinstance(provider, tuple) else provider
        job.set("provider", name.removesuffix("ExecutionProvider"))
        return


def set_carry(job: Job, carry: Mapping[str, str] | Iterable[str] | bool | None) -> None:
    """Says which outputs of one step are inputs of the next: None: what names say; False: none."""
    if carry is False:
        job.set("no_carry", True)
    elif isinstance(carry, str):
        raise TypeError('carry is a list of "OUTPUT=INPUT", or a dictionary of them')
    elif carry is not None and carry is not True:
        if isinstance(carry, Mapping):  # names, not patterns
            carry = [re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", k) + "=" + v for k, v in carry.items()]
        job.add("carry", carry)


def overrides_text(overrides: Mapping[str, Any]) -> str:
    """TensorQuantOverrides as JSON: types by name, numpy's numbers as numbers."""

    def entry(values: Any) -> Any:
        if not isinstance(values, Mapping):
            return plain(values)
        out = {}
        for key, value in values.items():
            if key == "convert":
                out[key] = entry(value)
            elif key == "quant_type" and value is not None:
                out[key] = quant_type_of(value).name
            else:
                out[key] = plain(value)
        return out

    tensors = {}
    for name, entries in overrides.items():
        if not isinstance(entries, (list, tuple)):
            raise ValueError(f"Tensor quantization overrides for '{name}' are not in a list")
        tensors[name] = [entry(e) for e in entries]
    return json.dumps(tensors)


def set_extra(job: Job, extra_options: Mapping[str, Any] | None) -> None:
    """Sets extra_options by their own names. A key that nobody knows is left out with a warning."""
    for key, value in (extra_options or {}).items():
        if key == "TensorQuantOverrides":
            if value and job.knows("tensor_quant_overrides"):
                job.set("tensor_quant_overrides", overrides_text(value))
            continue
        if value is None and key != "MinimumRealRange":
            continue
        try:
            job.set("extra", f"{key}={text_of(value)}")
        except OptionError as e:
            if not e.text.startswith("extra_options: unknown key"):
                raise
            logging.getLogger("onq").warning("%s", e.text)
