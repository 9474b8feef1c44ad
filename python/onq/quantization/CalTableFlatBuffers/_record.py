"""What the tables of the format have in common: a place in a buffer, and fields that may be missing."""

from __future__ import annotations

from typing import Any


class Record:
    """A table in a buffer of bytes."""

    __slots__ = ["_tab"]

    @classmethod
    def GetRootAs(cls, buf: bytes, offset: int = 0) -> Any:  # noqa: N802
        """The table that a buffer begins with."""
        import flatbuffers  # comes with onnxruntime

        record = cls()
        record.Init(buf, offset + flatbuffers.encode.Get(flatbuffers.packer.uoffset, buf, offset))
        return record

    def Init(self, buf: bytes, pos: int) -> None:  # noqa: N802
        """Makes this the table at a place of a buffer."""
        import flatbuffers

        self._tab = flatbuffers.table.Table(buf, pos)

    def _text(self, slot: int) -> bytes | None:
        offset = self._tab.Offset(slot)
        return self._tab.String(offset + self._tab.Pos) if offset else None
