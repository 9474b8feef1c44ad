/*
 * fuzz_gguf.c — a GGUF file is refused with a reason, or every tensor of a known type can be read.
 */
#include "onnx/gguf/gguf.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST 4096 /* numbers that are read of a tensor, at either end */

static void read_ends(const oq_gguf_tensor *t) {
    static float out[MOST];
    const uint64_t n = t->count < MOST ? t->count : MOST;
    oq_gguf_read(t, 0, n, out);
    oq_gguf_read(t, t->count - n, n, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    oq_gguf g;
    oq_file file;
    onq_error err = ONQ_ERROR_INIT;
    MUST(oq_file_borrow(&file, oq_alloc_default(), "x.gguf", data, size, &err) == ONQ_OK);
    const onq_code rc = oq_gguf_open(&g, oq_alloc_default(), &file, &err);
    if (rc != ONQ_OK) {
        MUST(err.code == rc && err.text[0] != '\0');
        return 0;
    }
    for (size_t i = 0; i < g.tensors.n; i++) {
        const oq_gguf_tensor *t = &g.tensors.v[i];
        if (oq_gguf_check_type(t, &err) == ONQ_OK)
            read_ends(t);
    }
    oq_gguf_close(&g);
    return 0;
}
