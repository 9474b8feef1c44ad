"""Puts onq in the place of onnxruntime.quantization, for programs that cannot be edited.

In a process:

    import onq
    onq.as_onnxruntime()                    # from here on, until .undo()
    with onq.as_onnxruntime(): ...          # or only inside this block

For a whole program:

    python -m onq.as_reference script.py arguments...
    python -m onq.as_reference -m package.module arguments...

`import onnxruntime.quantization`, `from onnxruntime import quantization` and imports of every submodule then give the
modules of `onq.quantization`, whether onnxruntime was imported before or not. Names that a program took from
onnxruntime.quantization before the call stay what they are.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from types import ModuleType

from .quantization import _alias

_PARENT = "onnxruntime"
_THEIRS = f"{_PARENT}.quantization"


def _take_out() -> dict[str, ModuleType]:
    """Removes the modules that are loaded under the reference's names, and returns them."""
    names = [name for name in sys.modules if name == _THEIRS or name.startswith(f"{_THEIRS}.")]
    return {name: sys.modules.pop(name) for name in names}


class _Placed:
    """onq in the place of the reference. `undo`, or the end of a `with` block, takes it back."""

    def __init__(self) -> None:
        self._first = _THEIRS not in _alias.names
        self._before = _take_out()
        _alias.names.add(_THEIRS)
        if _PARENT in sys.modules:
            self._show(importlib.import_module(_THEIRS))

    @staticmethod
    def _show(module: ModuleType | None) -> None:
        """Makes a module, or none, the attribute of the parent package."""
        parent = sys.modules.get(_PARENT)
        if parent is not None and module is not None:
            parent.quantization = module
        elif parent is not None and hasattr(parent, "quantization"):
            del parent.quantization

    def undo(self) -> None:
        """Puts everything back as it was before the first call; calling it twice does nothing."""
        if not self._first:
            return
        self._first = False
        _alias.names.discard(_THEIRS)
        _take_out()
        sys.modules.update(self._before)
        self._show(self._before.get(_THEIRS))

    def __enter__(self) -> _Placed:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.undo()


def as_onnxruntime() -> _Placed:
    """Puts onq.quantization in the place of onnxruntime.quantization, at once and for the whole process.

    The object that it returns takes it back: by its method undo(), or at the end of a `with` block.
    """
    return _Placed()


def main(arguments: list[str]) -> None:
    """Runs a script, or with -m a module, with onq in the place of onnxruntime.quantization."""
    if not arguments or arguments == ["-m"] or arguments[0] in ("-h", "--help"):
        print("usage: python -m onq.as_reference (SCRIPT | -m MODULE) [ARGUMENT...]", file=sys.stderr)
        raise SystemExit(0 if arguments and arguments[0] != "-m" else 2)
    as_onnxruntime()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = ""  # as `python -m` has it
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))  # as `python SCRIPT` has it
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
