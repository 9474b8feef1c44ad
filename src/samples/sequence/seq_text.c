/*
 * seq_text.c — see seq_text.h.
 */
#include "samples/sequence/seq_text.h"

bool oq_walk_has_text(const oq_walker *w, const oq_sample *like) {
    const oq_language *l = &w->roles.language;
    if (!l->is || l->ids >= like->n_inputs)
        return false;
    const oq_datum *ids = &like->inputs[l->ids];
    return ids->kind == OQ_DATUM_TENSOR && ids->rank == 2 && ids->count > 0;
}

onq_code oq_walk_text(const oq_walker *w, const oq_sample *like, uint64_t length, oq_arena *a,
                      oq_sample *out, onq_error *err) {
    const oq_language *l = &w->roles.language;
    const oq_datum *ids = &like->inputs[l->ids];
    bool *may_lack = OQ_NEW_ARRAY(a, bool, w->in.n + 1);
    oq_datum *inputs = OQ_NEW_ARRAY(a, oq_datum, w->in.n + 1);
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 2);
    const size_t each = ids->dtype == OQ_INT32 ? 4 : 8;
    uint8_t *data = oq_arena_alloc(a, length * each);
    OQ_TRY_ALLOC(may_lack != NULL && inputs != NULL && dims != NULL && data != NULL, err);
    oq_walker_may_lack(w, may_lack);
    for (size_t i = 0; i < w->in.n; i++)
        inputs[i] = may_lack[i] ? (oq_datum){0} : like->inputs[i];
    for (uint64_t i = 0; i < length; i++)
        memcpy(data + i * each, (const uint8_t *)ids->data + i % ids->count * each, each);
    dims[0] = 1;
    dims[1] = (int64_t)length;
    inputs[l->ids] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                                .dtype = ids->dtype,
                                .rank = 2,
                                .dims = dims,
                                .count = length,
                                .data = data,
                                .size_bytes = length * each};
    *out = (oq_sample){.name = "text", .inputs = inputs, .n_inputs = w->in.n};
    return ONQ_OK;
}
