/*
 * extreme.c — see extreme.h.
 */
#include "quantize/choose/extreme.h"

#include "quantize/choose/act_param.h"

/* The other values fall into so few steps. */
#define FEW_STEPS 4.0f
/* Between two neighbouring inputs of a Softmax: e^16, all or nothing. */
#define SOFTMAX_STEP 16.0f

static bool feeds_softmax(const oq_graph *g, const oq_value *v) {
    for (size_t i = 0; i < v->uses.n; i++) {
        const oq_str type = g->node.v[v->uses.v[i].node]->op_type;
        if (oq_str_is(type, "Softmax") || oq_str_is(type, "LogSoftmax"))
            return true;
    }
    return false;
}

static bool is_extreme(const oq_extreme *x) {
    if (fabsf(x->lowest) >= OQ_EXTREME_VAST || fabsf(x->highest) >= OQ_EXTREME_VAST)
        return true;
    if (x->feeds_softmax && x->step >= SOFTMAX_STEP)
        return true;
    return x->seen <= OQ_EXTREME_MASK && fabsf(x->highest) < FEW_STEPS * x->step;
}

/* Range and step of the tensor; false if it has none, or the user has set them. */
static bool measure(oq_extreme *x, const oq_range *r, const oq_qconfig *config,
                    const oq_override *o) {
    const oq_dtype type = o != NULL && o->has_type ? o->type : config->activation_type;
    double lo = 0, hi = 0;
    oq_qparam p;
    if (oq_act_is_given(o) || oq_act_is_infinite(r, o) || !oq_range_pair(r, &lo, &hi) ||
        oq_act_param(config, r, o, type, OQ_FLOAT, &p, NULL) != ONQ_OK)
        return false;
    x->lowest = (float)lo;
    x->highest = (float)hi;
    x->step = p.scale;
    /* Edges of a histogram reach over all values, also where the range does not. */
    x->seen = r->bins.type != OQ_INT64 && r->bins.n > 0 ? fminf(x->lowest, (float)r->bins.v[0])
                                                        : x->lowest;
    return true;
}

static onq_code add_nodes(oq_extremes *e, oq_extreme *x, const oq_graph *g, const oq_value *v,
                          onq_error *err) {
    if (v->producer != OQ_NO_NODE && !OQ_PUSH(e->arena, &x->nodes, g->node.v[v->producer]->name))
        return oq_fail_nomem(err);
    for (size_t i = 0; i < v->uses.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(e->arena, &x->nodes, g->node.v[v->uses.v[i].node]->name), err);
    return ONQ_OK;
}

onq_code oq_extremes_find(oq_extremes *e, oq_graph *g, const oq_ranges *ranges,
                          const oq_qconfig *config, const oq_overrides *overrides, onq_error *err) {
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, e->arena, g, NULL, err));
    for (size_t i = 0; i < ix.values.n; i++) {
        const oq_value *v = &ix.values.v[i];
        const oq_range *r = oq_ranges_find(ranges, v->name);
        oq_extreme x = {.name = v->name, .feeds_softmax = feeds_softmax(g, v)};
        if (r == NULL || v->init != NULL ||
            !measure(&x, r, config, oq_overrides_tensor(overrides, v->name)) || !is_extreme(&x))
            continue;
        x.pure = x.highest == 0.0f && x.lowest > -OQ_EXTREME_VAST && !x.feeds_softmax;
        OQ_TRY(add_nodes(e, &x, g, v, err));
        OQ_TRY_ALLOC(OQ_PUSH(e->arena, &e->all, x), err);
    }
    return ONQ_OK;
}

/* Names of the nodes that were quantized, as --nodes_to_exclude takes them. */
static void add_name(oq_buf *out, oq_str name) {
    if (out->n > 0)
        oq_buf_addc(out, ',');
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] == ',')
            oq_buf_addc(out, '\\');
        oq_buf_addc(out, name.p[i]);
    }
}

/* The names of `x` that are in `quantized`, each once; false if there are none. */
static bool list_nodes(const oq_extreme *x, const oq_map *quantized, oq_map *listed, oq_buf *out) {
    bool any = false;
    for (size_t i = 0; i < x->nodes.n; i++) {
        const oq_str name = x->nodes.v[i];
        if (!oq_map_has(quantized, name))
            continue;
        any = true;
        if (name.n == 0 || oq_map_has(listed, name))
            continue;
        if (!oq_map_put(listed, name, 0))
            out->failed = true;
        add_name(out, name);
    }
    return any;
}

/* How good an example it is: what a Softmax reads, then values of both kinds, then a mask alone. */
static int worth(const oq_extreme *x) {
    if (x == NULL)
        return -1;
    return x->feeds_softmax ? 2 : x->lowest < x->highest && x->highest != 0.0f;
}

onq_code oq_extremes_warn(const oq_extremes *e, const oq_plan *plan, const onq_env *env,
                          onq_error *err) {
    oq_map quantized, listed;
    const oq_extreme *example = NULL;
    size_t n = 0;
    oq_map_init(&quantized, e->arena);
    oq_map_init(&listed, e->arena);
    OQ_SCRATCH_BUF(names, &env->alloc);
    for (size_t i = 0; i < plan->nodes.n && !names.failed; i++)
        names.failed = plan->nodes.v[i].fate == OQ_FATE_QUANTIZED &&
                       !oq_map_put(&quantized, plan->nodes.v[i].name, 0);
    for (size_t i = 0; i < e->all.n; i++)
        if (list_nodes(&e->all.v[i], &quantized, &listed, &names)) {
            if (example == NULL || worth(&e->all.v[i]) > worth(example))
                example = &e->all.v[i];
            n++;
        }
    if (example != NULL && !names.failed)
        oq_warn(
            env,
            "%zu tensor%s so wide a range that most values are lost, as an attention mask makes "
            "it ('%.*s': %g to %g in steps of %g); --masks float leaves the nodes around float, "
            "and "
            "so does %s%.*s",
            n, n == 1 ? " has" : "s have", OQ_STR(example->name), (double)example->lowest,
            (double)example->highest, (double)example->step,
            names.n > 0 ? "--nodes_to_exclude "
                        : "leaving their types out of --op_types_to_quantize",
            (int)names.n, names.n > 0 ? names.p : "");
    return names.failed ? oq_fail_nomem(err) : ONQ_OK;
}
