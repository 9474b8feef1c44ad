"""The exceptions of onq: each is also the built-in exception that onnxruntime.quantization raises for the same mistake.

`except ValueError` in a script written for onnxruntime.quantization catches what it did there; `except OnqError` catches
everything that the library reports. `code` is the number of onq.h, `text` its one line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class OnqError(Exception):
    """An error that libonq reports."""

    code: int = 60

    def __init__(self, text: str, code: int | None = None):
        super().__init__(text)
        self.text = text
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.text


class OutOfMemory(OnqError, MemoryError):
    """There is not enough memory."""


class Cancelled(OnqError, RuntimeError):
    """The job was stopped before it wrote anything."""


class FileError(OnqError, OSError):
    """A file cannot be opened, read or written."""


class MissingFile(FileError, FileNotFoundError):
    """A file or folder is not there."""


class FileDenied(FileError, PermissionError):
    """A file or folder may not be read or written."""


class FileIsFolder(FileError, IsADirectoryError):
    """A folder is where a file is needed."""


class InvalidModel(OnqError, ValueError, RuntimeError):
    """A model, tensor, sample or file that is not valid."""


class Unsupported(OnqError, NotImplementedError, ValueError):
    """A valid request that cannot be done with this model."""


class OptionError(OnqError, ValueError):
    """An option, an override or a value that is wrong."""


class EngineError(OnqError, RuntimeError):
    """ONNX Runtime is missing, too old, or refused."""


class InternalError(OnqError, RuntimeError):
    """A bug in onq."""


_WRITE = 12  # ONQ_E_WRITE

# Families of onq.h's codes; the highest start at or below a code is its family.
_FAMILIES = (
    (60, InternalError),
    (50, EngineError),
    (40, OptionError),
    (30, Unsupported),
    (20, InvalidModel),
    (14, MissingFile),
    (10, FileError),
    (3, Cancelled),
    (2, InvalidModel),
    (1, OutOfMemory),
)


def _kind_of_file(path: str, writing: bool) -> type[FileError] | None:
    """What is wrong with a file that was to be read or written, as far as the system tells."""
    if os.path.isdir(path):
        return FileIsFolder
    if os.path.exists(path):
        allowed = os.access(path, os.W_OK) and os.stat(path).st_mode & 0o222 if writing else os.access(path, os.R_OK)
    else:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            return MissingFile
        allowed = os.access(folder, os.W_OK | os.X_OK)
    return None if allowed else FileDenied


def error_of(code: int, text: str, paths: Sequence[str] = ()) -> OnqError:
    """The exception for a code of onq.h. `paths` are files that the text names."""
    kind = next((kind for start, kind in _FAMILIES if code >= start), InternalError)
    if kind is FileError:
        kind = next(filter(None, (_kind_of_file(path, code == _WRITE) for path in paths)), FileError)
    return kind(text, code)
