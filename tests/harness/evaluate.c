/*
 * evaluate.c — see evaluate.h. An operator is a row in the table at the end.
 */
#include "evaluate_call.h"

#include "base/text/real.h"
#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

#include <math.h>
#include <string.h>

typedef ev_call call;

onq_code ev_refuse(const call *c, const char *why) {
    return oq_fail(c->err, ONQ_E_RUNTIME, "node '%.*s' (%.*s): %s", OQ_STR(c->n->name),
                   OQ_STR(c->n->op_type), why);
}

/* ---- tensors ---- */

size_t ev_count(const int64_t *dims, size_t rank) {
    size_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    return n;
}

static onq_code ev_make(oq_arena *a, ev_tensor *t, oq_dtype dtype, const int64_t *dims, size_t rank,
                        onq_error *err) {
    if (rank > EV_RANK)
        return oq_fail(err, ONQ_E_RUNTIME, "more than %d dimensions", EV_RANK);
    *t = (ev_tensor){.dtype = dtype, .rank = rank, .n = ev_count(dims, rank)};
    if (rank > 0)
        memcpy(t->dims, dims, rank * sizeof *dims);
    t->v = OQ_NEW_ARRAY(a, double, t->n + 1);
    return t->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code ev_make_out(call *c, oq_dtype dtype, const int64_t *dims, size_t rank) {
    return ev_make(c->e->arena, &c->out[0], dtype, dims, rank, c->err);
}

static double rounded(oq_dtype dtype, double v) {
    switch (dtype) {
    case OQ_FLOAT:
        return (double)(float)v;
    case OQ_FLOAT16:
        return (double)oq_f16_to_f32(oq_f64_to_f16(v));
    default:
        return v;
    }
}

static bool is_real(oq_dtype t) {
    return t == OQ_FLOAT || t == OQ_FLOAT16 || t == OQ_DOUBLE || t == OQ_BFLOAT16;
}

static onq_code from_bytes(oq_arena *a, oq_dtype dtype, const uint8_t *p, const int64_t *dims,
                           size_t rank, ev_tensor *out, onq_error *err) {
    OQ_TRY(ev_make(a, out, dtype, dims, rank, err));
    for (size_t i = 0; i < out->n; i++)
        out->v[i] =
            is_real(dtype) ? oq_raw_get_real(dtype, p, i) : (double)oq_raw_get_int(dtype, p, i);
    return ONQ_OK;
}

onq_code ev_from_datum(oq_arena *a, const oq_datum *d, ev_tensor *out, onq_error *err) {
    if (d->kind != OQ_DATUM_TENSOR)
        return oq_fail(err, ONQ_E_RUNTIME, "the fake engine takes tensors only");
    return from_bytes(a, d->dtype, d->data, d->dims, d->rank, out, err);
}

onq_code evaluate_tensor(const evaluation *e, oq_tensor *t, ev_tensor *out, onq_error *err) {
    oq_span data;
    OQ_TRY(oq_model_data(e->model, t, &data, err));
    return from_bytes(e->arena, (oq_dtype)t->data_type.v, data.p, t->dims.v, t->dims.n, out, err);
}

onq_code ev_to_datum(oq_arena *a, const ev_tensor *t, oq_datum *out, onq_error *err) {
    uint8_t *bytes = oq_arena_alloc(a, t->n * 8 + 8);
    size_t size = 1;
    if (bytes == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < t->n; i++) {
        const float f = (float)t->v[i];
        const uint16_t h = oq_f64_to_f16(t->v[i]);
        const int64_t v = is_real(t->dtype) ? 0 : (int64_t)t->v[i]; /* its first bytes count */
        const void *from = t->dtype == OQ_FLOAT     ? (const void *)&f
                           : t->dtype == OQ_FLOAT16 ? (const void *)&h
                           : t->dtype == OQ_DOUBLE  ? (const void *)&t->v[i]
                                                    : &v;
        size = t->dtype == OQ_FLOAT || t->dtype == OQ_INT32    ? 4
               : t->dtype == OQ_FLOAT16                        ? 2
               : t->dtype == OQ_DOUBLE || t->dtype == OQ_INT64 ? 8
                                                               : 1;
        memcpy(bytes + i * size, from, size);
    }
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = t->dtype,
                      .rank = t->rank,
                      .dims = t->dims,
                      .count = t->n,
                      .data = bytes,
                      .size_bytes = t->n * size};
    return ONQ_OK;
}

/* ---- places ---- */

void ev_unravel(const int64_t *dims, size_t rank, size_t i, int64_t *at) {
    for (size_t d = rank; d-- > 0;) {
        at[d] = (int64_t)(i % (size_t)dims[d]);
        i /= (size_t)dims[d];
    }
}

size_t ev_ravel(const int64_t *dims, size_t rank, const int64_t *at) {
    size_t i = 0;
    for (size_t d = 0; d < rank; d++)
        i = i * (size_t)dims[d] + (size_t)at[d];
    return i;
}

/* The number of the element of `t` that meets a place of a tensor of `rank` dimensions: its last ones
 * are those of `t`, where 1 stands for any number. */
static size_t meets(const ev_tensor *t, const int64_t *at, size_t rank) {
    size_t i = 0;
    for (size_t d = 0; d < t->rank; d++)
        i = i * (size_t)t->dims[d] + (t->dims[d] == 1 ? 0 : (size_t)at[rank - t->rank + d]);
    return i;
}

/* The dimensions of a and b together; false when they do not go together. */
static bool join_dims(const int64_t *a, size_t rank_a, const int64_t *b, size_t rank_b,
                      int64_t *out, size_t *rank) {
    *rank = rank_a > rank_b ? rank_a : rank_b;
    for (size_t d = 0; d < *rank; d++) {
        const int64_t x = d + rank_a >= *rank ? a[d + rank_a - *rank] : 1;
        const int64_t y = d + rank_b >= *rank ? b[d + rank_b - *rank] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        out[d] = x == 1 ? y : x;
    }
    return true;
}

bool ev_axis(const call *c, const char *name, int64_t fallback, size_t rank, size_t *out) {
    const int64_t axis = oq_attr_int(c->n, name, fallback);
    *out = (size_t)(axis < 0 ? axis + (int64_t)rank : axis);
    return *out < rank;
}

/* ---- one number from one or two ---- */

static double relu(double x) {
    return x > 0 ? x : 0;
}
static double negative(double x) {
    return -x;
}
static double same(double x) {
    return x;
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double gelu(double x) {
    return x * 0.5 * (1 + erf(x / sqrt(2)));
}
static double hard_swish(double x) {
    return x * fmin(fmax(x / 6 + 0.5, 0), 1);
}
static double plus(double x, double y) {
    return x + y;
}
static double minus(double x, double y) {
    return x - y;
}
static double times(double x, double y) {
    return x * y;
}
static double over(double x, double y) {
    return x / y;
}
static double is_equal(double x, double y) {
    return x == y;
}

static const struct {
    const char *op_type;
    double (*fn)(double x);
} unary[] = {{"Identity", same}, {"Neg", negative}, {"Relu", relu},           {"Abs", fabs},
             {"Tanh", tanh},     {"Erf", erf},      {"Sigmoid", sigmoid},     {"Exp", exp},
             {"Sqrt", sqrt},     {"Gelu", gelu},    {"HardSwish", hard_swish}};

static const struct {
    const char *op_type;
    double (*fn)(double x, double y);
} binary[] = {{"Add", plus}, {"Sub", minus}, {"Mul", times}, {"Div", over},
              {"Pow", pow},  {"Min", fmin},  {"Max", fmax},  {"Equal", is_equal}};

static onq_code do_unary(call *c) {
    const ev_tensor *x = c->in[0];
    OQ_TRY(ev_make_out(c, x->dtype, x->dims, x->rank));
    for (size_t k = 0; k < OQ_COUNT(unary); k++)
        if (oq_str_is(c->n->op_type, unary[k].op_type))
            for (size_t i = 0; i < x->n; i++)
                c->out->v[i] = unary[k].fn(x->v[i]);
    return ONQ_OK;
}

static onq_code do_binary(call *c) {
    const ev_tensor *x = c->in[0], *y = c->in[1];
    int64_t dims[EV_RANK], at[EV_RANK] = {0};
    size_t rank;
    if (y == NULL || !join_dims(x->dims, x->rank, y->dims, y->rank, dims, &rank))
        return ev_refuse(c, "inputs that the fake engine cannot join");
    if (x->dtype != y->dtype)
        return ev_refuse(c, "inputs of two types");
    const bool truth = oq_str_is(c->n->op_type, "Equal");
    OQ_TRY(ev_make_out(c, truth ? OQ_BOOL : x->dtype, dims, rank));
    double (*fn)(double, double) = NULL;
    for (size_t k = 0; k < OQ_COUNT(binary); k++)
        if (oq_str_is(c->n->op_type, binary[k].op_type))
            fn = binary[k].fn;
    for (size_t i = 0; i < c->out->n; i++) {
        ev_unravel(dims, rank, i, at);
        c->out->v[i] = fn(x->v[meets(x, at, rank)], y->v[meets(y, at, rank)]);
    }
    return ONQ_OK;
}

static onq_code do_clip(call *c) {
    const ev_tensor *x = c->in[0];
    const double lo = c->n_in > 1 && c->in[1] != NULL ? c->in[1]->v[0] : -INFINITY;
    const double hi = c->n_in > 2 && c->in[2] != NULL ? c->in[2]->v[0] : INFINITY;
    OQ_TRY(ev_make_out(c, x->dtype, x->dims, x->rank));
    for (size_t i = 0; i < x->n; i++)
        c->out->v[i] = fmin(fmax(x->v[i], lo), hi);
    return ONQ_OK;
}

static onq_code do_hard_sigmoid(call *c) {
    const ev_tensor *x = c->in[0];
    const double alpha = (double)oq_attr_float(c->n, "alpha", 0.2f);
    const double beta = (double)oq_attr_float(c->n, "beta", 0.5f);
    OQ_TRY(ev_make_out(c, x->dtype, x->dims, x->rank));
    for (size_t i = 0; i < x->n; i++)
        c->out->v[i] = fmin(fmax(alpha * x->v[i] + beta, 0), 1);
    return ONQ_OK;
}

static onq_code do_cast(call *c) {
    const ev_tensor *x = c->in[0];
    const oq_dtype to = (oq_dtype)oq_attr_int(c->n, "to", OQ_FLOAT);
    OQ_TRY(ev_make_out(c, to, x->dims, x->rank));
    for (size_t i = 0; i < x->n; i++)
        c->out->v[i] = is_real(to) ? x->v[i] : to == OQ_BOOL ? x->v[i] != 0 : trunc(x->v[i]);
    return ONQ_OK;
}

/* x (optionally + bias) through the approximation with tanh. */
static onq_code do_fast_gelu(call *c) {
    const ev_tensor *x = c->in[0], *bias = c->n_in > 1 ? c->in[1] : NULL;
    OQ_TRY(ev_make_out(c, x->dtype, x->dims, x->rank));
    for (size_t i = 0; i < x->n; i++) {
        const double v = x->v[i] + (bias != NULL ? bias->v[i % bias->n] : 0);
        c->out->v[i] = 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    }
    return ONQ_OK;
}

static onq_code do_batchnorm(call *c) {
    const ev_tensor *x = c->in[0];
    const double epsilon = (double)oq_attr_float(c->n, "epsilon", 1e-5f);
    int64_t at[EV_RANK];
    if (c->n_in != 5 || x->rank < 2)
        return ev_refuse(c, "it needs five inputs");
    OQ_TRY(ev_make_out(c, x->dtype, x->dims, x->rank));
    for (size_t i = 0; i < x->n; i++) {
        ev_unravel(x->dims, x->rank, i, at);
        const size_t k = (size_t)at[1];
        c->out->v[i] =
            (x->v[i] - c->in[3]->v[k]) / sqrt(c->in[4]->v[k] + epsilon) * c->in[1]->v[k] +
            c->in[2]->v[k];
    }
    return ONQ_OK;
}

/* ---- products ---- */

/* Where the matrix for a place of the joined batches begins. */
static const double *matrix_at(const ev_tensor *t, const int64_t *at, size_t rank) {
    ev_tensor batch = *t;
    batch.rank -= 2;
    return t->v + meets(&batch, at, rank) * (size_t)(t->dims[t->rank - 2] * t->dims[t->rank - 1]);
}

/* Matrices are the last two dimensions; those before are joined. */
static onq_code do_matmul(call *c) {
    const ev_tensor *x = c->in[0], *y = c->in[1];
    int64_t dims[EV_RANK], at[EV_RANK];
    size_t rank;
    if (x->rank < 2 || y->rank < 2 || x->dims[x->rank - 1] != y->dims[y->rank - 2] ||
        x->dtype != y->dtype)
        return ev_refuse(c, "the fake engine takes matrices that fit");
    if (!join_dims(x->dims, x->rank - 2, y->dims, y->rank - 2, dims, &rank))
        return ev_refuse(c, "batches that do not fit");
    const int64_t m = x->dims[x->rank - 2], k = x->dims[x->rank - 1], n = y->dims[y->rank - 1];
    const size_t batches = ev_count(dims, rank);
    dims[rank] = m;
    dims[rank + 1] = n;
    OQ_TRY(ev_make_out(c, x->dtype, dims, rank + 2));
    for (size_t i = 0; i < batches; i++) {
        ev_unravel(dims, rank, i, at);
        const double *a = matrix_at(x, at, rank), *b = matrix_at(y, at, rank);
        double *out = c->out->v + i * (size_t)(m * n);
        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t l = 0; l < k; l++)
                    out[r * n + j] += a[r * k + l] * b[l * n + j];
    }
    return ONQ_OK;
}

static onq_code do_gemm(call *c) {
    const ev_tensor *x = c->in[0], *y = c->in[1], *z = c->n_in > 2 ? c->in[2] : NULL;
    const bool turn_x = oq_attr_int(c->n, "transA", 0) != 0;
    const bool turn_y = oq_attr_int(c->n, "transB", 0) != 0;
    const double alpha = (double)oq_attr_float(c->n, "alpha", 1);
    const double beta = (double)oq_attr_float(c->n, "beta", 1);
    const int64_t inner = x->dims[turn_x ? 0 : 1];
    const int64_t dims[2] = {x->dims[turn_x ? 1 : 0], y->dims[turn_y ? 0 : 1]};
    if (x->rank != 2 || y->rank != 2 || y->dims[turn_y ? 1 : 0] != inner)
        return ev_refuse(c, "matrices that do not fit");
    OQ_TRY(ev_make_out(c, x->dtype, dims, 2));
    for (int64_t i = 0; i < dims[0]; i++)
        for (int64_t j = 0; j < dims[1]; j++) {
            const int64_t at[2] = {i, j};
            double sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += x->v[turn_x ? k * dims[0] + i : i * inner + k] *
                       y->v[turn_y ? j * inner + k : k * dims[1] + j];
            c->out->v[i * dims[1] + j] =
                alpha * sum + (z != NULL ? beta * z->v[meets(z, at, 2)] : 0);
        }
    return ONQ_OK;
}

typedef struct window {
    size_t spatial;
    int64_t pads[2 * EV_RANK], strides[EV_RANK], dilations[EV_RANK], group;
} window;

int64_t ev_number(const oq_node *n, const char *name, size_t i, int64_t fallback) {
    const oq_i64s *v = oq_attr_ints(n, name);
    return v != NULL && i < v->n ? v->v[i] : fallback;
}

/* One output of a convolution, at the place `at` ([batch, channel, ...]). */
static double convolve(const ev_tensor *x, const ev_tensor *w, const window *p, const int64_t *at) {
    const int64_t each = w->dims[1], first = at[1] / (w->dims[0] / p->group) * each;
    const size_t taps = ev_count(w->dims + 2, p->spatial);
    int64_t from[EV_RANK] = {at[0]}, tap[EV_RANK];
    double sum = 0;
    for (int64_t k = 0; k < each; k++)
        for (size_t t = 0; t < taps; t++) {
            bool inside = true;
            ev_unravel(w->dims + 2, p->spatial, t, tap);
            from[1] = first + k;
            for (size_t d = 0; d < p->spatial; d++) {
                from[d + 2] = at[d + 2] * p->strides[d] - p->pads[d] + tap[d] * p->dilations[d];
                inside = inside && from[d + 2] >= 0 && from[d + 2] < x->dims[d + 2];
            }
            if (inside)
                sum += x->v[ev_ravel(x->dims, x->rank, from)] *
                       w->v[(size_t)(at[1] * each + k) * taps + t];
        }
    return sum;
}

static onq_code do_conv(call *c) {
    const ev_tensor *x = c->in[0], *w = c->in[1], *bias = c->n_in > 2 ? c->in[2] : NULL;
    window p = {.spatial = x->rank - 2, .group = oq_attr_int(c->n, "group", 1)};
    int64_t dims[EV_RANK] = {x->dims[0], w->dims[0]}, at[EV_RANK];
    if (x->rank < 3 || w->rank != x->rank || x->dims[1] != w->dims[1] * p.group)
        return ev_refuse(c, "a weight that does not fit");
    if (!oq_str_is(oq_attr_str(c->n, "auto_pad", "NOTSET"), "NOTSET"))
        return ev_refuse(c, "auto_pad");
    for (size_t d = 0; d < p.spatial; d++) {
        p.pads[d] = ev_number(c->n, "pads", d, 0);
        p.strides[d] = ev_number(c->n, "strides", d, 1);
        p.dilations[d] = ev_number(c->n, "dilations", d, 1);
        const int64_t room = x->dims[d + 2] + p.pads[d] + ev_number(c->n, "pads", d + p.spatial, 0);
        dims[d + 2] = (room - (w->dims[d + 2] - 1) * p.dilations[d] - 1) / p.strides[d] + 1;
    }
    OQ_TRY(ev_make_out(c, x->dtype, dims, x->rank));
    for (size_t i = 0; i < c->out->n; i++) {
        ev_unravel(dims, x->rank, i, at);
        c->out->v[i] = convolve(x, w, &p, at) + (bias != NULL ? bias->v[at[1]] : 0);
    }
    return ONQ_OK;
}

/* ---- pairs ---- */

/* The number of the scale that an element has: one for all, one for each place of an axis, or one
 * for each block of it. */
static size_t scale_at(const ev_tensor *x, const ev_tensor *scale, size_t axis, int64_t block,
                       size_t i) {
    int64_t at[EV_RANK];
    if (scale->n == 1)
        return 0;
    ev_unravel(x->dims, x->rank, i, at);
    if (block == 0)
        return (size_t)at[axis];
    at[axis] /= block;
    return ev_ravel(scale->dims, scale->rank, at);
}

static bool range_of(oq_dtype t, double *lo, double *hi) {
    static const struct {
        oq_dtype type;
        double lo, hi;
    } rows[] = {{OQ_UINT8, 0, 255},
                {OQ_INT8, -128, 127},
                {OQ_UINT16, 0, 65535},
                {OQ_INT16, -32768, 32767},
                {OQ_UINT4, 0, 15},
                {OQ_INT4, -8, 7},
                {OQ_INT32, -2147483648.0, 2147483647.0}};
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (rows[i].type == t) {
            *lo = rows[i].lo;
            *hi = rows[i].hi;
            return true;
        }
    return false;
}

static onq_code do_pair(call *c) {
    const bool back = oq_node_is_dequantize(c->n);
    const ev_tensor *x = c->in[0], *scale = c->in[1], *zero = c->n_in > 2 ? c->in[2] : NULL;
    const int64_t block = oq_attr_int(c->n, "block_size", 0);
    const oq_dtype type = back ? x->dtype : zero != NULL ? zero->dtype : OQ_UINT8;
    double lo, hi;
    size_t axis = 0;
    if (!range_of(type, &lo, &hi) || (zero != NULL && zero->dtype != type) ||
        (scale->n != 1 && !ev_axis(c, "axis", 1, x->rank, &axis)))
        return ev_refuse(c, "a pair that the fake engine cannot run");
    OQ_TRY(ev_make_out(c, back ? scale->dtype : type, x->dims, x->rank));
    for (size_t i = 0; i < x->n; i++) {
        const size_t k = scale_at(x, scale, axis, block, i);
        const double z = zero != NULL ? zero->v[zero->n == 1 ? 0 : k] : 0;
        c->out->v[i] = back
                           ? (x->v[i] - z) * scale->v[k]
                           : fmin(fmax(rint(rounded(OQ_FLOAT, x->v[i] / scale->v[k])) + z, lo), hi);
    }
    return ONQ_OK;
}

/* ---- inner graphs ---- */

typedef struct inner {
    const evaluation *around;
    oq_map names;
    OQ_VEC(ev_tensor *) all;
} inner;

static const ev_tensor *find_inner(void *ctx, oq_str name) {
    inner *s = ctx;
    const uint32_t i = oq_map_find(&s->names, name);
    return i != OQ_MAP_NONE ? s->all.v[i] : s->around->find(s->around->ctx, name);
}

static onq_code keep(inner *s, oq_str name, const ev_tensor *t, onq_error *err) {
    oq_arena *a = s->around->arena;
    ev_tensor *copy = OQ_NEW(a, ev_tensor);
    if (copy == NULL || !oq_map_put(&s->names, name, (uint32_t)s->all.n) ||
        !OQ_PUSH(a, &s->all, copy))
        return oq_fail_nomem(err);
    *copy = *t;
    return ONQ_OK;
}

/* A branch that takes nothing but what it sees of the graph around. */
static onq_code run_graph(const evaluation *around, const oq_graph *g, ev_tensor *out,
                          onq_error *err) {
    inner s = {.around = around};
    const evaluation e = {around->model, around->arena, find_inner, &s};
    oq_map_init(&s.names, around->arena);
    for (size_t i = 0; i < g->initializer.n; i++) {
        ev_tensor t;
        OQ_TRY(evaluate_tensor(&e, g->initializer.v[i], &t, err));
        OQ_TRY(keep(&s, g->initializer.v[i]->name, &t, err));
    }
    for (size_t i = 0; i < g->node.n; i++) {
        ev_tensor made[EV_RANK];
        const oq_node *n = g->node.v[i];
        if (!evaluate_knows(n) || n->output.n > EV_RANK)
            return oq_fail(err, ONQ_E_RUNTIME,
                           "node '%.*s' (%.*s): the fake engine has no such "
                           "operator",
                           OQ_STR(n->name), OQ_STR(n->op_type));
        OQ_TRY(evaluate_node(&e, n, made, err));
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(keep(&s, n->output.v[k], &made[k], err));
    }
    for (size_t i = 0; i < g->output.n; i++) {
        const ev_tensor *t = find_inner(&s, g->output.v[i]->name);
        if (t == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "an inner graph lacks its output");
        out[i] = *t;
    }
    return ONQ_OK;
}

static onq_code do_if(call *c) {
    const oq_attribute *branch =
        oq_attr_find(c->n, c->in[0]->v[0] != 0 ? "then_branch" : "else_branch");
    if (branch == NULL || branch->g == NULL || branch->g->output.n != c->n->output.n)
        return ev_refuse(c, "no such branch");
    return run_graph(c->e, branch->g, c->out, c->err);
}

/* ---- the table ---- */

static const struct {
    const char *op_type;
    onq_code (*fn)(call *c);
} operators[] = {
    {"Clip", do_clip},
    {"Cast", do_cast},
    {"FastGelu", do_fast_gelu},
    {"BatchNormalization", do_batchnorm},
    {"MatMul", do_matmul},
    {"Gemm", do_gemm},
    {"Conv", do_conv},
    {"QuantizeLinear", do_pair},
    {"DequantizeLinear", do_pair},
    {"Reshape", ev_do_reshape},
    {"Flatten", ev_do_flatten},
    {"Unsqueeze", ev_do_squeeze},
    {"Squeeze", ev_do_squeeze},
    {"Transpose", ev_do_transpose},
    {"Gather", ev_do_gather},
    {"Concat", ev_do_concat},
    {"ReduceMean", ev_do_reduce_mean},
    {"Shape", ev_do_shape},
    {"Pad", ev_do_pad},
    {"If", do_if},
    {"Slice", ev_do_slice},
    {"HardSigmoid", do_hard_sigmoid},
};

static onq_code (*find_operator(const oq_node *n))(call *c) {
    for (size_t i = 0; i < OQ_COUNT(unary); i++)
        if (oq_str_is(n->op_type, unary[i].op_type))
            return do_unary;
    for (size_t i = 0; i < OQ_COUNT(binary); i++)
        if (oq_str_is(n->op_type, binary[i].op_type))
            return do_binary;
    for (size_t i = 0; i < OQ_COUNT(operators); i++)
        if (oq_str_is(n->op_type, operators[i].op_type))
            return operators[i].fn;
    return NULL;
}

bool evaluate_knows(const oq_node *n) {
    return find_operator(n) != NULL;
}

onq_code evaluate_node(const evaluation *e, const oq_node *n, ev_tensor *out, onq_error *err) {
    call c = {.e = e, .n = n, .n_in = n->input.n, .out = out, .err = err};
    if (n->input.n > EV_RANK)
        return ev_refuse(&c, "more inputs than the fake engine takes");
    for (size_t i = 0; i < n->input.n; i++) {
        c.in[i] = n->input.v[i].n > 0 ? e->find(e->ctx, n->input.v[i]) : NULL;
        if (n->input.v[i].n > 0 && c.in[i] == NULL)
            return ev_refuse(&c, "an input that nothing has made");
    }
    if (n->input.n > 0 && c.in[0] == NULL)
        return ev_refuse(&c, "no first input");
    OQ_TRY(find_operator(n)(&c));
    for (size_t k = 0; k < n->output.n; k++)
        for (size_t i = 0; i < out[k].n; i++)
            out[k].v[i] = rounded(out[k].dtype, out[k].v[i]);
    return ONQ_OK;
}
