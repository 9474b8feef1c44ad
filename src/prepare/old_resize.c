/*
 * old_resize.c — what Resize and Upsample computed before opset 11, said in today's attributes.
 */
#include "prepare/old_resize.h"

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/graph.h"
#include "onnx/tensor.h"

enum { DATA, ROI, SCALES };

typedef struct resizing {
    oq_model *m;
    oq_arena scratch;
    oq_names names;
    bool has_names;
} resizing;

/* The factors of a node; v is NULL when they are computed. */
typedef struct factors {
    float *v;
    size_t n;
} factors;

/* A whole number, or a half: there today's defaults take the same values. */
static bool is_plain(float factor) {
    return factor == 0.5f || (factor >= 1.0f && factor == floorf(factor));
}

static onq_code say(resizing *r, oq_node *n, oq_str nearest, onq_error *err) {
    oq_arena *a = &r->m->arena;
    return oq_attr_set_str(a, n, OQ_S("coordinate_transformation_mode"), OQ_S("asymmetric")) &&
                   oq_attr_set_str(a, n, OQ_S("nearest_mode"), nearest)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* ---- some axes larger, others smaller: two nodes ---- */

static oq_str new_name(resizing *r, oq_str base, const char *suffix) {
    oq_str wanted = oq_str_format(&r->m->arena, "%.*s%s", OQ_STR(base), suffix);
    return wanted.p != NULL ? oq_names_unique(&r->names, wanted) : wanted;
}

/* An initializer of floats; its name is empty when out of memory. */
static oq_str add_numbers(resizing *r, oq_graph *g, oq_str name, const double *v, size_t n,
                          size_t rank) {
    oq_arena *a = &r->m->arena;
    const int64_t dims[] = {(int64_t)n};
    oq_tensor *t = oq_tensor_new(a, name, OQ_FLOAT, dims, rank);
    if (name.p == NULL || t == NULL || oq_tensor_set_typed_f(a, t, v, n, NULL) != ONQ_OK ||
        !oq_graph_add_init(a, g, t))
        return (oq_str){NULL, 0};
    return name;
}

/* The smaller (or larger) of each factor and 1, as a tensor in front of node *at. */
static oq_str limit_factors(resizing *r, oq_graph *g, size_t *at, const factors *f, bool smaller) {
    const oq_str none = {NULL, 0}, scales = g->node.v[*at]->input.v[SCALES];
    const oq_str name = new_name(r, scales, smaller ? "_smaller" : "_larger");
    if (f->v != NULL) {
        double *v = OQ_NEW_ARRAY(&r->scratch, double, f->n + 1);
        if (v == NULL)
            return none;
        for (size_t i = 0; i < f->n; i++)
            v[i] = (f->v[i] < 1.0f) == smaller ? (double)f->v[i] : 1.0;
        return add_numbers(r, g, name, v, f->n, 1);
    }
    const double one = 1.0;
    const oq_str in[] = {scales, add_numbers(r, g, new_name(r, scales, "_one"), &one, 1, 0)};
    if (in[1].p == NULL || name.p == NULL)
        return none;
    oq_node *n = oq_node_make(&r->m->arena, smaller ? "Min" : "Max", name, in, 2, &name, 1);
    return n != NULL && oq_graph_insert_node(&r->m->arena, g, (*at)++, n) ? name : none;
}

/* The runtime copies where no size changes, whatever the factors say. Of a node that makes another
 * axis smaller it never copied, so the second of the two nodes must not either. */
static bool keeps_sizes(const oq_graph *g, const oq_node *n, const factors *f) {
    const oq_value_info *info = oq_graph_find_info(g, n->input.v[DATA]);
    const oq_tensor_type *type =
        info != NULL && info->type != NULL ? info->type->tensor_type : NULL;
    if (f->v == NULL || type == NULL || type->shape == NULL || type->shape->dim.n != f->n)
        return false;
    for (size_t i = 0; i < f->n; i++) {
        const oq_dim *d = type->shape->dim.v[i];
        if (f->v[i] > 1.0f &&
            (!d->dim_value.has || floorf((float)d->dim_value.v * f->v[i]) > (float)d->dim_value.v))
            return false;
    }
    return true;
}

static onq_code split(resizing *r, oq_graph *g, size_t *at, const factors *f, onq_error *err) {
    oq_node *n = g->node.v[*at];
    oq_arena *a = &r->m->arena;
    if (keeps_sizes(g, n, f))
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "node '%.*s' (Resize): it shrinks some axes and moves values along others "
                       "whose size stays, which no newer opset can express",
                       OQ_STR(oq_node_label(n)));
    if (!r->has_names)
        OQ_TRY(oq_names_collect(&r->names, a, r->m, err));
    r->has_names = true;
    const oq_str small = limit_factors(r, g, at, f, true);
    const oq_str large = limit_factors(r, g, at, f, false);
    const oq_str between = new_name(r, n->output.v[0], "_smaller");
    const oq_str in[] = {n->input.v[DATA], n->input.v[ROI], small};
    oq_node *first = oq_node_make(a, "Resize", between, in, 3, &between, 1);
    if (small.p == NULL || large.p == NULL || between.p == NULL || first == NULL ||
        !oq_attr_set_str(a, first, OQ_S("mode"), OQ_S("nearest")) ||
        !oq_graph_insert_node(a, g, (*at)++, first))
        return oq_fail_nomem(err);
    n->input.v[DATA] = between;
    n->input.v[SCALES] = large;
    OQ_TRY(say(r, first, OQ_S("ceil"), err));
    return say(r, n, OQ_S("floor"), err);
}

/* ---- every node ---- */

/* `scales` is NULL when they are computed. */
static onq_code keep_node(resizing *r, oq_graph *g, size_t *at, oq_tensor *scales, onq_error *err) {
    oq_node *n = g->node.v[*at];
    factors f = {0};
    bool plain = true, larger = false, smaller = false;
    if (scales != NULL)
        OQ_TRY(oq_tensor_floats(r->m, scales, &r->scratch, &f.v, &f.n, err));
    if (!oq_str_is(oq_attr_str(n, "mode", "nearest"), "nearest"))
        return say(r, n, OQ_S("floor"), err);
    for (size_t i = 0; i < f.n; i++) {
        plain &= is_plain(f.v[i]);
        larger |= f.v[i] > 1.0f;
        smaller |= f.v[i] < 1.0f;
    }
    if (f.v == NULL || (larger && smaller && !plain))
        return split(r, g, at, &f, err);
    return plain ? ONQ_OK : say(r, n, smaller ? OQ_S("ceil") : OQ_S("floor"), err);
}

static bool is_old(const oq_node *n) {
    return oq_str_is(n->op_type, "Resize") && n->domain.n == 0 && n->input.n > SCALES &&
           n->input.v[SCALES].n > 0 && n->output.n > 0 &&
           oq_attr_find(n, "coordinate_transformation_mode") == NULL;
}

/* The constants are found first: nodes that are put in make the index stale. */
static onq_code keep_graph(void *ctx, oq_graph *g, onq_error *err) {
    resizing *r = ctx;
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, &r->scratch, g, NULL, err));
    oq_tensor **scales = OQ_NEW_ARRAY(&r->scratch, oq_tensor *, g->node.n + 1);
    OQ_TRY_ALLOC(scales != NULL, err);
    for (size_t i = 0; i < g->node.n; i++)
        if (is_old(g->node.v[i]))
            scales[i] = oq_index_constant(&ix, g->node.v[i]->input.v[SCALES]);
    for (size_t i = 0, was = 0; i < g->node.n; i++, was++)
        if (is_old(g->node.v[i]))
            OQ_TRY(keep_node(r, g, &i, scales[was], err));
    return ONQ_OK;
}

onq_code oq_keep_old_resize(oq_model *m, onq_error *err) {
    resizing r = {.m = m};
    oq_arena_init(&r.scratch, &m->env->alloc);
    const onq_code rc = oq_walk_graphs(m->proto->graph, keep_graph, &r, err);
    oq_arena_release(&r.scratch);
    return rc;
}
