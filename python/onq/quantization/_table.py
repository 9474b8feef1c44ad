"""TensorRT's calibration table as a flatbuffer: table TrtTable { dict: [KeyValue]; }, table KeyValue { key, value: string; }"""

from __future__ import annotations


def flatbuffer_of(rows: list[tuple[str, str]]) -> bytes:
    """The table of (tensor, value) pairs, which are sorted by tensor."""
    import flatbuffers  # comes with onnxruntime

    builder = flatbuffers.Builder(1024)
    entries = []
    for key, value in rows:
        strings = builder.CreateString(key), builder.CreateString(value)
        builder.StartObject(2)
        for slot, offset in enumerate(strings):
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        entries.append(builder.EndObject())
    builder.StartVector(4, len(entries), 4)
    for entry in entries:  # prepended, so the last key is the first
        builder.PrependUOffsetTRelative(entry)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())
