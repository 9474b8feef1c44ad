"""Which operators each format quantizes, by name, as libonq has them.

IntegerOpsRegistry is what quantize_dynamic quantizes, QLinearOpsRegistry and QDQRegistry what quantize_static does in
QOperator and in QDQ format. CommonOpsRegistry is what the first two share. The values describe the operator.
"""

from __future__ import annotations

from functools import cache

from .._job import run

_MODES = {"IntegerOpsRegistry": "dynamic", "QLinearOpsRegistry": "qoperator", "QDQRegistry": "qdq"}


@cache
def _operators() -> list[dict]:
    return run("ops").data["operators"]


@cache
def _registry(name: str) -> dict[str, dict]:
    if name == "CommonOpsRegistry":
        shared = _registry("QLinearOpsRegistry").keys() - {"Conv", "MatMul"}
        return {op: row for op, row in _registry("IntegerOpsRegistry").items() if op in shared}
    return {row["type"]: row for row in _operators() if row[_MODES[name]]}


def __getattr__(name: str) -> dict[str, dict]:
    if name in _MODES or name == "CommonOpsRegistry":
        return _registry(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODES, "CommonOpsRegistry"]
