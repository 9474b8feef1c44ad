/*
 * record.c — see record.h.
 */
#include "samples/record.h"

void oq_record_init(oq_record *r, const onq_allocator *alloc, size_t most) {
    *r = (oq_record){.most = most};
    oq_arena_init(&r->arena, alloc);
}

void oq_record_release(oq_record *r) {
    oq_arena_release(&r->arena);
    r->runs.n = 0;
}

bool oq_record_wants(const oq_record *r, uint64_t number) {
    return r->runs.n < r->most && number == r->runs.n;
}

/* Bytes of elements and texts. Items nest no deeper than a type, which is checked when it is
 * read. */
static uint64_t weight(const oq_datum *v, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += v[i].size_bytes + weight(v[i].items, v[i].n_items);
        for (uint64_t k = 0; v[i].strings != NULL && k < v[i].count; k++)
            bytes += v[i].strings[k].n;
    }
    return bytes;
}

static onq_code copy_all(oq_record *r, const oq_datum *from, size_t n, oq_datum **to,
                         onq_error *err) {
    *to = OQ_NEW_ARRAY(&r->arena, oq_datum, n + 1);
    if (*to == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(oq_datum_copy(&r->arena, &from[i], &(*to)[i], err));
    return ONQ_OK;
}

onq_code oq_record_keep(oq_record *r, const oq_datum *inputs, size_t n_inputs,
                        const oq_datum *outputs, size_t n_outputs, onq_error *err) {
    oq_record_run run = {.n_inputs = n_inputs, .n_outputs = n_outputs};
    const uint64_t bytes = weight(inputs, n_inputs) + weight(outputs, n_outputs);
    if (r->runs.n >= r->most || bytes > OQ_MAX_RECORD - r->bytes)
        return ONQ_OK;
    OQ_TRY(copy_all(r, inputs, n_inputs, &run.inputs, err));
    OQ_TRY(copy_all(r, outputs, n_outputs, &run.outputs, err));
    if (!OQ_PUSH(&r->arena, &r->runs, run))
        return oq_fail_nomem(err);
    r->bytes += bytes;
    return ONQ_OK;
}
