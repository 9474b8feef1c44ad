/*
 * fuse_pattern.c — Gelu, LayerNormalization, LpNormalization and SpaceToDepth as exporters write
 * them out.
 *
 * The patterns are those of the reference's FusionGelu, FusionLayerNormalization,
 * FusionLpNormalization and FusionSpaceToDepth. Two things are stricter: a tensor inside a pattern
 * that is an output of the graph prevents the fusion, and LayerNormalization must be over the last
 * axis (the reference fuses over any and changes the result).
 */
#include "prepare/fuse/fuse_pattern.h"

/* ---- steps from node to node ---- */

/* The one node of type `op` that uses the first output of node i, by one input or several. */
static uint32_t only_child(const oq_fuse *f, uint32_t i, const char *op) {
    const oq_node *n = oq_fuse_node(f, i);
    const oq_value *v = n->output.n != 0 ? oq_index_find(&f->ix, n->output.v[0]) : NULL;
    if (v == NULL || v->uses.n != 1 || v->uses.v[0].slot == OQ_SLOT_INNER || v->is_output)
        return OQ_NO_NODE;
    const uint32_t at = v->uses.v[0].node;
    return oq_fuse_free(f, at) && oq_str_is(oq_fuse_node(f, at)->op_type, op) ? at : OQ_NO_NODE;
}

/* The node of type `op` that makes input `slot`. */
static uint32_t parent(const oq_fuse *f, uint32_t i, size_t slot, const char *op) {
    const uint32_t at = oq_fuse_maker(f, oq_node_input(oq_fuse_node(f, i), slot));
    return at != OQ_NO_NODE && oq_str_is(oq_fuse_node(f, at)->op_type, op) ? at : OQ_NO_NODE;
}

/* Slot of the first constant input, when it is one number near `want`; else -1. */
static int constant_slot(oq_fuse *f, uint32_t i, double want, double delta) {
    const oq_node *n = oq_fuse_node(f, i);
    for (size_t k = 0; k < n->input.n; k++) {
        if (oq_fuse_const(f, n->input.v[k]) == NULL)
            continue;
        return oq_fuse_scalar_is(f, n->input.v[k], want, delta) ? (int)k : -1;
    }
    return -1;
}

static bool has_constant(oq_fuse *f, uint32_t i, double want) {
    return constant_slot(f, i, want, 1e-6) >= 0;
}

static bool reads(const oq_fuse *f, uint32_t i, oq_str name) {
    const oq_node *n = oq_fuse_node(f, i);
    return oq_str_among(name, n->input.v, n->input.n);
}

static bool holds(const oq_pattern *p, uint32_t i) {
    for (size_t k = 0; k < p->n; k++)
        if (p->nodes[k] == i)
            return true;
    return false;
}

bool oq_pattern_is_closed(const oq_fuse *f, const oq_pattern *p) {
    for (size_t k = 0; k < p->n; k++) {
        const oq_node *n = oq_fuse_node(f, p->nodes[k]);
        for (size_t o = 0; o < n->output.n; o++) {
            const oq_value *v =
                n->output.v[o].n != 0 ? oq_index_find(&f->ix, n->output.v[o]) : NULL;
            if (v == NULL || oq_str_eq(v->name, p->output))
                continue;
            if (v->is_output)
                return false;
            for (size_t u = 0; u < v->uses.n; u++)
                if (!holds(p, v->uses.v[u].node) || v->uses.v[u].slot == OQ_SLOT_INNER)
                    return false;
        }
    }
    return true;
}

static oq_str output_of(const oq_fuse *f, uint32_t i) {
    return oq_fuse_node(f, i)->output.v[0];
}

/* ---- Gelu ---- */

static bool finish(oq_fuse *f, oq_pattern *p, const uint32_t *nodes, size_t n, oq_str input) {
    assert(n > 0 && n <= OQ_COUNT(p->nodes));
    for (size_t i = 0; i < n; i++)
        p->nodes[i] = nodes[i];
    p->n = n;
    p->input = input;
    p->output = output_of(f, nodes[n - 1]);
    return oq_pattern_is_closed(f, p);
}

/* x * 0.5 and the rest in either order, as PyTorch writes it. */
static bool gelu_torch(oq_fuse *f, uint32_t erf, uint32_t add, uint32_t mul, oq_pattern *p) {
    const uint32_t div = parent(f, erf, 0, "Div");
    if (div == OQ_NO_NODE || constant_slot(f, div, 1.4142, 0.001) != 1)
        return false;
    const oq_node *m = oq_fuse_node(f, mul);
    const oq_str input = oq_fuse_node(f, div)->input.v[0];
    if (m->input.n != 2)
        return false;
    const size_t another = oq_str_eq(m->input.v[0], output_of(f, add)) ? 1 : 0;
    if (oq_str_eq(input, m->input.v[another])) {
        const uint32_t half = only_child(f, mul, "Mul");
        return half != OQ_NO_NODE && has_constant(f, half, 0.5) &&
               finish(f, p, (uint32_t[]){div, erf, add, mul, half}, 5, input);
    }
    const uint32_t half = parent(f, mul, another, "Mul");
    return half != OQ_NO_NODE && has_constant(f, half, 0.5) && reads(f, half, input) &&
           finish(f, p, (uint32_t[]){div, erf, add, half, mul}, 5, input);
}

/* (...) * 0.5, then * x: as Keras writes it, with a division; the root may be computed. */
static bool gelu_keras(oq_fuse *f, uint32_t erf, uint32_t add, uint32_t half, oq_pattern *p) {
    const uint32_t mul = has_constant(f, half, 0.5) ? only_child(f, half, "Mul") : OQ_NO_NODE;
    const uint32_t div = mul != OQ_NO_NODE ? parent(f, erf, 0, "Div") : OQ_NO_NODE;
    uint32_t root = OQ_NO_NODE;
    if (div == OQ_NO_NODE)
        return false;
    if (constant_slot(f, div, 1.4142, 0.001) != 1) {
        root = parent(f, div, 1, "Sqrt");
        if (root == OQ_NO_NODE || !has_constant(f, root, 2.0))
            return false;
    }
    const oq_str input = oq_fuse_node(f, div)->input.v[0];
    if (!reads(f, mul, input))
        return false;
    if (root == OQ_NO_NODE)
        return finish(f, p, (uint32_t[]){div, erf, add, half, mul}, 5, input);
    return finish(f, p, (uint32_t[]){div, erf, add, half, root, mul}, 6, input);
}

/* The same with a product instead of the division: as TensorFlow writes it. */
static bool gelu_tensorflow(oq_fuse *f, uint32_t erf, uint32_t add, uint32_t half, oq_pattern *p) {
    const uint32_t first = has_constant(f, half, 0.5) ? parent(f, erf, 0, "Mul") : OQ_NO_NODE;
    const uint32_t last = first != OQ_NO_NODE ? only_child(f, half, "Mul") : OQ_NO_NODE;
    if (last == OQ_NO_NODE)
        return false;
    const int slot = constant_slot(f, first, 0.7071067690849304, 0.001);
    if (slot < 0 || slot > 1 || oq_fuse_node(f, first)->input.n != 2)
        return false;
    const oq_str input = oq_fuse_node(f, first)->input.v[1 - slot];
    return reads(f, last, input) &&
           finish(f, p, (uint32_t[]){first, erf, add, half, last}, 5, input);
}

bool oq_pattern_gelu(oq_fuse *f, uint32_t i, oq_pattern *p) {
    const uint32_t add = only_child(f, i, "Add");
    const uint32_t mul =
        add != OQ_NO_NODE && has_constant(f, add, 1.0) ? only_child(f, add, "Mul") : OQ_NO_NODE;
    if (mul == OQ_NO_NODE)
        return false;
    return gelu_torch(f, i, add, mul, p) || gelu_keras(f, i, add, mul, p) ||
           gelu_tensorflow(f, i, add, mul, p);
}

/* ---- LayerNormalization ---- */

/* True if the reduction is over the last axis alone, which stays with size 1. */
static bool is_last_axis(oq_fuse *f, uint32_t i) {
    const oq_node *n = oq_fuse_node(f, i);
    const oq_i64s *attr = oq_attr_ints(n, "axes");
    int64_t *v = attr != NULL ? attr->v : NULL;
    size_t count = attr != NULL ? attr->n : 0;
    if (attr == NULL && oq_fuse_ints(f, oq_node_input(n, 1), &v, &count, NULL) != ONQ_OK)
        return false;
    if (v == NULL || count != 1 || oq_attr_int(n, "keepdims", 1) != 1)
        return false;
    return v[0] == -1 || (v[0] >= 0 && oq_fuse_rank(f, n->input.v[0]) == v[0] + 1);
}

static bool is_vector(const oq_fuse *f, oq_str name) {
    const oq_tensor *t = oq_fuse_const(f, name);
    return t != NULL && t->dims.n == 1;
}

/* The other input of a node with two. */
static oq_str other_input(const oq_node *n, oq_str name) {
    return n->input.n != 2 ? (oq_str){"", 0} : n->input.v[oq_str_eq(n->input.v[0], name) ? 1 : 0];
}

/* One or two Sub nodes (input - mean) are all that use the mean. */
static size_t mean_users(const oq_fuse *f, uint32_t mean, uint32_t subs[2]) {
    const oq_node *n = oq_fuse_node(f, mean);
    const oq_value *v = oq_index_find(&f->ix, n->output.v[0]);
    if (v == NULL || v->uses.n == 0 || v->uses.n > 2)
        return 0;
    for (size_t k = 0; k < v->uses.n; k++) {
        subs[k] = v->uses.v[k].node;
        const oq_node *s = oq_fuse_node(f, subs[k]);
        if (v->uses.v[k].slot != 1 || !oq_fuse_free(f, subs[k]) || !oq_str_is(s->op_type, "Sub") ||
            !oq_str_eq(s->input.v[0], n->input.v[0]))
            return 0;
    }
    return v->uses.n;
}

/* The Div that one of the Sub nodes goes into. */
static uint32_t find_div(const oq_fuse *f, const uint32_t *subs, size_t n) {
    for (size_t k = 0; k < n; k++) {
        const oq_value *v = oq_index_find(&f->ix, output_of(f, subs[k]));
        for (size_t u = v != NULL ? v->uses.n : 0; u-- > 0;) {
            const uint32_t at = v->uses.v[u].node;
            if (oq_fuse_free(f, at) && oq_str_is(oq_fuse_node(f, at)->op_type, "Div"))
                return at;
        }
    }
    return OQ_NO_NODE;
}

/* The square: Pow(x, 2) or Mul(x, x), perhaps of a Cast. Adds its nodes; returns the Sub that feeds
 * it. */
static uint32_t find_square(oq_fuse *f, uint32_t mean, oq_pattern *p) {
    uint32_t at = parent(f, mean, 0, "Pow");
    if (at != OQ_NO_NODE) {
        if (constant_slot(f, at, 2.0, 1e-6) != 1)
            return OQ_NO_NODE;
    } else {
        at = parent(f, mean, 0, "Mul");
        const oq_node *n = at != OQ_NO_NODE ? oq_fuse_node(f, at) : NULL;
        if (n == NULL || n->input.n != 2 || !oq_str_eq(n->input.v[0], n->input.v[1]))
            return OQ_NO_NODE;
    }
    p->nodes[p->n++] = at;
    const uint32_t sub = parent(f, at, 0, "Sub");
    if (sub != OQ_NO_NODE)
        return sub;
    const uint32_t cast = parent(f, at, 0, "Cast");
    if (cast == OQ_NO_NODE)
        return OQ_NO_NODE;
    p->nodes[p->n++] = cast;
    return parent(f, cast, 0, "Sub");
}

bool oq_pattern_layernorm(oq_fuse *f, uint32_t i, oq_pattern *p) {
    uint32_t subs[2];
    double epsilon = 0;
    const oq_node *mean = oq_fuse_node(f, i);
    *p = (oq_pattern){0};
    if (mean->input.n == 0 || mean->output.n != 1 || !is_last_axis(f, i))
        return false;
    const size_t n_subs = mean_users(f, i, subs);
    const uint32_t div = n_subs != 0 ? find_div(f, subs, n_subs) : OQ_NO_NODE;
    const uint32_t root = div != OQ_NO_NODE ? parent(f, div, 1, "Sqrt") : OQ_NO_NODE;
    const uint32_t add = root != OQ_NO_NODE ? parent(f, root, 0, "Add") : OQ_NO_NODE;
    const uint32_t var = add != OQ_NO_NODE ? parent(f, add, 0, "ReduceMean") : OQ_NO_NODE;
    if (var == OQ_NO_NODE || !is_last_axis(f, var) ||
        !oq_fuse_scalar(f, other_input(oq_fuse_node(f, add), output_of(f, var)), &epsilon) ||
        epsilon <= 0 || epsilon > 1e-4)
        return false;
    p->nodes[p->n++] = i;
    for (size_t k = 0; k < n_subs; k++)
        p->nodes[p->n++] = subs[k];
    const uint32_t sub = find_square(f, var, p);
    if (sub == OQ_NO_NODE || (sub != subs[0] && (n_subs == 1 || sub != subs[1])))
        return false;
    const uint32_t mul = only_child(f, div, "Mul");
    const uint32_t last = mul != OQ_NO_NODE ? only_child(f, mul, "Add") : OQ_NO_NODE;
    if (last == OQ_NO_NODE)
        return false;
    const uint32_t rest[] = {root, add, var, div, mul, last};
    for (size_t k = 0; k < OQ_COUNT(rest); k++)
        p->nodes[p->n++] = rest[k];
    p->input = mean->input.v[0];
    p->output = output_of(f, last);
    p->epsilon = (float)epsilon;
    p->weight = other_input(oq_fuse_node(f, mul), output_of(f, div));
    p->bias = other_input(oq_fuse_node(f, last), output_of(f, mul));
    return is_vector(f, p->weight) && is_vector(f, p->bias) && oq_pattern_is_closed(f, p);
}

/* ---- LpNormalization ---- */

static bool clip_is_epsilon(oq_fuse *f, const oq_node *n) {
    const oq_attribute *a = oq_attr_find(n, "min");
    double v = a != NULL ? (double)a->f.v : 0;
    if (oq_attr_find(n, "max") != NULL || oq_fuse_const(f, oq_node_input(n, 2)) != NULL)
        return false;
    if (a == NULL && !oq_fuse_scalar(f, oq_node_input(n, 1), &v))
        return false;
    return v > 0 && v - 1e-12 < 1e-13 && 1e-12 - v < 1e-13;
}

bool oq_pattern_lpnorm(oq_fuse *f, uint32_t i, oq_pattern *p) {
    const oq_node *reduce = oq_fuse_node(f, i);
    *p = (oq_pattern){0};
    if (reduce->input.n == 0 || oq_attr_int(reduce, "keepdims", 0) != 1 || !is_last_axis(f, i) ||
        oq_fuse_rank(f, reduce->input.v[0]) < 1)
        return false;
    const uint32_t clip = only_child(f, i, "Clip");
    if (clip == OQ_NO_NODE || !clip_is_epsilon(f, oq_fuse_node(f, clip)))
        return false;
    const uint32_t expand = only_child(f, clip, "Expand");
    const uint32_t div = expand != OQ_NO_NODE ? only_child(f, expand, "Div") : OQ_NO_NODE;
    if (div == OQ_NO_NODE)
        return false;
    const oq_node *d = oq_fuse_node(f, div);
    return oq_str_eq(d->input.v[0], reduce->input.v[0]) &&
           oq_str_eq(d->input.v[1], output_of(f, expand)) &&
           finish(f, p, (uint32_t[]){i, clip, expand, div}, 4, reduce->input.v[0]);
}

/* ---- SpaceToDepth ---- */

static bool perm_is(const oq_fuse *f, uint32_t i, const int64_t *want, size_t n) {
    const oq_i64s *perm = oq_attr_ints(oq_fuse_node(f, i), "perm");
    return perm != NULL && perm->n == n && memcmp(perm->v, want, n * sizeof *want) == 0;
}

/* The batch may be a name; all other dims are numbers, into out[n]. */
static bool batch_and_dims(const oq_fuse *f, oq_str name, size_t n, oq_sdim *batch, int64_t *out) {
    oq_tensor_info info;
    if (!oq_shapes_tensor(f->shapes, f->g, name, &info) || !info.has_shape || info.rank != n ||
        oq_sdim_is_unknown(info.dims[0]))
        return false;
    *batch = info.dims[0];
    for (size_t k = 1; k < n; k++) {
        if (!oq_sdim_is_num(info.dims[k]))
            return false;
        out[k] = info.dims[k].n;
    }
    return true;
}

/* want[0] is the batch. */
static bool dims_are(const oq_fuse *f, uint32_t i, oq_sdim batch, const int64_t *want, size_t n) {
    int64_t dims[8];
    oq_sdim have;
    return batch_and_dims(f, output_of(f, i), n, &have, dims) && oq_sdim_eq(have, batch) &&
           memcmp(dims + 1, want + 1, (n - 1) * sizeof *want) == 0;
}

bool oq_pattern_spacetodepth(oq_fuse *f, uint32_t i, oq_pattern *p) {
    static const char *const chain[] = {"Transpose", "Reshape",   "Transpose",
                                        "Reshape",   "Transpose", "Reshape"};
    uint32_t at[7] = {i};
    int64_t in[8], r1[8];
    oq_sdim batch, same;
    *p = (oq_pattern){0};
    for (size_t k = 0; k < OQ_COUNT(chain); k++)
        if ((at[k + 1] = only_child(f, at[k], chain[k])) == OQ_NO_NODE)
            return false;
    if (!batch_and_dims(f, oq_fuse_node(f, i)->input.v[0], 4, &batch, in) ||
        !batch_and_dims(f, output_of(f, i), 6, &same, r1) || r1[3] < 1 || r1[3] > 1 << 15)
        return false;
    const int64_t b = r1[3], h = in[2] / b, w = in[3] / b;
    if (!dims_are(f, at[0], batch, (int64_t[]){0, in[1], h, b, w, b}, 6) ||
        !perm_is(f, at[1], (int64_t[]){0, 1, 2, 4, 3, 5}, 6) ||
        !dims_are(f, at[2], batch, (int64_t[]){0, in[1], h * w, b * b}, 4) ||
        !perm_is(f, at[3], (int64_t[]){0, 1, 3, 2}, 4) ||
        !dims_are(f, at[4], batch, (int64_t[]){0, in[1], b * b, h, w}, 5) ||
        !perm_is(f, at[5], (int64_t[]){0, 2, 1, 3, 4}, 5) ||
        !dims_are(f, at[6], batch, (int64_t[]){0, b * b * in[1], h, w}, 4))
        return false;
    p->blocksize = b;
    return finish(f, p, at, 7, oq_fuse_node(f, i)->input.v[0]);
}
