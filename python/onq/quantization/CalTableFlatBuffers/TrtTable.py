"""The table: a list of entries."""

from __future__ import annotations

from typing import Any

from ._record import Record
from .KeyValue import KeyValue

_DICT = 4


class TrtTable(Record):
    """A table that is read."""

    __slots__ = []

    @classmethod
    def GetRootAsTrtTable(cls, buf: bytes, offset: int = 0) -> TrtTable:  # noqa: N802
        """GetRootAs, by its old name."""
        return cls.GetRootAs(buf, offset)

    def Dict(self, j: int) -> KeyValue | None:  # noqa: N802
        """Entry j."""
        offset = self._tab.Offset(_DICT)
        if not offset:
            return None
        entry = KeyValue()
        entry.Init(self._tab.Bytes, self._tab.Indirect(self._tab.Vector(offset) + 4 * j))
        return entry

    def DictLength(self) -> int:  # noqa: N802
        """The number of entries."""
        offset = self._tab.Offset(_DICT)
        return self._tab.VectorLen(offset) if offset else 0

    def DictIsNone(self) -> bool:  # noqa: N802
        """True if there is no list at all."""
        return self._tab.Offset(_DICT) == 0


def Start(builder: Any) -> None:  # noqa: N802
    """Begins a table that is written."""
    builder.StartObject(1)


def AddDict(builder: Any, dict: int) -> None:  # noqa: A002, N802
    """Sets the list, by its offset."""
    builder.PrependUOffsetTRelativeSlot(0, dict, 0)


def StartDictVector(builder: Any, numElems: int) -> int:  # noqa: N802, N803
    """Begins the list."""
    return builder.StartVector(4, numElems, 4)


def End(builder: Any) -> int:  # noqa: N802
    """Ends the table; returns its offset."""
    return builder.EndObject()


TrtTableStart, TrtTableAddDict, TrtTableStartDictVector, TrtTableEnd = Start, AddDict, StartDictVector, End
