/*
 * encodings_blocks.c — see encodings_blocks.h.
 */
#include "quantize/override/encodings_blocks.h"

#include "quantize/number/qtype.h"

#include <math.h>

#define RANK 8

/* Numbers, and how far apart they are along each axis of the weight; 0: all share one. */
typedef struct numbers {
    double *v;
    size_t n, room;
    uint64_t step[RANK];
} numbers;

static size_t count_leaves(const json_t *j) {
    const json_t *v;
    size_t i, n = 0;
    if (!json_is_array(j))
        return 1;
    json_array_foreach(j, i, v) n += count_leaves(v);
    return n;
}

static bool take_leaves(const json_t *j, numbers *out) {
    const json_t *v;
    size_t i;
    if (!json_is_array(j)) {
        out->v[out->n++] = json_number_value(j);
        return json_is_number(j);
    }
    json_array_foreach(j, i, v) if (!take_leaves(v, out)) return false;
    return true;
}

static onq_code read_numbers(oq_arena *a, const json_t *j, const char *what, numbers *out,
                             onq_error *err) {
    *out = (numbers){.room = count_leaves(j)};
    out->v = OQ_NEW_ARRAY(a, double, out->room + 1);
    OQ_TRY_ALLOC(out->v != NULL, err);
    return take_leaves(j, out) ? ONQ_OK
                               : oq_fail(err, ONQ_E_CONFIG, "one of its %s is not a number", what);
}

/* Steps of lists that are nested as the weight is. */
static bool set_nested(const json_t *j, const int64_t *dims, size_t rank, numbers *out) {
    size_t shape[RANK], depth = 0;
    uint64_t step = 1;
    for (; json_is_array(j) && depth < RANK; j = json_array_get(j, 0))
        shape[depth++] = json_array_size(j);
    if (depth != rank)
        return false;
    for (size_t d = rank; d > 0; d--) {
        if (shape[d - 1] != 1 && (int64_t)shape[d - 1] != dims[d - 1])
            return false;
        out->step[d - 1] = shape[d - 1] == 1 ? 0 : step;
        step *= shape[d - 1];
    }
    return step == out->n;
}

/* `dims` are those of the parameters: the weight's, with blocks in place of elements. */
static onq_code set_steps(const oq_encoded_blocks *e, const json_t *j, const int64_t *dims,
                          size_t rank, bool of_channels, const char *what, numbers *out,
                          onq_error *err) {
    const uint64_t channels = (uint64_t)dims[e->channel], blocks = (uint64_t)dims[e->axis];
    bool fits;
    if (e->nested && json_is_array(json_array_get(j, 0))) {
        fits = set_nested(j, dims, rank, out);
    } else {
        fits = out->n == (of_channels ? channels : channels * blocks);
        out->step[e->channel] = of_channels ? 1 : blocks;
        out->step[e->axis] = of_channels ? 0 : 1;
    }
    return fits ? ONQ_OK
                : oq_fail(err, ONQ_E_CONFIG,
                          "it has %zu %s for %llu channels and %llu blocks of %lld", out->n, what,
                          (unsigned long long)channels, (unsigned long long)blocks,
                          (long long)e->block);
}

static double number_at(const numbers *x, const int64_t *dims, size_t rank, uint64_t i) {
    uint64_t at = 0;
    for (size_t d = rank; d > 0; d--) {
        at += i % (uint64_t)dims[d - 1] * x->step[d - 1];
        i /= (uint64_t)dims[d - 1];
    }
    return x->v[at];
}

static onq_code fill(const oq_encoded_blocks *e, const numbers of[3], const int64_t *dims,
                     size_t rank, oq_override_blocks *b, onq_error *err) {
    const oq_qrange range = oq_qtype_find(e->type)->full;
    for (uint64_t i = 0; i < b->n; i++) {
        const double scale = number_at(&of[0], dims, rank, i) *
                             (e->times != NULL ? number_at(&of[1], dims, rank, i) : 1.0);
        double zero = e->zero != NULL ? number_at(&of[2], dims, rank, i) : 0.0;
        zero = e->offsets && e->zero != NULL ? (double)range.min - zero : zero;
        if (!isfinite(scale) || !((float)scale > 0.0f))
            return oq_fail(err, ONQ_E_CONFIG, "its scale is not a positive number");
        if (zero != floor(zero) || zero < (double)range.min || zero > (double)range.max)
            return oq_fail(err, ONQ_E_CONFIG, "its offset or zero point does not fit its type");
        b->scale[i] = (float)scale;
        b->zero[i] = (int32_t)zero;
    }
    return ONQ_OK;
}

onq_code oq_encodings_blocks(oq_arena *a, const oq_tensor *weight, const oq_encoded_blocks *e,
                             const oq_override_blocks **out, onq_error *err) {
    const json_t *const lists[3] = {e->scale, e->times, e->zero};
    static const char *const names[3] = {"scales", "scales of blocks", "zero points"};
    const size_t rank = weight->dims.n;
    int64_t dims[RANK] = {0};
    numbers of[3];
    assert(e->scale != NULL);
    if (rank < 2 || rank > RANK || e->axis < 0 || e->axis >= (int64_t)rank || e->block < 1 ||
        e->channel == e->axis)
        return oq_fail(err, ONQ_E_CONFIG, "blocks of %lld along axis %lld do not fit its rank %zu",
                       (long long)e->block, (long long)e->axis, rank);
    oq_override_blocks *b = OQ_NEW(a, oq_override_blocks);
    OQ_TRY_ALLOC(b != NULL, err);
    *b = (oq_override_blocks){.block = (uint64_t)e->block, .n = 1};
    for (size_t d = 0; d < rank; d++) {
        dims[d] = weight->dims.v[d];
        if ((int64_t)d == e->axis)
            dims[d] = dims[d] / e->block + (dims[d] % e->block != 0);
        b->n *= (uint64_t)dims[d];
    }
    for (size_t i = 0; i < 3; i++)
        if (lists[i] != NULL) {
            OQ_TRY(read_numbers(a, lists[i], names[i], &of[i], err));
            OQ_TRY(set_steps(e, lists[i], dims, rank, i == 0 && e->times != NULL, names[i], &of[i],
                             err));
        }
    b->scale = OQ_NEW_ARRAY(a, float, b->n + 1);
    b->zero = OQ_NEW_ARRAY(a, int32_t, b->n + 1);
    OQ_TRY_ALLOC(b->scale != NULL && b->zero != NULL, err);
    *out = b;
    return fill(e, of, dims, rank, b, err);
}
