"""Lets this package stand for another one, under the other one's name.

Where `sys.modules` has this package under another name, Python would load every submodule a second time under that
name, with enumerations and classes that are not equal to the first ones. This finder gives it the modules there are.
Names in `names` are found as this package too, without an entry in `sys.modules` (onq.as_reference).
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import CodeType, ModuleType

_PACKAGE = __package__
_LOADED = sys.modules[_PACKAGE]

names: set[str] = set()


class _Loader(importlib.abc.InspectLoader):
    """Gives a module that is loaded, or can be, under another name."""

    def __init__(self, name: str):
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put that of the alias there

    def get_source(self, fullname: str) -> None:
        return None

    def get_code(self, fullname: str) -> CodeType | None:  # `python -m` under the other name
        spec = importlib.util.find_spec(self._name)
        return None if spec is None or spec.loader is None else spec.loader.get_code(self._name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path=None, target=None) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith(f"{_PACKAGE}."):
            return None
        if fullname in names:
            return self._spec(fullname, _PACKAGE)
        head, rest = fullname, []
        while "." in head:
            head, _, last = head.rpartition(".")
            rest.insert(0, last)
            if sys.modules.get(head) is _LOADED:
                return self._spec(fullname, ".".join([_PACKAGE, *rest]))
        return None

    @staticmethod
    def _spec(fullname: str, name: str) -> importlib.machinery.ModuleSpec | None:
        ours = importlib.util.find_spec(name)
        if ours is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(name), is_package=ours.submodule_search_locations is not None)


def install() -> None:
    """Adds the finder, once."""
    if not any(type(finder).__name__ == _Finder.__name__ and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
