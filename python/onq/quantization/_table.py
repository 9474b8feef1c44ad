"""TensorRT's calibration table, written with the modules of CalTableFlatBuffers."""

from __future__ import annotations

from .CalTableFlatBuffers import KeyValue, TrtTable


def flatbuffer_of(rows: list[tuple[str, str]]) -> bytes:
    """The table of (tensor, value) pairs, which are sorted by tensor."""
    import flatbuffers  # comes with onnxruntime

    builder = flatbuffers.Builder(1024)
    entries = []
    for key, value in rows:
        texts = builder.CreateString(key), builder.CreateString(value)
        KeyValue.Start(builder)
        KeyValue.AddKey(builder, texts[0])
        KeyValue.AddValue(builder, texts[1])
        entries.append(KeyValue.End(builder))
    TrtTable.StartDictVector(builder, len(entries))
    for entry in entries:  # prepended, so the last key is the first
        builder.PrependUOffsetTRelative(entry)
    vector = builder.EndVector()
    TrtTable.Start(builder)
    TrtTable.AddDict(builder, vector)
    builder.Finish(TrtTable.End(builder))
    return bytes(builder.Output())
