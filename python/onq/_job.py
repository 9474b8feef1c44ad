"""One command of the library with its options, run once. Everything in the package that does work goes through here."""

from __future__ import annotations

import ctypes as c
import json
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from . import _isolation
from . import _library as L
from ._model import is_proto, onnx_package, proto_bytes
from ._progress import Progress
from ._samples import Samples
from ._words import in_python
from .errors import OnqError, error_of

_log = logging.getLogger("onq")
_LEVELS = {-1: logging.WARNING, 0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG, 4: logging.INFO}


def text_of(value: Any) -> str:
    """A Python value as an option's text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if hasattr(value, "item"):  # a numpy scalar
        return text_of(value.item())
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return json.dumps(plain(value))
    return repr(value)


def plain(value: Any) -> Any:
    """A value as JSON knows it: numpy's scalars as numbers, sets as lists, enumerations by name."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return [plain(v) for v in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "tolist"):  # numpy: an array of one element is its value
        value = value.tolist()
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
    return value


class Result:
    """What a command gave: `text` for people, `data` (the JSON), `status`, `files` kept in memory, `warnings`."""

    def __init__(self, text: str, data: dict, status: int, files: dict[str, list[tuple[str, bytes]]], warnings: list[str]):
        self.text, self.data, self.status, self.files, self.warnings = text, data, status, files, warnings

    def __repr__(self) -> str:
        return self.text.rstrip("\n")


class _Interrupts:
    """Ctrl-C while the library works.

    Python would raise KeyboardInterrupt between any two steps of a callback, also where nobody can catch it. So the
    signal is noted, and the next callback stops the job. The reader's own code is interrupted as always.
    """

    def __init__(self, samples: Samples | None):
        self._samples = samples
        self._before: Any = None
        self.seen = False

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is signal.default_int_handler:
                self._before = before
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_exc) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.seen = True
        if self._samples is not None and self._samples.reading:
            raise KeyboardInterrupt


class Job:
    """Options of one command. Use as a context manager: it frees what the library holds."""

    def __init__(self, command: str):
        self._lib = L.library()
        self._err = L.Error()
        self._command = command
        self._paths: list[str] = []
        self._keep: list = []
        self._model: object = None  # the model that samples are for
        self._samples: Samples | None = None
        self._failure: BaseException | None = None
        self._warnings: list[str] = []
        self._progress: Progress | None = None
        self._interrupts: _Interrupts | None = None
        self._folder: tempfile.TemporaryDirectory | None = None
        self._env = self._lib.onq_env_new(None)
        self._opts = L.HANDLE()
        if not self._env:
            raise MemoryError
        self._log_fn = L.LOG_FN(self._on_log)
        self._progress_fn = L.PROGRESS_FN(self._on_progress)
        self._lib.onq_env_set_log(self._env, self._log_fn, None)
        self._lib.onq_env_set_progress(self._env, self._progress_fn, None)
        try:
            self.check(self._lib.onq_options_new(self._env, command.encode(), c.byref(self._opts), self._err))
            runtime = None if os.environ.get("ONQ_ONNXRUNTIME") else L.find_runtime()
            if runtime and self.knows("onnxruntime"):
                self.set("onnxruntime", runtime)
            for name, value in _isolation.options().items():
                if self.knows(name):
                    self.set(name, value)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_exc) -> None:
        self.close()

    def close(self) -> None:
        """Frees the options and the environment."""
        if self._opts:
            self._lib.onq_options_free(self._opts)
            self._opts = L.HANDLE()
        if self._env:
            self._lib.onq_env_free(self._env)
            self._env = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        # The callbacks hold the job and the job holds them.
        self._log_fn = self._progress_fn = self._samples = None
        self._keep.clear()

    @property
    def env(self) -> int:
        """The environment, for the calls of onq.h that take one."""
        return self._env

    @property
    def options(self) -> L.HANDLE:
        """The options, for the calls of onq.h that take them."""
        return self._opts

    # ---- callbacks

    def _on_log(self, _ctx, level: int, text: bytes) -> None:
        try:
            message = in_python(text.decode(errors="replace"), self._command)
            if level in (-1, 1):
                self._warnings.append(message)
            _log.log(_LEVELS.get(level, logging.INFO), "%s", message)
        except BaseException as e:  # noqa: BLE001
            self._failure = e

    def _on_progress(self, _ctx, what: bytes, done: int, total: int) -> int:
        try:
            if self._progress is not None:
                self._progress.update(what.decode(errors="replace"), done, total)
            stop = self._interrupts is not None and self._interrupts.seen
            return 1 if stop or self._failure is not None else 0
        except BaseException as e:  # noqa: BLE001 - KeyboardInterrupt arrives here
            self._failure = e
            return 1

    def check(self, code: int) -> None:
        """Raises what a call reported: an exception of the caller's code first, else the library's."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if code != 0:
            text = self._err.text.decode(errors="replace")
            raise error_of(code, in_python(text, self._command), [path for path in self._paths if path in text])

    def call(self, name: str, *arguments: Any, samples: Samples | None = None) -> None:
        """Calls a function of the library that may take long: with progress, and stopped by Ctrl-C.

        `samples` is the reader that it uses. The error is the last argument, and is added here.
        """
        self._progress = Progress()
        try:
            with _Interrupts(samples) as self._interrupts:
                code = getattr(self._lib, name)(*arguments, self._err)
                interrupted = self._interrupts.seen
        finally:
            self._progress.close()
            self._progress = self._interrupts = None
        if samples is not None and samples.failure is not None:
            failure, samples.failure = samples.failure, None
            raise failure
        if interrupted:
            raise KeyboardInterrupt
        self.check(code)

    # ---- options

    def knows(self, name: str) -> bool:
        """True if the command has this option."""
        return bool(self._lib.onq_options_find(self._opts, L.text(name)))

    def set(self, name: str, value: Any) -> None:
        """Sets an option; None leaves it at its default."""
        if name in ("input", "float_model"):
            self._model = value
        if isinstance(value, (str, os.PathLike)):
            self._paths.append(text_of(value))
        if value is not None:
            self.check(self._lib.onq_options_set(self._opts, name.encode(), L.text(text_of(value)), self._err))

    def add(self, name: str, items: Iterable[Any] | None) -> None:
        """Appends items to a list, each as it is."""
        for item in items or ():
            self.check(self._lib.onq_options_add(self._opts, name.encode(), L.text(text_of(item)), self._err))

    def clear(self, name: str) -> None:
        """Takes back what was set."""
        self.check(self._lib.onq_options_clear(self._opts, name.encode(), self._err))

    def set_all(self, options: dict[str, Any]) -> None:
        """Sets options by name; lists are given item by item, and a ModelProto is a model."""
        for name, value in options.items():
            if isinstance(value, (list, tuple, set)):
                self.add(name, value)
            elif is_proto(value):
                self.set_model(name, value)
            else:
                self.set(name, value)

    def set_bytes(self, name: str, data: bytes, label: str) -> None:
        """Gives a file that an option names from memory."""
        buffer = c.c_char_p(data)
        given = L.Bytes(L.text(label), c.cast(buffer, c.c_void_p), len(data), None, None, None)
        self._keep += [data, buffer]
        self.check(self._lib.onq_options_set_bytes(self._opts, name.encode(), c.byref(given), self._err))

    def set_file(self, name: str, text: str) -> None:
        """Gives a small file that an option names, as JSON."""
        path = self.folder() / f"{name}.json"
        path.write_text(text, encoding="utf-8")
        self.set(name, path)

    def want_bytes(self, name: str, label: str) -> None:
        """Keeps a file that the command writes in the result."""
        self.check(self._lib.onq_options_want_bytes(self._opts, name.encode(), L.text(label), self._err))

    def set_model(self, name: str, model: object, *, reloaded: bool = False) -> None:
        """Gives a model: a path, or a ModelProto, which the reference may save and load again (`reloaded`)."""
        self._model = model
        if not is_proto(model):
            if not isinstance(model, (str, os.PathLike)):
                raise TypeError(f"a model is a path or a ModelProto, not a {type(model).__name__}")
            self.set(name, model)
            return
        data = proto_bytes(model, reloaded=reloaded)
        if data is not None:
            self.set_bytes(name, data, "model")
        else:  # past what one message holds
            onnx = onnx_package()

            path = self.folder() / f"{name}.onnx"
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            onnx.save_model(copy, str(path), save_as_external_data=True)
            self.set(name, path)

    def set_reader(self, reader: object, *, may_rewind: bool = True) -> None:
        """Samples from a reader written in Python."""
        self._samples = Samples(reader, may_rewind=may_rewind, model=self._model)
        self.check(self._lib.onq_options_set_reader(self._opts, c.byref(self._samples.struct), self._err))

    def folder(self) -> Path:
        """A temporary folder that lives as long as the job."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="onq.")
        return Path(self._folder.name)

    @property
    def model(self) -> object:
        """The model that was set: a path or a ModelProto."""
        return self._model

    @property
    def samples(self) -> Samples | None:
        """The reader that was set."""
        return self._samples

    # ---- running

    def run(self) -> Result:
        """Does the job."""
        handle = L.HANDLE()
        try:
            self.call("onq_run", self._env, self._opts, c.byref(handle), samples=self._samples)
            return self._result(handle)
        finally:
            if handle:
                self._lib.onq_result_free(handle)

    def _result(self, handle: L.HANDLE) -> Result:
        files: dict[str, list[tuple[str, bytes]]] = {}
        i = 0
        while row := self._lib.onq_result_file(handle, i):
            file = row.contents
            data = c.string_at(file.data, file.size) if file.size else b""
            files.setdefault(file.option.decode(), []).append((L.name_of(file.name), data))
            i += 1
        text = self._lib.onq_result_text(handle).decode(errors="replace")
        raw = self._lib.onq_result_json(handle)
        data = json.loads(raw) if raw else {}
        return Result(text, data, self._lib.onq_result_status(handle), files, list(self._warnings))


def run(command: str, options: dict[str, Any] | None = None, **more: Any) -> Result:
    """Runs a command with options by name; lists are given item by item."""
    with Job(command) as job:
        job.set_all({**(options or {}), **more})
        return job.run()


__all__ = ["Job", "OnqError", "Result", "plain", "run", "text_of"]
