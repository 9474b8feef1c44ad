/*
 * fuzz_npy.c — .npy arrays: header, then elements in ONNX's order.
 */
#include "samples/files/npy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_elements(const oq_npy *h, const uint8_t *in) {
    if (h->kind == 'S' || h->kind == 'U') {
        oq_arena a;
        oq_arena_init(&a, oq_alloc_default());
        for (uint64_t i = 0; i < h->count && i < 1000; i++)
            (void)oq_npy_text(h, &a, in, i);
        oq_arena_release(&a);
        return;
    }
    uint8_t *out = malloc(h->data_size + 1);
    assert(out != NULL);
    oq_npy_convert(h, h->dims, h->rank, h->fortran, in, out);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t end = 0;
    oq_npy h;
    if (oq_npy_prefix(data, size < OQ_NPY_PREFIX ? size : OQ_NPY_PREFIX, &end, NULL) != ONQ_OK ||
        end > size || oq_npy_header(data, end, &h, NULL) != ONQ_OK)
        return 0;
    assert(h.rank <= OQ_NPY_RANK && h.data_at == end);
    (void)oq_npy_dtype(&h, OQ_BFLOAT16);
    if (h.data_size > size - end || h.count > 1u << 20)
        return 0;
    /* A block of its own, so that a read past the elements is seen. */
    uint8_t *exact = malloc(h.data_size + 1);
    assert(exact != NULL);
    memcpy(exact, data + end, h.data_size);
    read_elements(&h, exact);
    free(exact);
    return 0;
}
