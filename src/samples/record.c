/*
 * record.c — see record.h.
 */
#include "samples/record.h"

void oq_record_init(oq_record *r, const onq_allocator *alloc, size_t most) {
    *r = (oq_record){.most = most, .limit = OQ_MAX_RECORD};
    oq_arena_init(&r->arena, alloc);
}

void oq_record_release(oq_record *r) {
    oq_arena_release(&r->arena);
    r->runs.n = 0;
}

void oq_record_fit(oq_record *r, uint64_t model_bytes) {
    const uint64_t part = model_bytes / 4;
    r->limit = part < OQ_MAX_RECORD ? OQ_MAX_RECORD : part < OQ_MOST_RECORD ? part : OQ_MOST_RECORD;
}

bool oq_record_wants(const oq_record *r, uint64_t number) {
    return r->runs.n < r->most && number == r->runs.n;
}

onq_code oq_record_keep(oq_record *r, const oq_datum *inputs, size_t n_inputs,
                        const oq_datum *outputs, size_t n_outputs, onq_error *err) {
    oq_record_run run = {.n_inputs = n_inputs, .n_outputs = n_outputs};
    const uint64_t bytes = oq_datums_bytes(inputs, n_inputs) + oq_datums_bytes(outputs, n_outputs);
    if (r->runs.n >= r->most || bytes > r->limit - r->bytes)
        return ONQ_OK;
    assert(r->bytes + bytes <= r->limit);
    OQ_TRY(oq_datums_copy(&r->arena, inputs, n_inputs, &run.inputs, err));
    OQ_TRY(oq_datums_copy(&r->arena, outputs, n_outputs, &run.outputs, err));
    OQ_TRY_ALLOC(OQ_PUSH(&r->arena, &r->runs, run), err);
    r->bytes += bytes;
    return ONQ_OK;
}
