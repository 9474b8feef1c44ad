/*
 * remedy_floats.c — remedies that leave nodes float.
 */
#include "api/causes/remedy_rows.h"

#include "onnx/operators.h"

#define MAX_FRONT 12   /* nodes between an input and the products */
#define COARSE    30.0 /* dB: an input with less needs more than 8 bits */

typedef OQ_VEC(oq_str) names;

/* ---- nodes that are left float ---- */

static onq_code exclude(oq_diagnosing *g, oq_again *how, const names *nodes, const char *option,
                        bool *applies, onq_error *err) {
    oq_arena *a = &g->job->arena;
    *applies = nodes->n > 0;
    if (!*applies)
        return ONQ_OK;
    const char *text = oq_again_list(g->job, nodes->v, nodes->n);
    if (text == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_recipe_add(&how->recipe, a, option, text, err));
    return oq_recipe_add(&how->recipe, a, "keep_excluded_float", NULL, err);
}

/* Leaves the results of operators float. */
static onq_code add_types(oq_diagnosing *g, oq_again *how, const names *types, onq_error *err) {
    const char *text = types->n > 0 ? oq_again_list(g->job, types->v, types->n) : "";
    OQ_TRY_ALLOC(text != NULL, err);
    if (types->n == 0)
        return ONQ_OK;
    return oq_recipe_add(&how->recipe, &g->job->arena, "op_types_to_exclude_output_quantization",
                         text, err);
}

/* Nodes of the float model that read a tensor. */
static onq_code add_readers(const oq_diagnosing *g, oq_str tensor, names *out, onq_error *err) {
    const oq_index *ix = &g->d->float_index;
    const oq_value *v = oq_index_find(ix, tensor);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        const oq_node *n = ix->graph->node.v[v->uses.v[i].node];
        if (n->name.n > 0 && !OQ_PUSH(&g->job->arena, out, n->name))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Readers of a tensor that are no products. */
static onq_code add_front(const oq_diagnosing *g, oq_str tensor, names *out, onq_error *err) {
    const oq_index *ix = &g->d->float_index;
    const oq_value *v = oq_index_find(ix, tensor);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        const oq_node *n = ix->graph->node.v[v->uses.v[i].node];
        if (n->name.n > 0 && oq_op_traits_of(n->op_type)->product == OQ_NO_PRODUCT &&
            !oq_str_among(n->name, out->v, out->n) && !OQ_PUSH(&g->job->arena, out, n->name))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* Nodes that read an input, and those after them up to the products. */
onq_code oq_remedy_leave_inputs(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                onq_error *err) {
    const oq_index *ix = &g->d->float_index;
    names v = {0};
    (void)input;
    for (size_t i = 0; i < g->d->acts.n; i++)
        if (oq_str_is(g->d->acts.v[i].op, "input") && g->d->acts.v[i].flt.p != NULL)
            OQ_TRY(add_readers(g, g->d->acts.v[i].flt, &v, err));
    for (size_t i = 0; i < ix->graph->node.n && v.n < MAX_FRONT; i++) {
        const oq_node *n = ix->graph->node.v[i];
        if (oq_str_among(n->name, v.v, v.n) && n->output.n > 0 &&
            oq_op_traits_of(n->op_type)->product == OQ_NO_PRODUCT)
            OQ_TRY(add_front(g, n->output.v[0], &v, err));
    }
    return exclude(g, how, &v, "nodes_to_exclude", applies, err);
}

static const oq_debug_act *worst_input(const oq_diagnosing *g) {
    const oq_debug_act *worst = NULL;
    for (size_t i = 0; i < g->d->acts.n; i++) {
        const oq_debug_act *a = &g->d->acts.v[i];
        if (oq_str_is(a->op, "input") && (worst == NULL || a->verdict.own < worst->verdict.own))
            worst = a;
    }
    return worst;
}

uint32_t oq_remedy_say_inputs(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *worst = worst_input(g);
    const oq_dtype_info *type = worst != NULL ? oq_dtype_find(worst->type) : NULL;
    const unsigned bits = type != NULL ? type->bits : 8;
    (void)t;
    if (worst == NULL || !(worst->verdict.own < COARSE)) {
        oq_buf_addf(out, "%u bits are too few for what the first nodes make of the input", bits);
        if (worst != NULL) {
            oq_buf_adds(out, " ");
            oq_remedy_name(out, worst->name);
        }
        oq_buf_adds(out, ".");
        return oq_remedy_act_row(g, worst);
    }
    oq_buf_adds(out, "The input ");
    oq_remedy_name(out, worst->name);
    oq_buf_addf(out, " has values between %.5g and %.5g, which %u bits cannot hold: its SQNR is ",
                (double)worst->lo, (double)worst->hi, bits);
    oq_remedy_db(out, worst->verdict.own);
    oq_buf_adds(out, ".");
    return oq_remedy_act_row(g, worst);
}

bool oq_remedy_has_amplifiers(const oq_diagnosing *g) {
    return g->amplifiers.n > 0;
}

/* How a node lies before an amplifier: only nodes that are no products between, or some. */
typedef enum nearness { NOT_BEFORE, FAR_BEFORE, JUST_BEFORE } nearness;

/* Marks the nodes that a node depends on. */
static void mark_before(const oq_index *ix, uint32_t node, nearness how, nearness *marks) {
    const oq_node *n = ix->graph->node.v[node];
    for (size_t k = 0; k < n->input.n; k++) {
        const oq_value *v = n->input.v[k].n > 0 ? oq_index_find(ix, n->input.v[k]) : NULL;
        if (v != NULL && v->producer != OQ_NO_NODE && marks[v->producer] < how)
            marks[v->producer] = how;
    }
}

/* Of every node; NULL when out of memory. Nodes are in the order of the graph. */
static nearness *mark_all(const oq_diagnosing *g, uint32_t from) {
    const oq_index *ix = &g->d->float_index;
    nearness *marks = OQ_NEW_ARRAY(&g->job->arena, nearness, ix->graph->node.n + 1);
    if (marks == NULL)
        return NULL;
    memset(marks, 0, ix->graph->node.n * sizeof *marks); /* NOT_BEFORE */
    marks[from] = JUST_BEFORE;
    for (uint32_t i = from + 1; i-- > 0;) {
        const bool ends =
            i != from && oq_op_traits_of(ix->graph->node.v[i]->op_type)->product != OQ_NO_PRODUCT;
        if (marks[i] != NOT_BEFORE)
            mark_before(ix, i, ends ? FAR_BEFORE : marks[i], marks);
    }
    return marks;
}

/* Which of the nodes before an amplifier stay float. */
typedef enum leaving {
    LEAVE_NEAR,    /* as far as the products that make what it reads */
    LEAVE_RESULTS, /* all but the products before those, of which the results are float */
    LEAVE_ALL
} leaving;

static onq_code leave_before(oq_diagnosing *g, oq_again *how, leaving what, bool *applies,
                             onq_error *err) {
    const oq_index *ix = &g->d->float_index;
    oq_arena *a = &g->job->arena;
    names v = {0}, types = {0};
    *applies = oq_remedy_has_amplifiers(g);
    if (!*applies)
        return ONQ_OK;
    const uint32_t from = g->amplifiers.v[0].node;
    const nearness *marks = mark_all(g, from);
    OQ_TRY_ALLOC(marks != NULL, err);
    for (size_t i = from + 1; i-- > 0;) {
        const oq_node *n = ix->graph->node.v[i];
        const bool product = oq_op_traits_of(n->op_type)->product != OQ_NO_PRODUCT;
        if (marks[i] == NOT_BEFORE || (marks[i] == FAR_BEFORE && what == LEAVE_NEAR))
            continue;
        const bool only_result = marks[i] == FAR_BEFORE && product && what == LEAVE_RESULTS;
        if (only_result && !oq_str_among(n->op_type, types.v, types.n))
            OQ_TRY_ALLOC(OQ_PUSH(a, &types, n->op_type), err);
        else if (!only_result && n->name.n > 0)
            OQ_TRY_ALLOC(OQ_PUSH(a, &v, n->name), err);
    }
    /* What reads the result with a quantizer of its own keeps it float too. */
    for (size_t k = 0; k < ix->graph->node.v[from]->output.n; k++)
        OQ_TRY(add_readers(g, ix->graph->node.v[from]->output.v[k], &v, err));
    OQ_TRY(exclude(g, how, &v, "nodes_to_exclude", applies, err));
    if (what != LEAVE_RESULTS)
        return ONQ_OK;
    *applies &= types.n > 0;
    return add_types(g, how, &types, err);
}

onq_code oq_remedy_leave_amplifier(oq_diagnosing *g, oq_again *how, const char **input,
                                   bool *applies, onq_error *err) {
    (void)input;
    return leave_before(g, how, LEAVE_NEAR, applies, err);
}

onq_code oq_remedy_leave_results(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
    (void)input;
    return leave_before(g, how, LEAVE_RESULTS, applies, err);
}

onq_code oq_remedy_leave_all_before(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err) {
    (void)input;
    return leave_before(g, how, LEAVE_ALL, applies, err);
}

/* The quantized tensor that the node reads and that loses most. */
static const oq_debug_act *act_into(const oq_diagnosing *g, const oq_node *n) {
    const oq_debug_act *worst = NULL;
    for (size_t i = 0; i < g->d->acts.n; i++) {
        const oq_debug_act *a = &g->d->acts.v[i];
        for (size_t k = 0; k < n->input.n && a->flt.p != NULL; k++)
            if (oq_str_eq(n->input.v[k], a->flt) &&
                (worst == NULL || a->verdict.own < worst->verdict.own))
                worst = a;
    }
    return worst;
}

uint32_t oq_remedy_say_amplified(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_amplifier *x = &g->amplifiers.v[0];
    const oq_node *n = g->d->float_index.graph->node.v[x->node];
    const char *results = oq_recipe_get(&t->how.recipe, "op_types_to_exclude_output_quantization");
    oq_buf_addf(out, "%.*s ", OQ_STR(n->op_type));
    oq_remedy_name(out, oq_node_label(n));
    oq_buf_adds(out, " amplifies the error that reaches it: the SQNR is ");
    oq_remedy_db(out, x->before);
    oq_buf_adds(out, " before it and ");
    oq_remedy_db(out, x->after);
    oq_buf_adds(out, " after it. The nodes before it must stay float");
    if (results != NULL)
        oq_buf_addf(out, ", and so must the results of %s", results);
    oq_buf_addc(out, '.');
    return oq_remedy_act_row(g, act_into(g, n));
}

/* Operators that compute without being products, as far as they are quantized. */
onq_code oq_remedy_leave_arithmetic(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err) {
    names v = {0};
    (void)input;
    for (size_t i = 0; i < g->d->acts.n; i++) {
        const oq_debug_act *a = &g->d->acts.v[i];
        const oq_op_traits *t = oq_op_traits_of(a->op);
        bool known = false;
        for (size_t k = 0; k < v.n; k++)
            known |= oq_str_eq(v.v[k], a->op);
        if (known || t->product != OQ_NO_PRODUCT || t->form != OQ_FORM_FLOAT || t->clips ||
            t->repeats != OQ_REPEATS_NOTHING || oq_str_is(a->op, "input"))
            continue;
        if (!OQ_PUSH(&g->job->arena, &v, a->op))
            return oq_fail_nomem(err);
    }
    return exclude(g, how, &v, "op_types_to_exclude", applies, err);
}

uint32_t oq_remedy_say_arithmetic(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const char *types = oq_recipe_get(&t->how.recipe, "op_types_to_exclude");
    (void)g;
    oq_buf_adds(out, "8 bits are too few for the results of ");
    oq_buf_adds(out, types != NULL ? types : "operators between the products");
    oq_buf_adds(out, ", which join or scale tensors of different sizes.");
    return OQ_NO_ROW;
}

uint32_t oq_remedy_say_outputs(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)g, (void)t;
    oq_buf_adds(out, "8 bits are too few for the outputs of MatMul and Gemm and for the arithmetic "
                     "between them; only their inputs and weights should be integers.");
    return OQ_NO_ROW;
}
