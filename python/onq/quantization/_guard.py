"""Classes of which libonq does a part: that part cannot be replaced from Python, and an attempt says so at once.

In the reference a program may override a step of a quantization, in a subclass or by assigning another function to the
class. onq would never call that function. `_guarded` of a class are such names, with what to use instead.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

_PACKAGE = __package__


class Guarded(abc.ABCMeta):
    """A metaclass: overriding or assigning a name of `_guarded` is a TypeError, when it is done."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **more: Any) -> Guarded:
        made = super().__new__(cls, name, bases, namespace, **more)
        if not str(namespace.get("__module__", "")).startswith(f"{_PACKAGE}."):
            steps = made._steps_of()
            cls._refuse(f"{name} overrides", [step for step in namespace if step in steps], steps)
        return made

    def __setattr__(cls, name: str, value: Any) -> None:
        Guarded._refuse(f"{cls.__name__} is given", [name] if name in cls._steps_of() else [], cls._steps_of())
        super().__setattr__(name, value)

    def _steps_of(cls) -> Mapping[str, str]:
        """The steps of the class and of those that it is derived from."""
        return {step: advice for base in reversed(cls.__mro__) for step, advice in vars(base).get("_guarded", {}).items()}

    @staticmethod
    def _refuse(begin: str, names: list[str], steps: Mapping[str, str]) -> None:
        if names:
            advice = "; ".join(dict.fromkeys(steps[name] for name in names))
            raise TypeError(f"{begin} {', '.join(sorted(names))}, which onq never calls, because libonq does it: {advice}")


def missing(owner: object, name: str, steps: Mapping[str, str]) -> AttributeError:
    """The error for a name of the reference that an object does not have."""
    kind = type(owner).__name__
    if name in steps:
        return AttributeError(f"{kind} of onq has no {name!r}, because libonq does that step: {steps[name]}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}")
