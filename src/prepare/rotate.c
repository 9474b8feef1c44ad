/*
 * rotate.c — see rotate.h. Hidden states are found from the embedding table on: whatever reads one,
 * or is added to one, must be something that can be turned with it.
 */
#include "prepare/rotate.h"

#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "prepare/rotate_parts.h"

#define MAX_WIDTH (1 << 20)

/* A tensor that is turned. One after the gain of a norm may be read by products only. */
typedef struct hidden {
    oq_str name;
    const float *gain;
} hidden;

typedef struct finder {
    oq_model *m;
    oq_graph *g;
    oq_index ix;
    oq_arena *arena;
    oq_fresh names;
    uint64_t width;
    bool failed;        /* a constant could not be read */
    OQ_VEC(hidden) all; /* looked at one after another while it grows */
    oq_map map;         /* their names */
    oq_node *gather;    /* of the table of embeddings */
    OQ_VEC(oq_turned) turned;
    OQ_VEC(oq_node *) gains;      /* Mul with a gain that goes into weights */
    OQ_VEC(oq_node *) norms;      /* operators whose gain becomes 1 */
    OQ_VEC(oq_node *) transposes; /* of a table that is copied: */
    OQ_VEC(oq_tensor *) copies;
} finder;

static onq_code refuse(const finder *f, const oq_node *n, const char *why, onq_error *err) {
    if (f->failed)
        return oq_fail_nomem(err);
    return oq_fail(err, ONQ_E_INVALID, "the hidden states cannot be rotated: node '%.*s' (%.*s) %s",
                   OQ_STR(n->name), OQ_STR(n->op_type), why);
}

/* ---- constants ---- */

static oq_tensor *constant(const finder *f, oq_str name) {
    return oq_index_constant(&f->ix, name);
}

static uint64_t count_of(const oq_tensor *t) {
    uint64_t n = 0;
    return oq_tensor_count(t, &n, NULL) == ONQ_OK ? n : 0;
}

static bool is_scalar(const finder *f, oq_str name) {
    const oq_tensor *t = constant(f, name);
    return t != NULL && count_of(t) == 1;
}

static bool is_number(finder *f, oq_str name, double wanted) {
    oq_tensor *t = constant(f, name);
    oq_span data;
    if (t == NULL || count_of(t) != 1)
        return false;
    if (oq_model_data(f->m, t, &data, NULL) != ONQ_OK) {
        f->failed = true;
        return false;
    }
    return oq_raw_get_real((oq_dtype)t->data_type.v, data.p, 0) == wanted;
}

static bool is_gain(const finder *f, oq_str name) {
    const oq_tensor *t = constant(f, name);
    return t != NULL && t->dims.n > 0 && count_of(t) == f->width &&
           (uint64_t)t->dims.v[t->dims.n - 1] == f->width;
}

static onq_code turn(finder *f, const oq_node *by, oq_tensor *t, const float *gain, bool columns,
                     onq_error *err) {
    const size_t along = columns ? 0 : t->dims.n - 1;
    if (t->data_type.v != OQ_FLOAT)
        return refuse(f, by, "has a weight that is not float32", err);
    if (t->dims.n == 0 || (uint64_t)t->dims.v[along] != f->width)
        return refuse(f, by, "has a weight of another width", err);
    for (size_t i = 0; i < f->turned.n; i++)
        if (f->turned.v[i].tensor == t)
            return refuse(f, by, "shares its weight with another node", err);
    const oq_turned row = {.tensor = t, .gain = gain, .columns = columns, .to = t};
    OQ_TRY_ALLOC(OQ_PUSH(f->arena, &f->turned, row), err);
    return ONQ_OK;
}

static onq_code add(finder *f, const oq_node *by, oq_str name, const float *gain, onq_error *err) {
    const uint32_t at = oq_map_find(&f->map, name);
    if (name.n == 0)
        return refuse(f, by, "has an input or output without a name beside them", err);
    if (at != OQ_MAP_NONE && f->all.v[at].gain == gain)
        return ONQ_OK;
    if (at != OQ_MAP_NONE)
        return refuse(f, by, "mixes hidden states with those after a gain", err);
    const hidden h = {name, gain};
    OQ_TRY_ALLOC(oq_map_put(&f->map, name, (uint32_t)f->all.n) && OQ_PUSH(f->arena, &f->all, h),
                 err);
    return ONQ_OK;
}

/* ---- norms that are written out ---- */

static bool is_over_last(finder *f, const oq_node *n) {
    const oq_i64s *axes = oq_attr_ints(n, "axes");
    if (oq_attr_int(n, "keepdims", 1) != 1)
        return false;
    if (axes != NULL)
        return axes->n == 1 && axes->v[0] == -1;
    return n->input.n > 1 && is_number(f, n->input.v[1], -1);
}

/* Pow(x, 2) or Mul(x, x) of which only the mean over the last axis is taken. */
static bool is_square(finder *f, const oq_node *n) {
    const bool squares = (oq_node_is(n, "Pow") && is_number(f, n->input.v[1], 2)) ||
                         (oq_node_is(n, "Mul") && oq_str_eq(n->input.v[0], n->input.v[1]));
    const oq_value *v = squares ? oq_index_find(&f->ix, n->output.v[0]) : NULL;
    bool fits = v != NULL && !v->is_output && v->uses.n > 0;
    for (size_t i = 0; fits && i < v->uses.n; i++) {
        const oq_node *by = f->g->node.v[v->uses.v[i].node];
        fits = v->uses.v[i].slot == 0 && oq_node_is(by, "ReduceMean") && is_over_last(f, by);
    }
    return fits;
}

/* One number for each row: made of such a mean by operators that take numbers one by one. */
static bool is_row_factor(finder *f, oq_str name) {
    static const char *const steps[] = {"Add", "Sqrt", "Div", "Reciprocal", "Pow", "Mul", "Max"};
    for (unsigned depth = 0; depth < 8; depth++) {
        const oq_node *n = oq_index_producer(&f->ix, name);
        bool known = false;
        if (n == NULL)
            return false;
        if (oq_node_is(n, "ReduceMean"))
            return is_over_last(f, n);
        for (size_t i = 0; i < OQ_COUNT(steps); i++)
            known = known || oq_node_is(n, steps[i]);
        if (!known)
            return false;
        name = n->input.v[0];
        for (size_t i = 1; i < n->input.n; i++)
            if (is_scalar(f, name))
                name = n->input.v[i];
            else if (!is_scalar(f, n->input.v[i]))
                return false;
    }
    return false;
}

/* ---- what makes a hidden state ---- */

static onq_code made_by(finder *f, const hidden *h, const oq_value *v, onq_error *err) {
    const oq_node *n = oq_value_node(&f->ix, v);
    assert(v != NULL); /* a node has the name */
    if (v->is_input || v->is_output)
        return oq_fail(err, ONQ_E_INVALID,
                       "the hidden states cannot be rotated: '%.*s' is an input or output of the "
                       "model",
                       OQ_STR(h->name));
    if (n == NULL && v->init == NULL)
        return oq_fail(err, ONQ_E_INVALID,
                       "the hidden states cannot be rotated: nothing makes '%.*s'",
                       OQ_STR(h->name));
    if (n == NULL || oq_node_is_constant(n)) /* what is added to each row */
        return n == NULL
                   ? turn(f, f->g->node.v[v->uses.v[0].node], v->init, NULL, false, err)
                   : refuse(f, n, "is a constant (--all_weights makes it an initializer)", err);
    if (h->gain != NULL || n == f->gather)
        return ONQ_OK; /* was come from */
    if (oq_node_is(n, "Gather"))
        return refuse(f, n, "adds rows of another table to them", err);
    if (oq_node_is(n, "Add") || (n->output.n > 3 && oq_str_eq(n->output.v[3], h->name) &&
                                 oq_str_is(n->op_type, "SkipSimplifiedLayerNormalization"))) {
        OQ_TRY(add(f, n, n->input.v[0], NULL, err));
        return add(f, n, n->input.v[1], NULL, err);
    }
    if (oq_node_is(n, "Div") && is_row_factor(f, n->input.v[1]))
        return add(f, n, n->input.v[0], NULL, err);
    if (oq_node_is(n, "Mul")) {
        const bool first = is_scalar(f, n->input.v[0]) || is_row_factor(f, n->input.v[0]);
        if (!first && !is_scalar(f, n->input.v[1]) && !is_row_factor(f, n->input.v[1]))
            return refuse(f, n, "makes them with a gain, which cannot go into a weight", err);
        return add(f, n, n->input.v[first ? 1 : 0], NULL, err);
    }
    oq_tensor *w = oq_node_is(n, "MatMul") ? oq_index_init(&f->ix, n->input.v[1]) : NULL;
    if (w == NULL || w->dims.n != 2)
        return refuse(f, n, "makes them, and is no product with a constant matrix", err);
    if (oq_index_find(&f->ix, w->name)->uses.n != 1)
        return refuse(f, n, "shares its weight with another node", err);
    return turn(f, n, w, NULL, false, err);
}

/* ---- what reads one ---- */

static onq_code read_gain(finder *f, oq_str name, const float **out, onq_error *err) {
    float *v = NULL;
    size_t n = 0;
    OQ_TRY(oq_tensor_floats(f->m, constant(f, name), f->arena, &v, &n, err));
    *out = v;
    return ONQ_OK;
}

/* The last layer may be the table, transposed: it gets a copy, since the gain is not the
 * table's. */
static onq_code read_transposed(finder *f, oq_node *n, oq_node *t, const float *gain,
                                onq_error *err) {
    const oq_i64s *perm = oq_attr_ints(t, "perm");
    oq_tensor *w = oq_index_init(&f->ix, t->input.v[0]);
    if (w == NULL || w->dims.n != 2 || (perm != NULL && perm->v[0] != 1) ||
        oq_index_find(&f->ix, t->output.v[0])->uses.n != 1)
        return refuse(f, n, "reads them, and its weight is not a constant matrix", err);
    const oq_str name = oq_fresh_tensor(&f->names, w->name, "_turned");
    oq_tensor *copy =
        name.p != NULL ? oq_tensor_new(&f->m->arena, name, OQ_FLOAT, w->dims.v, 2) : NULL;
    const oq_turned row = {.tensor = w, .gain = gain, .to = copy};
    if (w->data_type.v != OQ_FLOAT || (uint64_t)w->dims.v[1] != f->width)
        return refuse(f, n, "has a weight of another type or width", err);
    OQ_TRY_ALLOC(copy != NULL && OQ_PUSH(f->arena, &f->turned, row) &&
                     OQ_PUSH(f->arena, &f->transposes, t) && OQ_PUSH(f->arena, &f->copies, copy),
                 err);
    return ONQ_OK;
}

static onq_code read_by_product(finder *f, oq_node *n, const float *gain, onq_error *err) {
    oq_tensor *w = oq_index_init(&f->ix, n->input.v[1]);
    oq_node *t = oq_index_producer(&f->ix, n->input.v[1]);
    if (w == NULL && t != NULL && oq_node_is(t, "Transpose"))
        return read_transposed(f, n, t, gain, err);
    if (w == NULL || w->dims.n != 2)
        return refuse(f, n, "reads them, and its weight is not a constant matrix", err);
    if (oq_index_find(&f->ix, w->name)->uses.n != 1)
        return refuse(f, n, "shares its weight with another node", err);
    return turn(f, n, w, gain, true, err);
}

/* SimplifiedLayerNormalization and its like: the gain is input `at`, hidden states are those before
 * it. */
static onq_code read_by_norm(finder *f, oq_node *n, size_t at, onq_error *err) {
    const float *gain = NULL;
    if (n->input.n <= at || !is_gain(f, n->input.v[at]) || oq_attr_int(n, "axis", -1) != -1 ||
        (n->input.n > at + 1 && n->input.v[at + 1].n > 0))
        return refuse(f, n, "has no constant gain for the last axis, or adds a bias", err);
    for (size_t i = 0; i < f->norms.n; i++)
        if (f->norms.v[i] == n)
            return ONQ_OK; /* its other input was here */
    OQ_TRY(read_gain(f, n->input.v[at], &gain, err));
    OQ_TRY_ALLOC(OQ_PUSH(f->arena, &f->norms, n), err);
    for (size_t i = 0; i < at; i++)
        OQ_TRY(add(f, n, n->input.v[i], NULL, err));
    OQ_TRY(add(f, n, n->output.v[0], gain, err));
    return n->output.n > 3 && n->output.v[3].n > 0 ? add(f, n, n->output.v[3], NULL, err) : ONQ_OK;
}

static onq_code read_by_mul(finder *f, oq_node *n, size_t slot, onq_error *err) {
    const oq_str other = n->input.v[1 - slot];
    const float *gain = NULL;
    if (is_scalar(f, other) || is_row_factor(f, other))
        return add(f, n, n->output.v[0], NULL, err);
    const oq_value *made = oq_index_find(&f->ix, n->output.v[0]);
    if (!is_gain(f, other) || made == NULL || made->is_output)
        return refuse(f, n, "multiplies them with what is neither a gain nor one number a row",
                      err);
    OQ_TRY(read_gain(f, other, &gain, err));
    OQ_TRY_ALLOC(OQ_PUSH(f->arena, &f->gains, n), err);
    return add(f, n, n->output.v[0], gain, err);
}

static onq_code read_by(finder *f, const hidden *h, oq_node *n, size_t slot, onq_error *err) {
    if (oq_node_is(n, "Shape"))
        return ONQ_OK;
    if (slot == 0 && oq_node_is(n, "MatMul"))
        return read_by_product(f, n, h->gain, err);
    if (h->gain != NULL)
        return refuse(f, n, "reads them after a gain, and is no product", err);
    if (oq_node_is(n, "Add"))
        return add(f, n, n->output.v[0], NULL, err);
    if (is_square(f, n))
        return ONQ_OK;
    if (oq_node_is(n, "Mul"))
        return read_by_mul(f, n, slot, err);
    if (slot == 0 && oq_node_is(n, "Div") && is_row_factor(f, n->input.v[1]))
        return add(f, n, n->output.v[0], NULL, err);
    if (oq_str_is(n->op_type, "SimplifiedLayerNormalization") || oq_node_is(n, "RMSNormalization"))
        return read_by_norm(f, n, 1, err);
    if (oq_str_is(n->op_type, "SkipSimplifiedLayerNormalization"))
        return read_by_norm(f, n, 2, err);
    return refuse(f, n, "reads them", err);
}

/* ---- all of it ---- */

/* The embedding table: the largest one that Gather takes rows of. */
static oq_node *find_table(const finder *f, oq_tensor **table) {
    oq_node *found = NULL;
    for (size_t i = 0; i < f->g->node.n; i++) {
        oq_node *n = f->g->node.v[i];
        oq_tensor *t = oq_node_is(n, "Gather") && oq_attr_int(n, "axis", 0) == 0
                           ? oq_index_init(&f->ix, n->input.v[0])
                           : NULL;
        if (t != NULL && t->dims.n == 2 && t->data_type.v == OQ_FLOAT &&
            (found == NULL || count_of(t) > count_of(*table))) {
            found = n;
            *table = t;
        }
    }
    return found;
}

static onq_code find(finder *f, onq_error *err) {
    oq_tensor *table = NULL;
    oq_node *gather = find_table(f, &table);
    if (gather == NULL || table->dims.v[1] < 2 || table->dims.v[1] > MAX_WIDTH)
        return oq_fail(err, ONQ_E_INVALID,
                       "the hidden states cannot be rotated: no Gather takes rows of a float32 "
                       "table of embeddings");
    f->width = (uint64_t)table->dims.v[1];
    f->gather = gather;
    OQ_TRY(turn(f, gather, table, NULL, false, err));
    OQ_TRY(add(f, gather, gather->output.v[0], NULL, err));
    for (size_t i = 0; i < f->all.n; i++) {
        const hidden h = f->all.v[i];
        const oq_value *v = oq_index_find(&f->ix, h.name);
        OQ_TRY(made_by(f, &h, v, err));
        for (size_t k = 0; k < v->uses.n; k++) {
            oq_node *by = f->g->node.v[v->uses.v[k].node];
            if (v->uses.v[k].slot == OQ_SLOT_INNER)
                return refuse(f, by, "reads them in an inner graph", err);
            OQ_TRY(read_by(f, &h, by, v->uses.v[k].slot, err));
        }
    }
    /* The table may be read by the last layer, which has its copy, and by nothing else. */
    if (oq_index_find(&f->ix, table->name)->uses.n != 1 + f->transposes.n)
        return refuse(f, gather, "shares its table with another node", err);
    return f->gains.n + f->norms.n > 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_INVALID,
                         "the hidden states cannot be rotated: no norm reads them");
}

/* Gains are in the weights now. */
static onq_code drop_gains(finder *f, onq_error *err) {
    oq_arena *a = &f->m->arena;
    oq_map map;
    OQ_VEC(oq_str) to = {0};
    oq_map_init(&map, f->arena);
    for (size_t i = 0; i < f->gains.n; i++) {
        const oq_node *n = f->gains.v[i];
        const oq_str x = n->input.v[is_gain(f, n->input.v[0]) ? 1 : 0];
        OQ_TRY_ALLOC(oq_map_put(&map, n->output.v[0], (uint32_t)to.n) && OQ_PUSH(f->arena, &to, x),
                     err);
    }
    if (f->norms.n > 0) {
        const int64_t dims[] = {(int64_t)f->width};
        const oq_str name = oq_fresh_tensor(&f->names, OQ_S("hidden_gain"), "");
        float *ones = OQ_NEW_ARRAY(a, float, f->width);
        oq_tensor *t = name.p != NULL ? oq_tensor_new(a, name, OQ_FLOAT, dims, 1) : NULL;
        OQ_TRY_ALLOC(ones != NULL && t != NULL && oq_graph_add_init(a, f->g, t), err);
        for (uint64_t i = 0; i < f->width; i++)
            ones[i] = 1.0f;
        oq_tensor_set_view(t, ones, f->width * sizeof *ones);
        for (size_t i = 0; i < f->norms.n; i++)
            f->norms.v[i]
                ->input
                .v[oq_str_is(f->norms.v[i]->op_type, "SkipSimplifiedLayerNormalization") ? 2 : 1] =
                name;
    }
    return to.n > 0 ? oq_graph_replace_many(f->m, f->g, &map, to.v, err) : ONQ_OK;
}

static onq_code apply(finder *f, onq_error *err) {
    OQ_TRY(oq_turn(f->m, f->turned.v, f->turned.n, f->width, err));
    for (size_t i = 0; i < f->copies.n; i++) {
        OQ_TRY_ALLOC(oq_graph_add_init(&f->m->arena, f->g, f->copies.v[i]), err);
        f->transposes.v[i]->input.v[0] = f->copies.v[i]->name;
    }
    OQ_TRY(drop_gains(f, err));
    return oq_graph_prune(f->m, f->g, err);
}

onq_code oq_rotate(oq_model *m, oq_rotated *out, onq_error *err) {
    OQ_SCRATCH(scratch, &m->env->alloc);
    finder f = {.m = m, .g = m->proto->graph, .arena = &scratch};
    oq_map_init(&f.map, &scratch);
    OQ_TRY(oq_index_build(&f.ix, &scratch, f.g, NULL, err));
    OQ_TRY(oq_fresh_init(&f.names, &scratch, m, err));
    OQ_TRY(find(&f, err));
    *out = (oq_rotated){.width = f.width,
                        .n_weights = f.turned.n,
                        .n_norms = f.gains.n + f.norms.n,
                        .untied = f.copies.n > 0};
    oq_model_touch(m);
    OQ_TRY(apply(&f, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}
