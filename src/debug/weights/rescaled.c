/*
 * rescaled.c — weights whose channels a method scaled before they were quantized.
 *
 * --equalize, SmoothQuant and --channel_ranges multiply the rows and columns of a weight by factors
 * that the tensors around it undo. Compared as they are, such a weight and the float one have
 * nothing in common. So the factors are found: the quantized weight is taken for the float one with
 * a factor for each row and each column, by least squares in turns. Where that explains it, the
 * weight is judged by what is left.
 *
 * With nearly as many factors as values that proves nothing. Then the factors must be those of a Mul
 * that the quantized model has before the product.
 */
#include "debug/weights/weights.h"

#include "base/keyed.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"
#include "samples/agreement.h"

#include <math.h>
#include <stdlib.h>

#define SUSPECT 18.0 /* dB: below, a weight is looked at */
#define FOUND   20.0 /* dB: what factors must explain, and ... */
#define BETTER  8.0  /* ... how much better than without */
#define UNEVEN  1.05 /* factors differ by this: one for all is a wrong scale */
#define SHARE   4    /* one in so many channels at least: fewer are wrong scales of channels */
#define TURNS   4
#define PROOF   2 /* values for each factor: as many factors as values explain anything */

typedef struct matrix {
    const float *x, *y;             /* float, dequantized */
    uint64_t rows, columns, inside; /* elements of the first two axes share their factors */
    double *row, *column;           /* factors */
} matrix;

static bool is_matrix(const oq_debug_weight *w, matrix *m) {
    const oq_tensor *t = w->flt;
    if (t == NULL || t->dims.n < 2 || t->dims.v[0] < 1 || t->dims.v[1] < 1 ||
        t->data_type.v != OQ_FLOAT || w->layout != OQ_DEBUG_AFFINE || w->type == OQ_INT32 ||
        w->transposed)
        return false;
    m->rows = (uint64_t)t->dims.v[0];
    m->columns = (uint64_t)t->dims.v[1];
    m->inside = w->sums.n / m->rows / m->columns;
    return m->inside > 0 && m->rows * m->columns * m->inside == w->sums.n;
}

/* True if factors that fit prove something. */
static bool has_proof(const matrix *m) {
    return m->rows * m->columns * m->inside >= PROOF * (m->rows + m->columns);
}

/* The factors of one axis that fit best while those of the other stay. */
static void fit(const matrix *m, bool rows, double *xx, double *xy) {
    const uint64_t n = rows ? m->rows : m->columns;
    double *out = rows ? m->row : m->column;
    const double *other = rows ? m->column : m->row;
    for (uint64_t i = 0; i < n; i++)
        xx[i] = xy[i] = 0;
    for (uint64_t r = 0; r < m->rows; r++)
        for (uint64_t c = 0; c < m->columns; c++) {
            const uint64_t from = (r * m->columns + c) * m->inside, i = rows ? r : c;
            const double f = other[rows ? c : r];
            for (uint64_t k = 0; k < m->inside; k++) {
                const double x = f * (double)m->x[from + k];
                xx[i] += x * x;
                xy[i] += x * (double)m->y[from + k];
            }
        }
    for (uint64_t i = 0; i < n; i++)
        out[i] = xx[i] > 0 ? xy[i] / xx[i] : 1;
}

static double left_over(const matrix *m) {
    double signal = 0, noise = 0;
    for (uint64_t r = 0; r < m->rows; r++)
        for (uint64_t c = 0; c < m->columns; c++) {
            const uint64_t from = (r * m->columns + c) * m->inside;
            for (uint64_t k = 0; k < m->inside; k++) {
                const double x = m->row[r] * m->column[c] * (double)m->x[from + k];
                const double e = x - (double)m->y[from + k];
                signal += x * x;
                noise += e * e;
            }
        }
    return oq_signal_to_noise(signal, noise);
}

/* True if many of the factors differ from the middle one. Sorts them. */
static bool is_uneven(double *v, uint64_t n) {
    uint64_t differ = 0;
    for (uint64_t i = 0; i < n; i++)
        v[i] = fabs(v[i]);
    qsort(v, n, sizeof *v, oq_by_double);
    const double middle = v[n / 2];
    for (uint64_t i = 0; i < n; i++)
        differ += v[i] > UNEVEN * middle || UNEVEN * v[i] < middle;
    return differ > 0 && differ * SHARE >= n;
}

/* ---- factors that the graph shows ---- */

/* The node that reads what is quantized here, after pairs. */
static const oq_node *reader_of(const oq_index *ix, oq_str name) {
    for (unsigned i = 0; i < 4; i++) {
        const oq_value *v = oq_index_find(ix, name);
        const oq_node *n =
            v != NULL && v->uses.n == 1 ? ix->graph->node.v[v->uses.v[0].node] : NULL;
        if (n == NULL || !oq_node_is_pair(n) || n->output.n == 0)
            return n;
        name = n->output.v[0];
    }
    return NULL;
}

/* The node that makes a tensor, before pairs. */
static const oq_node *maker_of(const oq_index *ix, oq_str name) {
    const oq_node *n = oq_index_producer(ix, name);
    while (n != NULL && oq_node_is_pair(n) && n->input.n > 0)
        n = oq_index_producer(ix, n->input.v[0]);
    return n;
}

/* The constants, as many as `n`, by which a Mul scales what goes into the product of a weight; NULL. */
static oq_tensor *factors_before(const oq_debug *d, const oq_debug_weight *w, uint64_t n) {
    const oq_index *ix = &d->quantized_index;
    const oq_node *product = reader_of(ix, w->quantized_name), *mul = NULL;
    if (product != NULL && product->input.n > 0)
        mul = maker_of(ix, product->input.v[0]);
    for (size_t k = 0; oq_node_is(mul, "Mul") && k < mul->input.n; k++) {
        oq_tensor *t = oq_index_constant(ix, mul->input.v[k]);
        uint64_t count = 0;
        if (t != NULL && t->data_type.v == OQ_FLOAT && oq_tensor_count(t, &count, NULL) == ONQ_OK &&
            count == n)
            return t;
    }
    return NULL;
}

/* Takes the factors of the channels that a product sums over from the graph; *found is false if it
 * shows none. Rows of a weight whose outputs are columns are such channels, and columns of others. */
static onq_code take_shown(oq_debug *d, const oq_debug_weight *w, matrix *m, oq_arena *a,
                           bool *found, onq_error *err) {
    const bool columns = w->out_rows || w->flt->dims.n > 2;
    const uint64_t n = columns ? m->columns : m->rows;
    double *factors = columns ? m->column : m->row;
    oq_tensor *t = factors_before(d, w, n);
    float *by = NULL;
    size_t count = 0;
    for (uint64_t i = 0; i < m->rows; i++)
        m->row[i] = 1;
    *found = t != NULL;
    if (t == NULL)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(d->quantized, t, a, &by, &count, err));
    for (uint64_t i = 0; i < n; i++)
        factors[i] = by[i] != 0 ? 1 / (double)by[i] : 0;
    return ONQ_OK;
}

static onq_code look_at(oq_debug *d, oq_debug_weight *w, matrix *m, oq_arena *a, onq_error *err) {
    bool found = true;
    const uint64_t most = m->rows > m->columns ? m->rows : m->columns;
    double *xx = OQ_NEW_ARRAY(a, double, most + 1), *xy = OQ_NEW_ARRAY(a, double, most + 1);
    oq_debug_values v;
    m->row = OQ_NEW_ARRAY(a, double, m->rows + 1);
    m->column = OQ_NEW_ARRAY(a, double, m->columns + 1);
    if (xx == NULL || xy == NULL || m->row == NULL || m->column == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_debug_weight_values(d, w, false, a, &v, err));
    if (v.float_type != OQ_FLOAT || v.quantized_type != OQ_FLOAT)
        return ONQ_OK;
    m->x = v.flt;
    m->y = v.quantized;
    for (uint64_t i = 0; i < m->columns; i++)
        m->column[i] = 1;
    if (!has_proof(m))
        OQ_TRY(take_shown(d, w, m, a, &found, err));
    for (unsigned i = 0; has_proof(m) && i < TURNS; i++) {
        fit(m, true, xx, xy);
        fit(m, false, xx, xy);
    }
    const double sqnr = left_over(m);
    if (found && sqnr >= FOUND && sqnr >= w->sqnr + BETTER &&
        (is_uneven(m->row, m->rows) || is_uneven(m->column, m->columns)))
        w->rescaled = sqnr;
    return ONQ_OK;
}

/* A vector with a factor for each element can be anything, and so can a weight of one output: next
 * to scaled weights they are not judged. */
static void spare_vectors(oq_debug *d) {
    for (size_t i = 0; i < d->weights.n; i++) {
        oq_debug_weight *w = &d->weights.v[i];
        matrix m;
        if (w->sqnr < SUSPECT && isnan(w->rescaled) &&
            (w->flt->dims.n == 1 || (is_matrix(w, &m) && !has_proof(&m))))
            w->rescaled = isfinite(w->ideal) ? fmax(w->ideal, FOUND) : FOUND;
    }
}

onq_code oq_debug_find_rescaled(oq_debug *d, onq_error *err) {
    bool any = false;
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < d->weights.n && rc == ONQ_OK; i++) {
        oq_debug_weight *w = &d->weights.v[i];
        matrix m = {0};
        oq_arena a;
        w->rescaled = NAN;
        if (!(w->sqnr < SUSPECT) || !is_matrix(w, &m))
            continue;
        oq_arena_init(&a, &d->env->alloc);
        rc = look_at(d, w, &m, &a, err);
        oq_arena_release(&a);
        any |= !isnan(w->rescaled);
    }
    if (any)
        spare_vectors(d);
    return rc;
}

/* ---- activations between such weights ---- */

static bool is_rescaled_product(const oq_map *nodes, const oq_node *n) {
    return n != NULL && oq_op_traits_of(n->op_type)->product != OQ_NO_PRODUCT &&
           oq_map_has(nodes, oq_node_label(n));
}

static bool is_between(const oq_debug *d, const oq_map *nodes, oq_str tensor) {
    const oq_index *ix = &d->float_index;
    const oq_value *v = oq_index_find(ix, tensor);
    const oq_node *maker = oq_value_node(ix, v);
    for (unsigned i = 0; i < 3 && maker != NULL && oq_op_traits_of(maker->op_type)->scaling; i++)
        maker = maker->input.n > 0 ? oq_index_producer(ix, maker->input.v[0]) : NULL;
    if (is_rescaled_product(nodes, maker))
        return true;
    for (size_t i = 0; v != NULL && i < v->uses.n; i++)
        if (is_rescaled_product(nodes, ix->graph->node.v[v->uses.v[i].node]))
            return true;
    return false;
}

onq_code oq_debug_mark_rescaled(oq_debug *d, onq_error *err) {
    oq_map nodes;
    bool any = false;
    oq_map_init(&nodes, &d->arena);
    for (size_t i = 0; i < d->weights.n; i++) {
        if (isnan(d->weights.v[i].rescaled))
            continue;
        any = true;
        if (!oq_map_put(&nodes, d->weights.v[i].node, 0))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; any && i < d->acts.n; i++) {
        oq_debug_act *a = &d->acts.v[i];
        a->rescaled = a->flt.p != NULL && a->pre.p != NULL && is_between(d, &nodes, a->flt);
    }
    return ONQ_OK;
}
