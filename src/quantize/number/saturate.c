/*
 * saturate.c — see saturate.h.
 */
#include "quantize/number/saturate.h"

#include "onnx/attr.h"
#include "onnx/operators.h"

#define MAX_ROUNDS 32 /* after so many, seven bits: they always do */

/* Where the weights of one sum lie: sums x batches, each over places x channels. */
typedef struct layout {
    uint64_t batches, batch_step;
    uint64_t sums, sum_step;
    uint64_t places, place_step;
    uint64_t channels, channel_step;
} layout;

static uint64_t dim(const oq_tensor *t, size_t i) {
    return i < t->dims.n ? (uint64_t)t->dims.v[i] : 1;
}

/* False for what has no such sums. */
static bool find_layout(const oq_node *n, const oq_qweight *w, layout *l) {
    const oq_tensor *t = w->tensor;
    const oq_product product = oq_op_traits_of(n->op_type)->product;
    *l = (layout){.batches = 1, .sums = 1, .places = 1, .channels = 1};
    if (product == OQ_CONV && t->dims.n >= 2) {
        l->sums = dim(t, 0);
        l->channels = dim(t, 1);
        for (size_t i = 2; i < t->dims.n; i++)
            l->places *= dim(t, i);
        l->place_step = 1;
        l->channel_step = l->places;
        l->sum_step = l->places * l->channels;
        return l->channels > 1 || (uint64_t)oq_attr_int(n, "group", 1) != l->sums;
    }
    if ((product != OQ_GEMM && product != OQ_MATMUL) || t->dims.n < 2)
        return false;
    const uint64_t rows = dim(t, t->dims.n - 2), columns = dim(t, t->dims.n - 1);
    const bool turned = product == OQ_GEMM && oq_gemm_turns_b(n);
    for (size_t i = 0; i + 2 < t->dims.n; i++)
        l->batches *= dim(t, i);
    l->batch_step = rows * columns;
    l->sums = turned ? rows : columns;
    l->sum_step = turned ? columns : 1;
    l->channels = turned ? columns : rows;
    l->channel_step = turned ? 1 : columns;
    return true;
}

static uint64_t param_of(const oq_qweight *w, uint64_t at) {
    return w->group == OQ_QGROUP_CHANNEL ? at / w->inner % w->along : 0;
}

/* What two weights add up to at the most, with inputs that suit them. */
static int reach(int a, int b) {
    const int up = (a > 0 ? a : 0) + (b > 0 ? b : 0), down = (a < 0 ? -a : 0) + (b < 0 ? -b : 0);
    return up > down ? up : down;
}

/* The greatest reach of the pairs of one sum, into the parameters that have a part in it. */
static void see_sum(const oq_qweight *w, const layout *l, uint64_t from, const int8_t *q,
                    uint16_t *most) {
    const uint64_t depth = l->places * l->channels;
    for (uint64_t k = 0; k + 1 < depth; k += 2) {
        const uint64_t a =
            from + k / l->channels * l->place_step + k % l->channels * l->channel_step;
        const uint64_t b =
            from + (k + 1) / l->channels * l->place_step + (k + 1) % l->channels * l->channel_step;
        const uint16_t r = (uint16_t)reach(q[a], q[b]);
        const uint64_t pa = param_of(w, a), pb = param_of(w, b);
        most[pa] = r > most[pa] ? r : most[pa];
        most[pb] = r > most[pb] ? r : most[pb];
    }
}

static void see_all(const oq_qweight *w, const layout *l, const int8_t *q, uint16_t *most) {
    for (uint64_t i = 0; i < w->n_params; i++)
        most[i] = 0;
    for (uint64_t b = 0; b < l->batches; b++)
        for (uint64_t s = 0; s < l->sums; s++)
            see_sum(w, l, b * l->batch_step + s * l->sum_step, q, most);
}

/* Raises what passes; false if nothing does. */
static bool raise(const oq_qweight *w, const uint16_t *most, const float *first, bool last,
                  oq_qparams *params) {
    const oq_dtype real = oq_qweight_scale_type(w);
    bool any = false;
    for (uint64_t i = 0; i < params->n; i++) {
        if (most[i] <= OQ_MAX_PAIR)
            continue;
        const double times = (double)most[i] / OQ_MAX_PAIR;
        any = true;
        params->scale[i] =
            oq_real_round(real, last ? 2 * (double)first[i] : times * (double)params->scale[i]);
    }
    return any;
}

static onq_code narrow(const oq_qweight *w, const layout *l, int8_t *q, uint16_t *most,
                       float *first, oq_qparams *params, bool *narrowed, onq_error *err) {
    memcpy(first, params->scale, (size_t)params->n * sizeof *first);
    for (int round = 0; round <= MAX_ROUNDS + 1; round++) {
        OQ_TRY(oq_qweight_quantize(w, OQ_INT8, params, (uint8_t *)q, err));
        see_all(w, l, q, most);
        if (!raise(w, most, first, round == MAX_ROUNDS, params))
            return ONQ_OK;
        *narrowed = true;
    }
    return ONQ_OK;
}

onq_code oq_saturate_narrow(const oq_node *n, const oq_qweight *w, oq_qparams *params,
                            const onq_allocator *alloc, bool *narrowed, onq_error *err) {
    layout l;
    *narrowed = false;
    if (w->group == OQ_QGROUP_BLOCK || w->count == 0 || !find_layout(n, w, &l))
        return ONQ_OK;
    OQ_SCRATCH(scratch, alloc);
    int8_t *q = oq_arena_alloc(&scratch, w->count);
    uint16_t *most = OQ_NEW_ARRAY(&scratch, uint16_t, params->n);
    float *first = OQ_NEW_ARRAY(&scratch, float, params->n);
    return q != NULL && most != NULL && first != NULL
               ? narrow(w, &l, q, most, first, params, narrowed, err)
               : oq_fail_nomem(err);
}
