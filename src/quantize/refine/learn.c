/*
 * learn.c — see learn.h.
 */
#include "quantize/refine/learn.h"

#include "onnx/tensor.h"
#include "quantize/rounding/solve.h"

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

/* ---- memory ---- */

void oq_learn_memory_init(oq_learn_memory *m, const onq_allocator *alloc) {
    *m = (oq_learn_memory){0};
    oq_arena_init(&m->arena, alloc);
}

void oq_learn_memory_release(oq_learn_memory *m) {
    oq_arena_release(&m->arena);
    *m = (oq_learn_memory){0};
}

/* The grid of a layer's weight, without integers; n_scales 0: it is none that this can round to. */
static onq_code read_grid(oq_learn *n, oq_learned *g, onq_error *err) {
    const oq_layer *l = n->layer;
    oq_model *m = n->layers->model;
    const size_t outputs = n->rows.groups * n->rows.n;
    bool sound = true, symmetric = true;
    *g = (oq_learned){.name = l->float_weight->name};
    if (l->scale_tensor == NULL || l->scale_tensor->data_type.v != OQ_FLOAT)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(m, l->scale_tensor, &n->arena, &g->scales, &g->n_scales, err));
    if (l->zero_tensor != NULL)
        OQ_TRY(oq_tensor_i64s(m, l->zero_tensor, &n->arena, &g->zeros, &g->n_zeros, err));
    /* One scale, or one for each output; no blocks. */
    sound = (g->n_scales == 1 || g->n_scales == outputs) &&
            (g->n_zeros == 0 || g->n_zeros == g->n_scales);
    for (size_t i = 0; i < g->n_scales; i++)
        sound = sound && g->scales[i] > 0;
    for (size_t i = 0; i < g->n_zeros; i++)
        symmetric = symmetric && g->zeros[i] == 0;
    g->n_scales = sound ? g->n_scales : 0;
    g->limits = oq_qtype_range((oq_dtype)l->weight->data_type.v, n->how->reduced, symmetric);
    return ONQ_OK;
}

static bool same_grid(const oq_learned *a, const oq_learned *b) {
    return oq_str_eq(a->name, b->name) && a->limits.min == b->limits.min &&
           a->limits.max == b->limits.max && a->n_scales == b->n_scales &&
           a->n_zeros == b->n_zeros &&
           memcmp(a->scales, b->scales, a->n_scales * sizeof *a->scales) == 0 &&
           (a->n_zeros == 0 || memcmp(a->zeros, b->zeros, a->n_zeros * sizeof *a->zeros) == 0);
}

static onq_code put_integers(oq_learn *n, oq_span from, onq_error *err) {
    oq_tensor *t = n->layer->weight;
    uint8_t *bytes = oq_arena_alloc(&n->layers->model->arena, from.n + 1);
    OQ_TRY_ALLOC(bytes != NULL, err);
    memcpy(bytes, from.p, from.n);
    oq_tensor_clear_data(t);
    oq_tensor_set_view(t, bytes, from.n);
    return ONQ_OK;
}

static onq_code recall(oq_learn *n, onq_error *err) {
    const oq_learn_memory *m = n->how->memory;
    uint64_t bytes = 0;
    OQ_TRY(oq_tensor_bytes(n->layer->weight, &bytes, err));
    for (size_t i = 0; m != NULL && i < m->all.n && !n->done; i++)
        if (m->all.v[i].bytes.n == bytes && same_grid(&m->all.v[i], &n->grid)) {
            OQ_TRY(put_integers(n, m->all.v[i].bytes, err));
            n->done = true;
        }
    return ONQ_OK;
}

static onq_code remember(const oq_learn *n, oq_span integers, onq_error *err) {
    oq_learn_memory *m = n->how->memory;
    const oq_learned *g = &n->grid;
    if (m == NULL)
        return ONQ_OK;
    oq_learned new = *g;
    uint8_t *bytes = oq_arena_alloc(&m->arena, integers.n + 1);
    new.name = oq_str_copy(&m->arena, g->name);
    new.scales = OQ_NEW_ARRAY(&m->arena, float, g->n_scales + 1);
    new.zeros = OQ_NEW_ARRAY(&m->arena, int64_t, g->n_zeros + 1);
    if (bytes == NULL || new.name.p == NULL || new.scales == NULL || new.zeros == NULL)
        return oq_fail_nomem(err);
    memcpy(bytes, integers.p, integers.n);
    memcpy(new.scales, g->scales, g->n_scales * sizeof *new.scales);
    if (g->n_zeros > 0)
        memcpy(new.zeros, g->zeros, g->n_zeros * sizeof *new.zeros);
    new.bytes = (oq_span){bytes, integers.n};
    return OQ_PUSH(&m->arena, &m->all, new) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- one layer ---- */

onq_code oq_learn_begin(oq_learn *n, const oq_learn_how *how, oq_layers *layers,
                        const oq_layer *layer, size_t n_samples, onq_error *err) {
    *n = (oq_learn){.how = how, .layers = layers, .layer = layer, .n_samples = n_samples};
    oq_arena_init(&n->arena, how->alloc);
    n->able = is_able(n);
    if (!n->able)
        return ONQ_OK;
    OQ_TRY(read_grid(n, &n->grid, err));
    n->able = n->grid.n_scales > 0;
    n->aims = n->able && is_coarse(layer);
    n->per_sample = (rows_wanted(&n->rows) + n_samples - 1) / n_samples;
    if (!n->able || !n->aims)
        return n->able ? recall(n, err) : ONQ_OK;
    n->float_size = n_samples * n->per_sample * n->rows.width;
    n->flt = oq_calloc(how->alloc, n->float_size, sizeof *n->flt);
    n->n_float = OQ_NEW_ARRAY(&n->arena, uint64_t, n_samples + 1);
    OQ_TRY_ALLOC(n->flt != NULL && n->n_float != NULL, err);
    return oq_learn_share(n, NULL, 0, err);
}

/* Rows of a Conv depend on its kernel. */
static bool has_same_inputs(const oq_learn *a, const oq_learn *b) {
    return a->able && !a->aims && a->like == NULL && a->n_hessians > 0 && !b->aims &&
           a->rows.product != OQ_CONV && b->rows.product != OQ_CONV && a->rows.k == b->rows.k &&
           oq_str_eq(a->layer->float_input, b->layer->float_input);
}

uint64_t oq_learn_bytes(const oq_learn *n) {
    return 2 * (uint64_t)n->rows.groups * n->rows.k * n->rows.k * sizeof(double);
}

onq_code oq_learn_share(oq_learn *n, oq_learn *const *others, size_t n_others, onq_error *err) {
    const oq_rows *r = &n->rows;
    assert(n->able && n->n_hessians == 0);
    for (size_t i = 0; i < n_others; i++)
        if (has_same_inputs(others[i], n)) {
            n->like = others[i];
            return ONQ_OK;
        }
    n->row = OQ_NEW_ARRAY(&n->arena, float, r->width + 1);
    n->hessians = OQ_NEW_ARRAY(&n->arena, oq_hessian, r->groups);
    n->planes = OQ_NEW_ARRAY(&n->arena, oq_plane, r->groups);
    OQ_TRY_ALLOC(n->row != NULL && n->hessians != NULL && n->planes != NULL, err);
    for (; n->n_hessians < r->groups; n->n_hessians++)
        OQ_TRY(oq_hessian_init(&n->hessians[n->n_hessians], n->how->linear, n->how->pool,
                               n->how->alloc, r->k, n->aims ? r->k : 0, UINT64_MAX, err));
    return ONQ_OK;
}

void oq_learn_release(oq_learn *n) {
    if (n->how == NULL)
        return;
    for (size_t i = 0; i < n->n_hessians; i++) {
        oq_plane_release(&n->planes[i]);
        oq_hessian_release(&n->hessians[i]);
    }
    oq_free(n->how->alloc, n->flt, n->float_size * sizeof *n->flt);
    oq_arena_release(&n->arena);
    *n = (oq_learn){0};
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

onq_code oq_learn_inputs(oq_learn *n, size_t sample, const oq_datum *d, onq_error *err) {
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
} group;

static onq_code make_group(oq_learn *n, group *g, onq_error *err) {
    const oq_rows *r = &n->rows;
    g->w = OQ_NEW_ARRAY(&n->arena, float, r->k * r->n);
    g->target = n->aims ? OQ_NEW_ARRAY(&n->arena, float, r->k * r->n) : g->w;
    g->out = OQ_NEW_ARRAY(&n->arena, int32_t, r->k * r->n);
    g->scale = OQ_NEW_ARRAY(&n->arena, float, r->n);
    g->zero = OQ_NEW_ARRAY(&n->arena, float, r->n);
    return g->w != NULL && g->target != NULL && g->out != NULL && g->scale != NULL &&
                   g->zero != NULL
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* Large inputs first: a layer that does not aim. What its inputs make of the Hessian is found once
 * for all that share it. *p is NULL where nothing was ever seen. */
static onq_code find_plane(oq_learn *n, size_t at, const oq_plane **p, onq_error *err) {
    oq_learn *of = n->like != NULL ? n->like : n;
    oq_hessian *h = &of->hessians[at];
    *p = NULL;
    if (of->planes[at].r == NULL) {
        if (h->rows == 0)
            return ONQ_OK;
        OQ_TRY(oq_hessian_finish(h, err));
        OQ_TRY(oq_plane_init(&of->planes[at], h, DAMP, err));
        oq_hessian_release(h);
    }
    *p = &of->planes[at];
    return ONQ_OK;
}

static onq_code round_plane(oq_learn *n, const group *g, size_t at, onq_error *err) {
    oq_plane_job job = {.pool = n->how->pool,
                        .alloc = n->how->alloc,
                        .k = n->rows.k,
                        .n = n->rows.n,
                        .w = g->w,
                        .scale = g->scale,
                        .zero = g->zero,
                        .lo = n->grid.limits.min,
                        .hi = n->grid.limits.max,
                        .out = g->out};
    OQ_TRY(find_plane(n, at, &job.plane, err));
    return oq_plane_round(&job, err);
}

/* Towards the weights that fit the quantized inputs best. */
static onq_code round_aiming(oq_learn *n, const group *g, size_t at, onq_error *err) {
    const oq_rows *r = &n->rows;
    oq_hessian *h = &n->hessians[at];
    oq_round_grid grid = {.lo = n->grid.limits.min,
                          .hi = n->grid.limits.max,
                          .rows = r->k,
                          .scale = g->scale,
                          .zero = g->zero};
    oq_round_job job = {.k = r->k,
                        .n = r->n,
                        .w = g->target,
                        .hessian = h->rows > 0 ? h : NULL,
                        .linear = n->how->linear,
                        .pool = n->how->pool,
                        .alloc = n->how->alloc,
                        .grid = &grid,
                        .damp = COARSE_DAMP,
                        .sweeps = COARSE_SWEEPS,
                        .out = g->out};
    OQ_TRY(oq_hessian_finish(h, err));
    if (h->rows > 0)
        OQ_TRY(oq_round_target(h, g->w, r->n, RIDGE, g->target, err));
    else
        memcpy(g->target, g->w, r->k * r->n * sizeof *g->w);
    return oq_round(&job, err);
}

static onq_code round_group(oq_learn *n, const group *g, size_t at, const float *weight,
                            int32_t *all, onq_error *err) {
    const oq_rows *r = &n->rows;
    const oq_learned *learned = &n->grid;
    for (size_t c = 0; c < r->n; c++) {
        const size_t channel = learned->n_scales == 1 ? 0 : at * r->n + c;
        g->scale[c] = learned->scales[channel];
        g->zero[c] = learned->n_zeros > 0 ? (float)learned->zeros[channel] : 0.0f;
    }
    for (size_t i = 0; i < r->k; i++)
        for (size_t c = 0; c < r->n; c++)
            g->w[i * r->n + c] = weight[oq_rows_weight(r, at, i, c)];
    OQ_TRY(n->aims ? round_aiming(n, g, at, err) : round_plane(n, g, at, err));
    for (size_t i = 0; i < r->k; i++)
        for (size_t c = 0; c < r->n; c++)
            all[oq_rows_weight(r, at, i, c)] = g->out[i * r->n + c];
    return ONQ_OK;
}

/* The integers as the tensor's bytes: 16, 8 or 4 bits, the lower half of a byte first. */
static onq_code store(oq_learn *n, const int32_t *all, size_t count, onq_error *err) {
    const unsigned bits = oq_dtype_find(n->layer->weight->data_type.v)->bits;
    assert(bits == 4 || bits % 8 == 0);
    const uint64_t size = (count * bits + 7) / 8;
    uint8_t *bytes = oq_arena_alloc(&n->arena, size + 1);
    OQ_TRY_ALLOC(bytes != NULL, err);
    for (size_t i = 0; i < count; i++) {
        if (bits == 4)
            bytes[i / 2] |= (uint8_t)((all[i] & 15) << (i % 2 * 4));
        else
            for (unsigned b = 0; b < bits / 8; b++)
                bytes[i * bits / 8 + b] = (uint8_t)((uint32_t)all[i] >> (8 * b));
    }
    const oq_span integers = {bytes, size};
    if (!n->aims)
        OQ_TRY(remember(n, integers, err));
    return put_integers(n, integers, err);
}

onq_code oq_learn_end(oq_learn *n, onq_error *err) {
    const oq_rows *r = &n->rows;
    group g = {0};
    float *weight = NULL;
    size_t count = 0;
    assert(n->able && !n->done);
    OQ_TRY(make_group(n, &g, err));
    OQ_TRY(oq_tensor_floats(n->layers->model, float_weight(n), &n->arena, &weight, &count, err));
    assert(count == r->groups * r->k * r->n);
    int32_t *all = OQ_NEW_ARRAY(&n->arena, int32_t, count + 1);
    OQ_TRY_ALLOC(all != NULL, err);
    for (size_t i = 0; i < r->groups; i++)
        OQ_TRY(round_group(n, &g, i, weight, all, err));
    return store(n, all, count, err);
}
