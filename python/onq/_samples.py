"""Readers written in Python as samples for the library.

A reader is any object with `get_next`, which gives {input name: array} and None at the end; an iterable of such
dictionaries serves too. Methods that need a second pass get one: samples are kept, up to a limit; past the limit the
reader's own `rewind` is called, and where it has none, the samples are kept all the same.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from . import _library as L
from ._model import is_proto
from ._tensors import as_array, dtype_of, fill_all, number_named

_KEEP_BYTES = 1 << 30
_END, _SAMPLE, _LAST, _STEP = range(4)  # ONQ_READER_ in onq.h


def next_function(reader: object) -> Callable[[], object]:
    """What gives the next sample of a reader, or of an iterable."""
    if callable(getattr(reader, "get_next", None)):
        return reader.get_next
    if hasattr(reader, "__iter__"):
        iterator = iter(reader)
        return lambda: next(iterator, None)
    raise TypeError(f"a calibration data reader has a method get_next; {type(reader).__name__} has none")


def input_types(model: object) -> dict[str, np.dtype]:
    """numpy's types of a model's inputs, as far as they are tensors of types that numpy has."""
    if is_proto(model):
        numbers = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    else:
        from ._job import run

        rows = run("inspect", input=model).data["inputs"]
        numbers = {row["name"]: number_named(row["type"].partition("[")[0]) for row in rows}
    return {name: dtype_of(number) for name, number in numbers.items() if 0 < number <= 20}


def check_sample(sample: object, wanted: Callable[[str], np.dtype | None] = lambda _: None) -> dict[str, np.ndarray]:
    """A sample as arrays by name."""
    if not isinstance(sample, Mapping):
        raise TypeError(f"get_next gives a dictionary of arrays by input name, or None at the end, not a {type(sample).__name__}")
    arrays = {}
    for name, value in sample.items():
        if not isinstance(name, str):
            raise TypeError(f"get_next gives arrays by the name of the input; {name!r} is not a name")
        arrays[name] = as_array(value, name, wanted)
    return arrays


class Strided:
    """A reader read in ranges of `stride` samples, as CalibStridedMinMax does it (set_range)."""

    def __init__(self, reader: object, stride: int):
        total = len(reader)
        if total % stride != 0:
            raise ValueError(f"Total data size ({total}) is not divisible by stride size ({stride}).")
        self._reader, self._stride, self._total = reader, stride, total
        self._samples = self._ranges()

    def _ranges(self) -> Iterator[Mapping]:
        for start in range(0, self._total, self._stride):
            self._reader.set_range(start_index=start, end_index=start + self._stride)
            while (sample := self._reader.get_next()) is not None:
                yield sample

    def get_next(self) -> Mapping | None:
        return next(self._samples, None)


class Samples:
    """The onq_reader of a Python reader. Exceptions end the job and are in `failure`.

    `model` is the model that the samples are for: its inputs say what becomes of lists and numbers.
    """

    def __init__(self, reader: object, *, may_rewind: bool, model: object = None):
        self._reader = reader
        self._model = model
        self._types: dict[str, np.dtype] | None = None
        self._next = next_function(reader)
        self._kept: list[tuple[dict[str, np.ndarray], int]] | None = [] if may_rewind else None
        self._steps: list[object] = []  # of the sequence that was read last
        self._bytes = 0
        self._replay: Iterator[dict[str, np.ndarray]] | None = None
        self._view: tuple = ()
        self.failure: BaseException | None = None
        self.reading = False  # the reader's own code runs
        self.count = 0
        self.struct = L.Reader(
            L.NEXT_FN(self._call_next),
            None,
            L.REWIND_FN(self._call_rewind) if may_rewind else c.cast(None, L.REWIND_FN),
            0,
        )

    def _call_next(self, _ctx, inputs, n_inputs) -> int:
        try:
            taken = self._take()
            if taken is None:
                return _END
            arrays, mark = taken
            self._view = fill_all(arrays, strided=True)
            inputs[0] = c.cast(self._view[0], c.POINTER(L.Tensor))
            n_inputs[0] = len(arrays)
            return mark
        except BaseException as e:  # noqa: BLE001 - it is raised again when the job has ended
            self.failure = e
            return -1

    def _wanted(self, name: str) -> np.dtype | None:
        """The type of an input; the model is asked when it is first needed."""
        if self._types is None:
            self._types = {} if self._model is None else input_types(self._model)
        return self._types.get(name)

    def _take(self) -> tuple[dict[str, np.ndarray], int] | None:
        """The next sample, and whether it is a step of a sequence: a list or tuple of samples is one."""
        if self._replay is not None:
            return next(self._replay, None)
        mark = _SAMPLE
        if self._steps:
            sample = self._steps.pop(0)
            mark = _STEP if self._steps else _LAST
        else:
            try:
                self.reading = True
                sample = self._next()
            finally:
                self.reading = False
            if isinstance(sample, (list, tuple)) and sample:
                self._steps = list(sample)
                sample = self._steps.pop(0)
                mark = _STEP if self._steps else _SAMPLE
        if not sample:
            return None
        try:
            arrays = check_sample(sample, self._wanted)
        except TypeError as e:
            raise TypeError(f"sample {self.count}: {e}") from e
        self.count += 1
        if self._kept is not None:
            self._keep(arrays, mark)
        return arrays, mark

    def _keep(self, arrays: dict[str, np.ndarray], mark: int) -> None:
        self._bytes += sum(a.nbytes for a in arrays.values())
        if self._bytes > _KEEP_BYTES and callable(getattr(self._reader, "rewind", None)):
            self._kept = None
        else:
            # A reader may use one buffer for all samples.
            self._kept.append(({name: a.copy() for name, a in arrays.items()}, mark))

    def _call_rewind(self, _ctx) -> int:
        try:
            if self._kept is not None:
                self._replay = iter(self._kept)
            else:
                self._reader.rewind()
                self._next = next_function(self._reader)
            return 0
        except BaseException as e:  # noqa: BLE001
            self.failure = e
            return -1
