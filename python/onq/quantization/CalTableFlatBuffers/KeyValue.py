"""An entry of the table: the name of a tensor and the text of its range."""

from __future__ import annotations

from typing import Any

from ._record import Record

# flatc gives the first field of a table slot 4 of its list of offsets, and every other one two more.
_KEY, _VALUE = 4, 6


class KeyValue(Record):
    """An entry that is read."""

    __slots__ = []

    @classmethod
    def GetRootAsKeyValue(cls, buf: bytes, offset: int = 0) -> KeyValue:  # noqa: N802
        """GetRootAs, by its old name."""
        return cls.GetRootAs(buf, offset)

    def Key(self) -> bytes | None:  # noqa: N802
        """The name of the tensor."""
        return self._text(_KEY)

    def Value(self) -> bytes | None:  # noqa: N802
        """The text of its range."""
        return self._text(_VALUE)


def Start(builder: Any) -> None:  # noqa: N802
    """Begins an entry that is written."""
    builder.StartObject(2)


def AddKey(builder: Any, key: int) -> None:  # noqa: N802
    """Sets the name, by the offset of a text."""
    builder.PrependUOffsetTRelativeSlot(0, key, 0)


def AddValue(builder: Any, value: int) -> None:  # noqa: N802
    """Sets the range, by the offset of a text."""
    builder.PrependUOffsetTRelativeSlot(1, value, 0)


def End(builder: Any) -> int:  # noqa: N802
    """Ends the entry; returns its offset."""
    return builder.EndObject()


KeyValueStart, KeyValueAddKey, KeyValueAddValue, KeyValueEnd = Start, AddKey, AddValue, End
