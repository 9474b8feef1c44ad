#!/bin/sh
# protobuf_c.sh PROGRAM — builds PROGRAM, which reads a model through protobuf-c and writes it again, for bench_core to stand
# beside. The message definitions come from the onnx package in build/venv. Fails quietly when protoc-c or onnx is absent.
set -e
proto=$(ls build/venv/lib/python3*/site-packages/onnx/onnx-ml.proto 2>/dev/null | head -n 1)
[ -n "$proto" ] && command -v protoc-c >/dev/null
work=$1.d
mkdir -p "$work"
cp "$proto" "$work/onnx.proto"
(cd "$work" && protoc-c --c_out=. onnx.proto)
cat >"$work/main.c" <<'C'
#include "onnx.pb-c.h"
#include <stdio.h>
#include <stdlib.h>
static void put(ProtobufCBuffer *b, size_t n, const uint8_t *p) {
    (void)b;
    if (fwrite(p, 1, n, (FILE *)((void **)b)[1]) != n) exit(1);
}
int main(int argc, char **argv) {
    FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) return 1;
    size_t n = (size_t)ftell(f);
    uint8_t *p = malloc(n);
    rewind(f);
    if (p == NULL || fread(p, 1, n, f) != n) return 1;
    fclose(f);
    Onnx__ModelProto *m = onnx__model_proto__unpack(NULL, n, p);
    free(p);
    if (m == NULL || (f = fopen(argv[2], "wb")) == NULL) return 1;
    struct { ProtobufCBuffer base; FILE *file; } b = {{put}, f};
    onnx__model_proto__pack_to_buffer(m, &b.base);
    return fclose(f) != 0;
}
C
cc -O2 -o "$1" "$work/main.c" "$work/onnx.pb-c.c" -I"$work" -lprotobuf-c
