#!/usr/bin/env bash
# budget.sh — inspect touches none of the weights: 3 GB of external data, and 1.9 GB inside the model file, each under
# 32 MiB of resident memory and a tenth of a second. The files are sparse: they take no space.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
if ldd "$ONQ" | says -E 'lib(a|t)san'; then
    echo "a sanitizer's memory is not ours to count"
    exit 77
fi
cat >budget.py <<'P'
import os, subprocess, sys, time

def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])

def field(number, data):  # length-delimited
    return varint(number << 3 | 2) + varint(len(data)) + data

def number(n, value):
    return varint(n << 3) + varint(value)

def entry(key, value):
    return field(13, field(1, key.encode()) + field(2, str(value).encode()))

SIDE = 4096
SIZE = SIDE * SIDE * 4
tensor = number(1, SIDE) + number(1, SIDE) + number(2, 1)
node = lambda i: field(1, field(1, b"y%d" % i) + field(1, b"w%d" % i) + field(2, b"y%d" % (i + 1)) + field(4, b"MatMul"))
value = lambda i: field(1, b"y%d" % i) + field(2, field(1, number(1, 1)))
tail = number(1, 8) + field(8, field(1, b"") + number(2, 17))

def external(count):
    graph = b"".join(node(i) for i in range(count)) + field(11, value(0)) + field(12, value(count))
    for i in range(count):
        graph += field(5, tensor + field(8, b"w%d" % i) + entry("location", "w.data") + entry("offset", i * SIZE)
                       + entry("length", SIZE) + number(14, 1))
    open("external.onnx", "wb").write(tail + field(7, graph))
    with open("w.data", "wb") as f:
        f.truncate(count * SIZE)
    return "external.onnx"

def inline(count):
    head = b"".join(node(i) for i in range(count)) + field(11, value(0)) + field(12, value(count))
    parts = []
    for i in range(count):
        start = tensor + field(8, b"w%d" % i) + varint(9 << 3 | 2) + varint(SIZE)
        parts.append(varint(5 << 3 | 2) + varint(len(start) + SIZE) + start)
    size = len(head) + sum(len(p) + SIZE for p in parts)
    with open("inline.onnx", "wb") as f:
        f.write(tail + varint(7 << 3 | 2) + varint(size) + head)
        for p in parts:
            f.write(p)
            f.seek(SIZE, os.SEEK_CUR)
        f.truncate(f.tell())
    return "inline.onnx"

failed = False
for model, more in ((m, o) for m in (external(48), inline(28)) for o in ([], ["--nodes", "--tensors", "--json"])):
    best, most = 1e9, 0
    for _ in range(5):
        began = time.monotonic()
        job = subprocess.Popen([sys.argv[1], "inspect", model, *more], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(job.pid, 0)
        best, most = min(best, time.monotonic() - began), max(most, usage.ru_maxrss)
        if status:
            sys.exit(f"{model}: status {status}")
    ok = best < 0.1 and most < 32 * 1024
    failed |= not ok
    print(f"{model} {' '.join(more)}: {best:.3f} s, {most} kB{'' if ok else ' (more than 0.1 s or 32768 kB)'}")
sys.exit(failed)
P
python3 budget.py "$ONQ"
