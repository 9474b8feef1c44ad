/*
 * learn.c — see learn.h.
 */
#include "quantize/refine/learn.h"

#include "onnx/tensor.h"
#include "quantize/number/qtype.h"

/* Coarse weights, of few bits or with one scale for all channels, are rounded towards those that
 * fit the quantized inputs best (solve.h); with a ridge of 0.05 they learned the samples by heart.
 * For 8 bits per channel that loses one or two dB and takes twice the time. There the inputs that are
 * largest are rounded first, so that the others can make up for them: in the order of the weight, few
 * samples made the outputs worse than they were. */
#define FEW_BITS      8 /* fewer */
#define RIDGE         0.3
#define COARSE_DAMP   0.01
#define COARSE_SWEEPS 3
#define DAMP          0.1

#define ROWS_A_WEIGHT 8 /* rows for each input of a group, at least, where there are so many */
#define MIN_ROWS      2048
#define MAX_ROWS      16384
#define MAX_BYTES     ((uint64_t)256 << 20) /* of rows that are kept */
#define MAX_INPUTS    8192                  /* the Hessian has the square of that */

/* ---- whether ---- */

/* The float weight, or NULL: of the same shape, float32, in the float model. */
static oq_tensor *float_weight(const oq_learn *n) {
    oq_tensor *w = n->layer->float_weight;
    const oq_tensor *q = n->layer->weight;
    if (w == NULL || w->data_type.v != OQ_FLOAT || w->dims.n != q->dims.n)
        return NULL;
    for (size_t i = 0; i < w->dims.n; i++)
        if (w->dims.v[i] != q->dims.v[i])
            return NULL;
    return w;
}

static bool is_able(oq_learn *n) {
    const oq_qtype_info *type = oq_qtype_find((oq_dtype)n->layer->weight->data_type.v);
    return type != NULL && !type->is_float && !n->layer->shared_weight && float_weight(n) != NULL &&
           oq_rows_init(&n->rows, n->layer) && n->rows.k <= MAX_INPUTS;
}

static uint64_t rows_wanted(const oq_rows *r) {
    uint64_t rows = (uint64_t)r->k * ROWS_A_WEIGHT;
    const uint64_t fit = MAX_BYTES / (r->width * sizeof(float));
    rows = rows < MIN_ROWS ? MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows;
    return rows < fit ? rows : fit;
}

static bool is_coarse(const oq_layer *l) {
    bool one_scale = l->scale_tensor != NULL;
    for (size_t i = 0; one_scale && i < l->scale_tensor->dims.n; i++)
        one_scale = l->scale_tensor->dims.v[i] == 1;
    return one_scale || oq_dtype_find(l->weight->data_type.v)->bits < FEW_BITS;
}

onq_code oq_learn_begin(oq_learn *n, const oq_learn_how *how, oq_layers *layers,
                        const oq_layer *layer, size_t n_samples, onq_error *err) {
    *n = (oq_learn){.how = how, .layers = layers, .layer = layer, .n_samples = n_samples};
    oq_arena_init(&n->arena, how->alloc);
    n->able = is_able(n);
    if (!n->able)
        return ONQ_OK;
    n->aims = is_coarse(layer);
    const oq_rows *r = &n->rows;
    n->per_sample = (rows_wanted(r) + n_samples - 1) / n_samples;
    n->float_size = n->aims ? n_samples * n->per_sample * r->width : 1;
    n->flt = oq_calloc(how->alloc, n->float_size, sizeof *n->flt);
    n->n_float = OQ_NEW_ARRAY(&n->arena, uint64_t, n_samples + 1);
    n->row = OQ_NEW_ARRAY(&n->arena, float, r->width + 1);
    n->hessians = OQ_NEW_ARRAY(&n->arena, oq_hessian, r->groups);
    if (n->flt == NULL || n->n_float == NULL || n->row == NULL || n->hessians == NULL)
        return oq_fail_nomem(err);
    for (; n->n_hessians < r->groups; n->n_hessians++)
        OQ_TRY(oq_hessian_init(&n->hessians[n->n_hessians], how->linear, how->pool, how->alloc,
                               r->k, n->aims ? r->k : 0, UINT64_MAX, err));
    return ONQ_OK;
}

void oq_learn_release(oq_learn *n) {
    for (size_t i = 0; i < n->n_hessians; i++)
        oq_hessian_release(&n->hessians[i]);
    oq_free(n->how->alloc, n->flt, n->float_size * sizeof *n->flt);
    oq_arena_release(&n->arena);
}

/* ---- inputs ---- */

static uint64_t rows_of(const oq_learn *n, const oq_rows_input *in) {
    return in->count < n->per_sample ? in->count : n->per_sample;
}

onq_code oq_learn_float(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err) {
    oq_rows_input in;
    (void)err;
    if (sample >= n->n_samples || !oq_rows_open(&n->rows, d, &in))
        return ONQ_OK;
    float *to = n->flt + sample * n->per_sample * n->rows.width;
    n->n_float[sample] = rows_of(n, &in);
    for (uint64_t j = 0; j < n->n_float[sample]; j++)
        oq_rows_take(&n->rows, &in, oq_rows_pick(in.count, n->n_float[sample], j),
                     to + j * n->rows.width);
    return ONQ_OK;
}

onq_code oq_learn_quantized(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err) {
    const oq_rows *r = &n->rows;
    oq_rows_input in;
    if (sample >= n->n_samples || !oq_rows_open(r, d, &in) ||
        (n->aims && rows_of(n, &in) != n->n_float[sample]))
        return ONQ_OK;
    const float *flt = n->aims ? n->flt + sample * n->per_sample * r->width : NULL;
    for (uint64_t j = 0, count = rows_of(n, &in); j < count; j++) {
        oq_rows_take(r, &in, oq_rows_pick(in.count, count, j), n->row);
        for (size_t g = 0; g < r->groups; g++)
            OQ_TRY(oq_hessian_add(&n->hessians[g], n->row + g * r->k,
                                  flt != NULL ? flt + j * r->width + g * r->k : NULL, 1, r->k,
                                  err));
    }
    return ONQ_OK;
}

/* ---- rounding ---- */

typedef struct group {
    float *w, *target; /* k x n */
    int32_t *out;
    float *scale;
    float *zero;
    float *scales; /* of the whole weight */
    int64_t *zeros;
    size_t n_scales, n_zeros;
} group;

static onq_code make_group(oq_learn *n, group *g, onq_error *err) {
    const oq_rows *r = &n->rows;
    oq_model *m = n->layers->model;
    const oq_layer *l = n->layer;
    g->w = OQ_NEW_ARRAY(&n->arena, float, r->k * r->n);
    g->target = OQ_NEW_ARRAY(&n->arena, float, r->k * r->n);
    g->out = OQ_NEW_ARRAY(&n->arena, int32_t, r->k * r->n);
    g->scale = OQ_NEW_ARRAY(&n->arena, float, r->n);
    g->zero = OQ_NEW_ARRAY(&n->arena, float, r->n);
    if (g->w == NULL || g->target == NULL || g->out == NULL || g->scale == NULL || g->zero == NULL)
        return oq_fail_nomem(err);
    if (l->scale_tensor == NULL || l->scale_tensor->data_type.v != OQ_FLOAT)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(m, l->scale_tensor, &n->arena, &g->scales, &g->n_scales, err));
    if (l->zero_tensor != NULL)
        OQ_TRY(oq_tensor_i64s(m, l->zero_tensor, &n->arena, &g->zeros, &g->n_zeros, err));
    return ONQ_OK;
}

/* One scale, or one for each output; no blocks. */
static bool fits(const oq_learn *n, const group *g) {
    const size_t outputs = n->rows.groups * n->rows.n;
    bool sound = (g->n_scales == 1 || g->n_scales == outputs) &&
                 (g->n_zeros == 0 || g->n_zeros == g->n_scales);
    for (size_t i = 0; i < g->n_scales; i++)
        sound = sound && g->scales[i] > 0;
    return sound;
}

static onq_code round_group(oq_learn *n, group *g, size_t at, const float *weight,
                            oq_round_grid *grid, int32_t *all, onq_error *err) {
    const oq_rows *r = &n->rows;
    for (size_t c = 0; c < r->n; c++) {
        const size_t channel = g->n_scales == 1 ? 0 : at * r->n + c;
        g->scale[c] = g->scales[channel];
        g->zero[c] = g->n_zeros > 0 ? (float)g->zeros[channel] : 0.0f;
        for (size_t i = 0; i < r->k; i++)
            g->w[i * r->n + c] = weight[oq_rows_weight(r, at, i, c)];
    }
    OQ_TRY(oq_hessian_finish(&n->hessians[at], err));
    if (n->hessians[at].rows == 0 || !n->aims)
        memcpy(g->target, g->w, r->k * r->n * sizeof *g->w);
    else
        OQ_TRY(oq_round_target(&n->hessians[at], g->w, r->n, RIDGE, g->target, err));
    oq_round_job job = {.k = r->k,
                        .n = r->n,
                        .w = g->target,
                        .hessian = n->hessians[at].rows > 0 ? &n->hessians[at] : NULL,
                        .linear = n->how->linear,
                        .pool = n->how->pool,
                        .alloc = n->how->alloc,
                        .grid = grid,
                        .damp = n->aims ? COARSE_DAMP : DAMP,
                        .act_order = !n->aims,
                        .sweeps = n->aims ? COARSE_SWEEPS : 0,
                        .out = g->out};
    OQ_TRY(oq_round(&job, err));
    for (size_t c = 0; c < r->n; c++)
        for (size_t i = 0; i < r->k; i++)
            all[oq_rows_weight(r, at, i, c)] = g->out[i * r->n + c];
    return ONQ_OK;
}

/* The integers as the tensor's bytes: 16, 8 or 4 bits, the lower half of a byte first. */
static onq_code store(oq_learn *n, const int32_t *all, size_t count, onq_error *err) {
    oq_tensor *t = n->layer->weight;
    const unsigned bits = oq_dtype_find(t->data_type.v)->bits;
    assert(bits == 4 || bits % 8 == 0);
    const uint64_t size = (count * bits + 7) / 8;
    uint8_t *bytes = oq_arena_alloc(&n->layers->model->arena, size + 1);
    OQ_TRY_ALLOC(bytes != NULL, err);
    for (size_t i = 0; i < count; i++) {
        if (bits == 4)
            bytes[i / 2] |= (uint8_t)((all[i] & 15) << (i % 2 * 4));
        else
            for (unsigned b = 0; b < bits / 8; b++)
                bytes[i * bits / 8 + b] = (uint8_t)((uint32_t)all[i] >> (8 * b));
    }
    oq_tensor_clear_data(t);
    oq_tensor_set_view(t, bytes, size);
    return ONQ_OK;
}

onq_code oq_learn_end(oq_learn *n, onq_error *err) {
    const oq_rows *r = &n->rows;
    group g = {0};
    float *weight = NULL;
    size_t count = 0;
    OQ_TRY(make_group(n, &g, err));
    if (g.scales == NULL || !fits(n, &g)) {
        n->able = false;
        return ONQ_OK;
    }
    bool symmetric = true;
    for (size_t i = 0; i < g.n_zeros; i++)
        symmetric = symmetric && g.zeros[i] == 0;
    const oq_qrange limits =
        oq_qtype_range((oq_dtype)n->layer->weight->data_type.v, n->how->reduced, symmetric);
    oq_round_grid grid = {
        .lo = limits.min, .hi = limits.max, .rows = r->k, .scale = g.scale, .zero = g.zero};
    OQ_TRY(oq_tensor_floats(n->layers->model, float_weight(n), &n->arena, &weight, &count, err));
    assert(count == r->groups * r->k * r->n);
    int32_t *all = OQ_NEW_ARRAY(&n->arena, int32_t, count + 1);
    OQ_TRY_ALLOC(all != NULL, err);
    for (size_t i = 0; i < r->groups; i++)
        OQ_TRY(round_group(n, &g, i, weight, &grid, all, err));
    return store(n, all, count, err);
}
