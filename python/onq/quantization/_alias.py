"""Lets this package stand for another one: sys.modules["onnxruntime.quantization"] = onq.quantization.

Python would then load every submodule a second time under the other name, with enumerations and classes that are not equal
to the first ones. This finder gives it the modules there are.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType

_PACKAGE = __package__
_LOADED = sys.modules[_PACKAGE]


class _Loader(importlib.abc.Loader):
    def __init__(self, name: str):
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the machinery put that of the alias there


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path=None, target=None) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{_PACKAGE}."):
            return None
        head, rest = fullname, []
        while "." in head:
            head, _, last = head.rpartition(".")
            rest.insert(0, last)
            if sys.modules.get(head) is _LOADED:
                name = ".".join([_PACKAGE, *rest])
                return importlib.machinery.ModuleSpec(fullname, _Loader(name))
        return None


def install() -> None:
    """Adds the finder, once."""
    if not any(type(finder).__name__ == _Finder.__name__ and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
