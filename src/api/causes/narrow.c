/*
 * narrow.c — see narrow.h.
 */
#include "api/causes/narrow.h"

#include "debug/search/search.h"
#include "onnx/operators.h"

/* ---- which nodes and outputs are quantized ---- */

typedef struct quantized_set {
    oq_map nodes,
        outputs; /* names of nodes of the float model: quantized; with a quantized output */
} quantized_set;

static oq_str float_name(const oq_node *n) {
    static const char *const marks[] = {"_quant", "_Q2", "_Q4", "_Q8"};
    const bool own = oq_op_traits_of(n->op_type)->form != OQ_FORM_FLOAT;
    oq_str name = n->name;
    for (size_t i = 0; own && i < OQ_COUNT(marks) && !oq_str_cut_end(&name, marks[i]); i++)
        continue;
    return name;
}

/* An operator that computes with integers, or has its weight in them, in place of a float one. */
static bool is_quantized_form(const oq_op_traits *t) {
    return t->form == OQ_FORM_QLINEAR || (t->form != OQ_FORM_FLOAT && t->stands_for != NULL);
}

/* Calls `fn` for the nodes of a graph and of the bodies in it, with the index of their graph. */
typedef onq_code (*node_fn)(void *ctx, const oq_index *ix, const oq_node *n, onq_error *err);

static onq_code each_node(oq_graph *g, const oq_index *parent, oq_arena *a, node_fn fn, void *ctx,
                          onq_error *err) {
    oq_index *ix = OQ_NEW(a, oq_index);
    OQ_TRY_ALLOC(ix != NULL, err);
    OQ_TRY(oq_index_build(ix, a, g, parent, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_graph_cursor at = {0};
        OQ_TRY(fn(ctx, ix, g->node.v[i], err));
        for (oq_graph *body; (body = oq_node_next_graph(g->node.v[i], &at)) != NULL;)
            OQ_TRY(each_node(body, ix, a, fn, ctx, err));
    }
    return ONQ_OK;
}

static onq_code note_quantized(void *ctx, const oq_index *ix, const oq_node *n, onq_error *err) {
    quantized_set *out = ctx;
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    const bool integer = t->form == OQ_FORM_QLINEAR;
    const oq_str name = float_name(n);
    if (name.n == 0 || (!is_quantized_form(t) && !oq_debug_is_quantized(ix, n)))
        return ONQ_OK;
    if (!oq_map_put(&out->nodes, name, 0) ||
        ((integer || oq_node_feeds_quantize(ix, n)) && !oq_map_put(&out->outputs, name, 0)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code find_quantized(oq_graph *g, oq_arena *a, quantized_set *out, onq_error *err) {
    oq_map_init(&out->nodes, a);
    oq_map_init(&out->outputs, a);
    return each_node(g, NULL, a, note_quantized, out, err);
}

/* ---- what is left float ---- */

typedef OQ_VEC(oq_str) names;

static onq_code add_names(oq_diagnosing *g, oq_recipe *r, const char *option, const names *v,
                          onq_error *err) {
    const char *text = v->n > 0 ? oq_again_list(g->job, v->v, v->n) : "";
    if (text == NULL)
        return oq_fail_nomem(err);
    return v->n > 0 ? oq_recipe_add(r, &g->job->arena, option, text, err) : ONQ_OK;
}

/* Nodes and outputs that the options so far quantize and the model leaves float. */
typedef struct left_float {
    oq_arena *a;
    quantized_set given, again;
    names nodes, outputs;
} left_float;

static onq_code note_left(void *ctx, const oq_index *ix, const oq_node *n, onq_error *err) {
    left_float *l = ctx;
    const oq_str name = float_name(n);
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    const oq_str op = t->stands_for != NULL ? oq_str_of(t->stands_for) : n->op_type;
    (void)ix;
    if (name.n == 0 || !oq_map_has(&l->again.nodes, name))
        return ONQ_OK;
    if (!oq_map_has(&l->given.nodes, name))
        return OQ_PUSH(l->a, &l->nodes, name) ? ONQ_OK : oq_fail_nomem(err);
    if (oq_map_has(&l->again.outputs, name) && !oq_map_has(&l->given.outputs, name) &&
        !oq_str_among(op, l->outputs.v, l->outputs.n) && !OQ_PUSH(l->a, &l->outputs, op))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_narrow(oq_diagnosing *g, const oq_remade *first, bool *changed, onq_error *err) {
    left_float l = {.a = &g->job->arena};
    oq_model *m = NULL;
    const oq_open_options how = {.data_root = oq_opt_str(g->job->opts, "data_root")};
    OQ_TRY(oq_model_open(g->job->env, first->path, &how, &m, err));
    onq_code rc = find_quantized(g->d->quantized->proto->graph, l.a, &l.given, err);
    if (rc == ONQ_OK)
        rc = find_quantized(m->proto->graph, l.a, &l.again, err);
    if (rc == ONQ_OK)
        rc = each_node(m->proto->graph, NULL, l.a, note_left, &l, err);
    if (rc == ONQ_OK)
        rc = add_names(g, &g->base.recipe, "nodes_to_exclude", &l.nodes, err);
    if (rc == ONQ_OK)
        rc = add_names(g, &g->base.recipe, "op_types_to_exclude_output_quantization", &l.outputs,
                       err);
    oq_model_free(m);
    *changed = l.nodes.n + l.outputs.n > 0;
    return rc;
}
