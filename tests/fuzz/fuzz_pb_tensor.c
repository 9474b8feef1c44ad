/*
 * fuzz_pb_tensor.c — the .pb files of samples. The first byte says what the input is; the rest is
 * the file. What is read is written again and must read as the same.
 */
#include "samples/datum.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Touches every byte, so that a view that lies outside is seen. */
static unsigned touch(const oq_datum *d) {
    unsigned sum = 0;
    uint64_t count = 1;
    for (size_t i = 0; i < d->n_items; i++)
        sum += touch(&d->items[i]);
    if (d->kind != OQ_DATUM_TENSOR)
        return sum;
    for (size_t i = 0; i < d->rank; i++) {
        assert(d->dims[i] >= 0);
        count *= (uint64_t)d->dims[i];
    }
    assert(count == d->count);
    for (uint64_t i = 0; i < d->size_bytes; i++)
        sum += ((const uint8_t *)d->data)[i];
    for (uint64_t i = 0; d->strings != NULL && i < d->count; i++)
        for (size_t k = 0; k < d->strings[i].n; k++)
            sum += (uint8_t)d->strings[i].p[k];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    static const oq_datum_kind kinds[] = {OQ_DATUM_TENSOR, OQ_DATUM_SEQUENCE, OQ_DATUM_MAP};
    const oq_io io = {
        .name = OQ_S("x"), .kind = kinds[data[0] % 3], .optional = (data[0] & 4) != 0};
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    a.limit = 64u << 20;
    oq_datum d, again;
    oq_buf out;
    oq_buf_init(&out, oq_alloc_default());
    if (oq_datum_from_pb(&a, data + 1, size - 1, &io, &d, NULL, NULL) == ONQ_OK) {
        const unsigned sum = touch(&d);
        const onq_code rc = oq_datum_to_pb(&d, &io, &out, NULL);
        assert(rc == ONQ_OK || rc == ONQ_E_UNSUPPORTED);
        if (rc == ONQ_OK) {
            assert(oq_datum_from_pb(&a, (const uint8_t *)out.p, out.n, &io, &again, NULL, NULL) ==
                   ONQ_OK);
            assert(touch(&again) == sum);
        }
    }
    oq_buf_release(&out);
    oq_arena_release(&a);
    return 0;
}
