/*
 * remedies.c — see remedies.h.
 */
#include "api/debug/remedies.h"

#include "api/debug/faults.h"
#include "debug/search/search.h"
#include "onnx/operators.h"

#include <math.h>
#include <stdlib.h>

#define MAX_FRONT 12   /* nodes between an input and the products */
#define COARSE    30.0 /* dB: an input with less needs more than 8 bits */

typedef OQ_VEC(oq_str) names;

static void say_db(oq_buf *out, double v) {
    if (isinf(v))
        oq_buf_adds(out, v > 0 ? "no loss" : "NaN or infinity");
    else
        oq_buf_addf(out, "%.1f dB", v);
}

static void say_name(oq_buf *out, oq_str name) {
    oq_buf_addc(out, '\'');
    oq_buf_add_safe(out, name.n > 60 ? (oq_str){name.p + name.n - 60, 60} : name);
    oq_buf_addc(out, '\'');
}

static uint32_t weight_row(const oq_diagnosing *g, const oq_debug_weight *w) {
    return w != NULL ? (uint32_t)(w - g->d->weights.v) : OQ_NO_ROW;
}

static uint32_t act_row(const oq_diagnosing *g, const oq_debug_act *a) {
    return a != NULL ? (uint32_t)(g->d->weights.n + (size_t)(a - g->d->acts.v)) : OQ_NO_ROW;
}

static bool has_option(const oq_recipe *r, const oq_recipe_option *o) {
    const char *value = oq_recipe_get(r, o->name);
    return value != NULL && (o->value == NULL || strcmp(value, o->value) == 0);
}

static const oq_recipe_option each_channel = {"per_channel", NULL};

/* ---- the float model is not prepared ---- */

typedef struct unprepared {
    size_t products, constants, norms;
} unprepared;

/* Of the float model; constants count that the quantized model still has. */
static unprepared look_at(const oq_debug *d) {
    const oq_index *ix = &d->float_index;
    unprepared u = {0};
    for (size_t i = 0; i < ix->graph->node.n; i++) {
        const oq_node *n = ix->graph->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        const int slot = oq_op_slot(t->weight);
        if (t->product == OQ_NO_PRODUCT || slot < 0)
            continue;
        u.products++;
        const oq_str weight = oq_node_input(n, (size_t)slot);
        u.constants += oq_node_is_constant(oq_index_producer(ix, weight)) &&
                       oq_node_is_constant(oq_index_producer(&d->quantized_index, weight));
        const oq_value *out = n->output.n > 0 ? oq_index_find(ix, n->output.v[0]) : NULL;
        u.norms += out != NULL && out->uses.n == 1 &&
                   oq_node_is(ix->graph->node.v[out->uses.v[0].node], "BatchNormalization");
    }
    return u;
}

bool oq_remedy_has_constants(const oq_diagnosing *g) {
    return look_at(g->d).constants > 0 && g->base.prepare.command == NULL;
}

static onq_code prepare_float(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                              onq_error *err) {
    const unprepared u = look_at(g->d);
    const char *path = NULL;
    *applies = how->prepare.command == NULL && u.constants + u.norms > 0;
    if (!*applies)
        return ONQ_OK;
    how->prepare = (oq_recipe){.command = "preprocess", .prepares = true};
    OQ_TRY(oq_remake_float(&g->maker, &how->prepare, &path, err));
    *applies = path != NULL;
    *input = path;
    /* Where no weight was quantized, the model does not show whether channels had scales. */
    if (*applies && u.constants == u.products && !has_option(&how->recipe, &each_channel))
        return oq_recipe_add(&how->recipe, &g->job->arena, each_channel.name, NULL, err);
    return ONQ_OK;
}

static uint32_t say_prepare(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const unprepared u = look_at(g->d);
    (void)t;
    oq_buf_adds(out, "The float model was not prepared: ");
    if (u.constants > 0)
        oq_buf_addf(out,
                    "the weights of %zu of %zu products are in Constant nodes and stay as large "
                    "and as slow as in float",
                    u.constants, u.products);
    if (u.norms > 0)
        oq_buf_addf(out, "%s%zu BatchNormalization node%s not folded into the weights",
                    u.constants > 0 ? ", and " : "", u.norms, u.norms == 1 ? " is" : "s are");
    oq_buf_adds(out, ".");
    return OQ_NO_ROW;
}

/* ---- weights ---- */

static onq_code has_tensor_weights(oq_diagnosing *g, oq_again *how, const char **input,
                                   bool *applies, onq_error *err) {
    (void)input, (void)err;
    *applies = false;
    for (size_t i = 0; i < g->d->weights.n; i++) {
        const oq_debug_weight *w = &g->d->weights.v[i];
        *applies |= w->axis < 0 && oq_again_has_channels(w);
    }
    *applies &= oq_recipe_get(&how->recipe, "per_channel") == NULL;
    return ONQ_OK;
}

/* A channel that stretches the range of the others. */
static bool has_outlier_channels(const oq_diagnosing *g) {
    for (size_t i = 0; i < g->d->weights.n; i++)
        if (g->d->weights.v[i].verdict.reason == OQ_DEBUG_CHANNEL)
            return true;
    return false;
}

static uint32_t say_per_channel(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_weight *worst = NULL;
    size_t n = 0;
    (void)t;
    for (size_t i = 0; i < g->d->weights.n; i++) {
        const oq_debug_weight *w = &g->d->weights.v[i];
        if (w->axis >= 0 || !oq_again_has_channels(w))
            continue;
        n++;
        if (worst == NULL || w->verdict.own - w->spread < worst->verdict.own - worst->spread)
            worst = w;
    }
    oq_buf_addf(out, "%zu weight%s one scale for all channels", n, n == 1 ? " has" : "s have");
    if (worst != NULL) {
        oq_buf_adds(out, ", and small channels lose most: those of ");
        say_name(out, worst->name);
        oq_buf_adds(out, " have an SQNR of ");
        say_db(out, worst->verdict.own - worst->spread);
        oq_buf_adds(out, " on average");
    }
    oq_buf_adds(out, ".");
    return weight_row(g, worst);
}

/* ---- ranges of activations ---- */

static const oq_debug_act *worst_act(const oq_diagnosing *g, unsigned reasons) {
    const oq_debug_act *worst = NULL;
    for (size_t i = 0; i < g->d->acts.n; i++) {
        const oq_debug_act *a = &g->d->acts.v[i];
        if ((reasons & 1u << a->verdict.reason) != 0 &&
            (worst == NULL || a->verdict.rank < worst->verdict.rank))
            worst = a;
    }
    return worst;
}

static onq_code has_mask(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                         onq_error *err) {
    (void)how, (void)input, (void)err;
    *applies = worst_act(g, 1u << OQ_DEBUG_MASK) != NULL;
    return ONQ_OK;
}

/* `prepare` asks already: the remedy makes no sense where nothing shows that it is needed. */
static bool is_asked(const oq_diagnosing *g) {
    (void)g;
    return true;
}

static uint32_t say_mask(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, 1u << OQ_DEBUG_MASK);
    (void)t;
    oq_buf_adds(out, "A mask stretches the range of ");
    say_name(out, a->name);
    oq_buf_addf(out, " to %.3g; the other values lie between %.3g and %.3g and share few steps.",
                a->q_lo, (double)a->lo, (double)a->hi);
    return act_row(g, a);
}

static onq_code is_symmetric(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                             onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = oq_recipe_get(&how->recipe, "activation_symmetric") != NULL;
    return ONQ_OK;
}

static uint32_t say_symmetric(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, 1u << OQ_DEBUG_SKEWED);
    (void)t;
    oq_buf_adds(out, "The ranges of activations are symmetric about zero, but the values are not");
    if (a != NULL) {
        oq_buf_adds(out, ": half of the range of ");
        say_name(out, a->name);
        oq_buf_adds(out, " is not used");
    }
    oq_buf_adds(out, ".");
    return act_row(g, a);
}

#define STRETCHED (1u << OQ_DEBUG_WIDE | 1u << OQ_DEBUG_OUTLIERS)

static uint32_t say_ranges(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, STRETCHED);
    (void)t;
    oq_buf_adds(out, "A few large values stretch the ranges of activations");
    if (a != NULL && a->local.n > 0) {
        oq_buf_adds(out, ": ");
        say_name(out, a->name);
        oq_buf_addf(out,
                    " has the range %.3g to %.3g, and its values have a root mean square of %.3g",
                    a->q_lo, a->q_hi, sqrt(a->local.xx / (double)a->local.n));
    }
    oq_buf_adds(out, ".");
    return act_row(g, a);
}

static bool has_stretched(const oq_diagnosing *g) {
    return worst_act(g, STRETCHED) != NULL;
}

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
static onq_code leave_inputs(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
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

static uint32_t say_inputs(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *worst = worst_input(g);
    (void)t;
    oq_buf_adds(out, "The input ");
    if (worst != NULL) {
        say_name(out, worst->name);
        oq_buf_addf(out, " has values between %.5g and %.5g, which ", (double)worst->lo,
                    (double)worst->hi);
    }
    oq_buf_adds(out, "8 bits cannot hold");
    if (worst != NULL && worst->verdict.own < COARSE) {
        oq_buf_adds(out, ": its SQNR is ");
        say_db(out, worst->verdict.own);
    }
    oq_buf_adds(out, ".");
    return act_row(g, worst);
}

static bool has_amplifiers(const oq_diagnosing *g) {
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
    *applies = has_amplifiers(g);
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

static onq_code leave_amplifier(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                onq_error *err) {
    (void)input;
    return leave_before(g, how, LEAVE_NEAR, applies, err);
}

static onq_code leave_results(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                              onq_error *err) {
    (void)input;
    return leave_before(g, how, LEAVE_RESULTS, applies, err);
}

static onq_code leave_all_before(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
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

static uint32_t say_amplified(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_amplifier *x = &g->amplifiers.v[0];
    const oq_node *n = g->d->float_index.graph->node.v[x->node];
    const char *results = oq_recipe_get(&t->how.recipe, "op_types_to_exclude_output_quantization");
    oq_buf_addf(out, "%.*s ", OQ_STR(n->op_type));
    say_name(out, oq_node_label(n));
    oq_buf_adds(out, " amplifies the error that reaches it: the SQNR is ");
    say_db(out, x->before);
    oq_buf_adds(out, " before it and ");
    say_db(out, x->after);
    oq_buf_adds(out, " after it. The nodes before it must stay float");
    if (results != NULL)
        oq_buf_addf(out, ", and so must the results of %s", results);
    oq_buf_addc(out, '.');
    return act_row(g, act_into(g, n));
}

/* Operators that compute without being products, as far as they are quantized. */
static onq_code leave_arithmetic(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
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

static uint32_t say_arithmetic(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const char *types = oq_recipe_get(&t->how.recipe, "op_types_to_exclude");
    (void)g;
    oq_buf_adds(out, "8 bits are too few for the results of ");
    oq_buf_adds(out, types != NULL ? types : "operators between the products");
    oq_buf_adds(out, ", which join or scale tensors of different sizes.");
    return OQ_NO_ROW;
}

static uint32_t say_outputs(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)g, (void)t;
    oq_buf_adds(out, "8 bits are too few for the outputs of MatMul and Gemm and for the arithmetic "
                     "between them; only their inputs and weights should be integers.");
    return OQ_NO_ROW;
}

/* ---- channels ---- */

static bool has_uneven(const oq_diagnosing *g) {
    return worst_act(g, STRETCHED | 1u << OQ_DEBUG_FEW_BITS) != NULL;
}

static uint32_t say_channels(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, STRETCHED | 1u << OQ_DEBUG_FEW_BITS);
    (void)t;
    oq_buf_adds(out, "The channels of activations differ much in size, and share one range");
    if (a != NULL) {
        oq_buf_adds(out, ": worst in ");
        say_name(out, a->name);
    }
    oq_buf_adds(out, ".");
    return act_row(g, a);
}

static uint32_t say_shifted(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)g, (void)t;
    oq_buf_adds(out, "Rounding shifts the means of what products compute, and the shifts add up; "
                     "biases that are corrected take them back.");
    return OQ_NO_ROW;
}

/* ---- what only the runtime does ---- */

static onq_code saturates(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                          onq_error *err) {
    (void)how, (void)input, (void)err;
    *applies = oq_debug_kernel_loss(g->d) != NULL;
    return ONQ_OK;
}

static void say_gap(const oq_diagnosing *g, oq_buf *out) {
    const oq_debug_output *o = oq_debug_kernel_gap(g->d);
    if (o == NULL)
        return;
    oq_buf_adds(out, ": ");
    say_db(out, oq_sums_sqnr(&o->optimised));
    oq_buf_adds(out, " in a default session and ");
    say_db(out, oq_sums_sqnr(&o->beside));
    oq_buf_adds(out, " without its optimisations");
}

static uint32_t say_saturates(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)t;
    oq_buf_adds(out, "Sums of the runtime's kernels saturate on this CPU");
    say_gap(g, out);
    oq_buf_adds(out, ".");
    return OQ_NO_ROW;
}

/* Nodes that were left float, and the runtime makes integers of them. */
static onq_code requantizes(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                            onq_error *err) {
    (void)input, (void)err;
    *applies = oq_debug_kernel_loss(g->d) == NULL && oq_debug_kernel_gap(g->d) != NULL &&
               oq_recipe_get(&how->recipe, "nodes_to_exclude") != NULL;
    return ONQ_OK;
}

static uint32_t say_requantizes(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)t;
    oq_buf_adds(out, "The runtime quantizes weights that were left float, because their neighbours "
                     "are quantized");
    say_gap(g, out);
    oq_buf_adds(out, ".");
    return OQ_NO_ROW;
}

/* ---- weights of few bits ---- */

/* True if the option would become more, or with `less` smaller, than the model has. */
static bool changes(const oq_again *how, const char *option, long to, bool less) {
    const char *now = oq_recipe_get(&how->recipe, option);
    const long v = now != NULL ? strtol(now, NULL, 10) : 0;
    return v > 0 && (less ? v > to : v < to);
}

static onq_code has_fewer_than_4(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = changes(how, "bits", 4, false);
    return ONQ_OK;
}

static onq_code has_fewer_than_8(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = changes(how, "bits", 8, false);
    return ONQ_OK;
}

static onq_code has_large_blocks(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = changes(how, "block_size", 32, true);
    return ONQ_OK;
}

/* Weights of `static` in 4 bits. */
static onq_code has_small_type(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                               onq_error *err) {
    const char *type = oq_recipe_get(&how->recipe, "weight_type");
    (void)g, (void)input, (void)err;
    *applies = type != NULL && (strcmp(type, "qint4") == 0 || strcmp(type, "quint4") == 0);
    return ONQ_OK;
}

static uint32_t say_few_bits(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_weight *worst = NULL;
    (void)t;
    for (size_t i = 0; i < g->d->weights.n; i++)
        if (worst == NULL || g->d->weights.v[i].sqnr < worst->sqnr)
            worst = &g->d->weights.v[i];
    oq_buf_adds(out, "The weights have too few bits");
    if (worst != NULL) {
        const long long bits = worst->bits > 0 ? worst->bits : oq_debug_bits(g->d);
        oq_buf_addf(out, ": %lld", bits);
        if (worst->block > 0)
            oq_buf_addf(out, " in blocks of %llu", (unsigned long long)worst->block);
        oq_buf_adds(out, " leave an SQNR of ");
        say_db(out, worst->sqnr);
        oq_buf_adds(out, " in ");
        say_name(out, worst->name);
    }
    oq_buf_adds(out, ".");
    return weight_row(g, worst);
}

/* ---- the table ---- */

#define SAME  .same_ranges = true
#define LEAVE .same_ranges = true, .leaves_float = true

const oq_remedy oq_remedies[] = {
    {"not_prepared", .commands = OQ_FOR_STATIC | OQ_FOR_DYNAMIC, .is_free = true,
     .prepare = prepare_float, .is_likely = is_asked, .say = say_prepare},
    {"saturation",
     {{"saturation_safe", NULL}},
     SAME,
     .of_runtime = true,
     .prepare = saturates,
     .say = say_saturates},
    {"requantized",
     {{"keep_excluded_float", NULL}},
     SAME,
     .of_runtime = true,
     .prepare = requantizes,
     .say = say_requantizes},
    {"per_channel",
     {{"per_channel", NULL}},
     .commands = OQ_FOR_STATIC | OQ_FOR_DYNAMIC,
     SAME,
     .is_free = true,
     .prepare = has_tensor_weights,
     .is_likely = is_asked,
     .is_sure = has_outlier_channels,
     .say = say_per_channel},
    {"few_bits", .drops = "weight_type", SAME, .prepare = has_small_type, .is_likely = is_asked,
     .is_sure = is_asked, .say = say_few_bits},
    {"mask",
     {{"masks", "float"}},
     .prepare = has_mask,
     .is_likely = is_asked,
     .is_sure = is_asked,
     .say = say_mask},
    {"symmetric", .drops = "activation_symmetric", SAME, .is_free = true, .prepare = is_symmetric,
     .is_likely = is_asked, .say = say_symmetric},
    {"stretched_ranges",
     {{"calibration_method", "mse"}},
     .is_likely = has_stretched,
     .say = say_ranges},
    {"stretched_ranges",
     {{"calibration_method", "percentile"}, {"calib_percentile", "99.99"}},
     .is_likely = has_stretched,
     .say = say_ranges},
    {"input_range", LEAVE, .is_local = true, .prepare = leave_inputs, .is_likely = is_asked,
     .say = say_inputs},
    {"amplified", LEAVE, .is_local = true, .prepare = leave_amplifier, .is_likely = has_amplifiers,
     .say = say_amplified},
    {"amplified", LEAVE, .prepare = leave_results, .is_likely = has_amplifiers,
     .say = say_amplified},
    {"amplified", LEAVE, .prepare = leave_all_before, .say = say_amplified},
    {"channels", {{"equalize", NULL}}, .is_likely = has_uneven, .say = say_channels},
    {"channels", {{"channel_ranges", "both"}}, .is_likely = has_uneven, .say = say_channels},
    {"channels", {{"outlier_channels", "8"}}, .is_likely = has_uneven, .say = say_channels},
    {"shifted_means", {{"bias_correction", NULL}}, .say = say_shifted},
    {"arithmetic", LEAVE, .prepare = leave_arithmetic, .say = say_arithmetic},
    {"outputs", {{"op_set", "noout"}}, LEAVE, .say = say_outputs},
    {"few_bits",
     {{"block_size", "32"}},
     .commands = OQ_FOR_NBITS,
     .prepare = has_large_blocks,
     .is_likely = is_asked,
     .say = say_few_bits},
    {"few_bits",
     {{"bits", "4"}},
     .commands = OQ_FOR_NBITS,
     .prepare = has_fewer_than_4,
     .is_likely = is_asked,
     .say = say_few_bits},
    {"few_bits",
     {{"bits", "8"}},
     .commands = OQ_FOR_NBITS,
     .prepare = has_fewer_than_8,
     .is_likely = is_asked,
     .say = say_few_bits},
};
const size_t oq_remedy_count = OQ_COUNT(oq_remedies);

onq_code oq_remedy_apply(oq_diagnosing *g, const oq_remedy *r, oq_again *how, const char **input,
                         bool *applies, onq_error *err) {
    *applies = true;
    if (r->prepare != NULL)
        OQ_TRY(r->prepare(g, how, input, applies, err));
    if (r->drops != NULL)
        oq_recipe_drop(&how->recipe, r->drops);
    for (size_t i = 0; *applies && i < OQ_COUNT(r->options) && r->options[i].name != NULL; i++) {
        *applies = !has_option(&how->recipe, &r->options[i]);
        oq_recipe_drop(&how->recipe, r->options[i].name);
        OQ_TRY(oq_recipe_add(&how->recipe, &g->job->arena, r->options[i].name, r->options[i].value,
                             err));
    }
    return ONQ_OK;
}

bool oq_remedy_is_for(const oq_remedy *r, const char *command) {
    const unsigned bit = strcmp(command, "dynamic") == 0 ? OQ_FOR_DYNAMIC
                         : strcmp(command, "nbits") == 0 ? OQ_FOR_NBITS
                                                         : OQ_FOR_STATIC;
    return ((r->commands != 0 ? r->commands : OQ_FOR_STATIC) & bit) != 0;
}

onq_code oq_remedy_say(const oq_diagnosing *g, const oq_try *t, oq_buf *out, uint32_t *row,
                       onq_error *err) {
    if (t->row == oq_remedy_count)
        return oq_fault_say(g, t, out, row, err);
    *row = oq_remedies[t->row].say(g, t, out);
    return ONQ_OK;
}
