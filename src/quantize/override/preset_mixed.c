/*
 * preset_mixed.c — completes overrides that give a tensor another type than its neighbours have.
 *
 * Every node around such a tensor is to have that type on all its inputs and outputs. From that
 * follows, for each tensor, what its maker writes and what some of its readers want; where the two
 * differ, a conversion is added to the tensor's override. Equal to
 * MixedPrecisionTensorQuantOverridesFixer of the reference.
 */
#include "quantize/override/preset.h"

#include "onnx/graph.h"

/* QuantTypeInfo: what is not given matches everything. */
typedef struct info {
    bool has_type;
    oq_dtype type;
    oq_tri symmetric, reduce_range;
    bool has_axis;
    int64_t axis;
} info;

/* What is wanted of a tensor. */
typedef struct request {
    oq_str name;
    bool has_maker, has_readers;
    info maker, readers;
    OQ_VEC(oq_str) names; /* of the reading nodes */
} request;

typedef struct mixing {
    const oq_preset *p;
    oq_index ix;
    oq_map map;
    OQ_VEC(request *) all;
} mixing;

static bool tri_agree(oq_tri a, oq_tri b) {
    return a == OQ_UNSET || b == OQ_UNSET || a == b;
}

static bool same(info a, info b) {
    return a.has_type == b.has_type && (!a.has_type || a.type == b.type) &&
           tri_agree(a.symmetric, b.symmetric) && tri_agree(a.reduce_range, b.reduce_range) &&
           a.has_axis == b.has_axis && (!a.has_axis || a.axis == b.axis);
}

static info plain(oq_dtype type) {
    return (info){.has_type = true, .type = type, .symmetric = OQ_UNSET, .reduce_range = OQ_UNSET};
}

static info from_override(const oq_override *o) {
    return (info){o->has_type, o->type, o->symmetric, o->reduce_range, o->has_axis, o->axis};
}

static void to_override(info i, oq_override *o) {
    o->has_type = i.has_type;
    o->type = i.type;
    if (i.symmetric != OQ_UNSET)
        o->symmetric = i.symmetric;
    if (i.reduce_range != OQ_UNSET)
        o->reduce_range = i.reduce_range;
    if (i.has_axis) {
        o->has_axis = true;
        o->axis = i.axis;
    }
}

static bool is_init(const mixing *x, oq_str name) {
    const oq_value *v = oq_index_find(&x->ix, name);
    return v != NULL && v->init != NULL;
}

static bool is_float(const mixing *x, oq_str name) {
    const oq_value *v = oq_index_find(&x->ix, name);
    return oq_preset_is_float(x->p, v != NULL ? v->init : NULL, name);
}

static request *request_of(mixing *x, oq_str name) {
    const uint32_t found = oq_map_find(&x->map, name);
    if (found != OQ_MAP_NONE)
        return x->all.v[found];
    request *r = OQ_NEW(x->p->arena, request);
    if (r == NULL || !oq_map_put(&x->map, name, (uint32_t)x->all.n) ||
        !OQ_PUSH(x->p->arena, &x->all, r))
        return NULL;
    r->name = name;
    return r;
}

/* All inputs and outputs of the node are to have this type. */
static onq_code ask_node(mixing *x, const oq_node *n, info want, onq_error *err) {
    for (size_t i = 0; i < n->output.n; i++) {
        if (n->output.v[i].n == 0 || !is_float(x, n->output.v[i]))
            continue;
        request *r = request_of(x, n->output.v[i]);
        OQ_TRY_ALLOC(r != NULL, err);
        if (r->has_maker && !same(r->maker, want))
            return oq_fail(err, ONQ_E_CONFIG, "overrides give tensor '%.*s' several types",
                           OQ_STR(r->name));
        r->has_maker = true;
        r->maker = want;
    }
    for (size_t i = 0; i < n->input.n; i++) {
        const oq_str name = n->input.v[i];
        if (name.n == 0 || is_init(x, name) || !is_float(x, name))
            continue;
        request *r = request_of(x, name);
        OQ_TRY_ALLOC(r != NULL, err);
        if (r->has_readers && !same(r->readers, want))
            return oq_fail(err, ONQ_E_CONFIG,
                           "overrides give the readers of tensor '%.*s' several types",
                           OQ_STR(name));
        if (n->name.n == 0)
            return oq_fail(
                err, ONQ_E_UNSUPPORTED,
                "a node of type %.*s that reads '%.*s' has no name, and conversions go by names",
                OQ_STR(n->op_type), OQ_STR(name));
        if (!r->has_readers)
            r->readers = want;
        r->has_readers = true;
        if (!oq_str_among(n->name, r->names.v, r->names.n) &&
            !OQ_PUSH(x->p->arena, &r->names, n->name))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code ask_all(mixing *x, onq_error *err) {
    const oq_qconfig *c = x->p->config;
    info usual = plain(c->activation_type);
    usual.symmetric = c->activation_symmetric ? OQ_YES : OQ_NO;
    for (size_t i = 0; i < x->p->overrides->all.n; i++) {
        const oq_tensor_override *t = x->p->overrides->all.v[i];
        if (is_init(x, t->name) || !is_float(x, t->name) || t->channels.n > 1)
            continue;
        info want = from_override(&t->channels.v[0]);
        if (!want.has_type) {
            want.has_type = true;
            want.type = c->activation_type;
        }
        if (same(want, usual) || t->channels.v[0].convert != NULL)
            continue;
        const oq_value *v = oq_index_find(&x->ix, t->name);
        if (v == NULL)
            continue;
        if (v->producer != OQ_NO_NODE)
            OQ_TRY(ask_node(x, x->ix.graph->node.v[v->producer], want, err));
        for (size_t k = 0; k < v->uses.n; k++)
            if (v->uses.v[k].slot != OQ_SLOT_INNER)
                OQ_TRY(ask_node(x, x->ix.graph->node.v[v->uses.v[k].node], want, err));
    }
    return ONQ_OK;
}

/* The tensor is made with one type and read with another by these nodes. */
static onq_code convert(mixing *x, oq_str tensor, info maker, info reader, const oq_str *names,
                        size_t n, onq_error *err) {
    oq_overrides *all = x->p->overrides;
    const bool is_new = oq_overrides_find(all, tensor) == NULL;
    oq_tensor_override *t = oq_overrides_add(all, tensor);
    OQ_TRY_ALLOC(t != NULL, err);
    oq_override *o = &t->channels.v[0];
    if (is_new)
        to_override(maker, o);
    if (!same(maker, from_override(o)))
        return oq_fail(err, ONQ_E_CONFIG,
                       "tensor '%.*s' is needed with another type than its override gives it",
                       OQ_STR(tensor));
    if (n == 0)
        return ONQ_OK;
    if (o->convert == NULL) {
        o->convert = OQ_NEW(all->arena, oq_override);
        OQ_TRY_ALLOC(o->convert != NULL, err);
        o->convert->symmetric = o->convert->reduce_range = OQ_UNSET;
        to_override(reader, o->convert);
    }
    if (!same(reader, from_override(o->convert)))
        return oq_fail(err, ONQ_E_CONFIG,
                       "tensor '%.*s' is needed with another type than it is converted to",
                       OQ_STR(tensor));
    o->convert->has_recv = true;
    for (size_t i = 0; i < n; i++)
        if (!oq_str_among(names[i], o->convert->recv_nodes.v, o->convert->recv_nodes.n) &&
            !OQ_PUSH(all->arena, &o->convert->recv_nodes, names[i]))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

/* Names of all nodes that read the tensor, but those listed. */
static onq_code other_readers(mixing *x, oq_str tensor, const oq_str *but, size_t n_but,
                              oq_strs *out, onq_error *err) {
    const oq_value *v = oq_index_find(&x->ix, tensor);
    *out = (oq_strs){0};
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        const oq_str name = x->ix.graph->node.v[v->uses.v[i].node]->name;
        if (v->uses.v[i].slot == OQ_SLOT_INNER || oq_str_among(name, but, n_but) ||
            oq_str_among(name, out->v, out->n))
            continue;
        OQ_TRY_ALLOC(OQ_PUSH(x->p->arena, out, name), err);
    }
    return ONQ_OK;
}

static info maker_info(const mixing *x, oq_str tensor) {
    const oq_tensor_override *t = oq_overrides_find(x->p->overrides, tensor);
    info i = plain(x->p->config->activation_type);
    if (t != NULL && t->channels.v[0].has_type)
        i.type = t->channels.v[0].type;
    if (t != NULL)
        i.symmetric = t->channels.v[0].symmetric;
    return i;
}

static onq_code check_unconverted(mixing *x, const request *r, onq_error *err) {
    const oq_tensor_override *t = oq_overrides_find(x->p->overrides, r->name);
    const oq_override *c = t != NULL ? t->channels.v[0].convert : NULL;
    bool clash = c != NULL && !c->has_recv;
    for (size_t i = 0; c != NULL && i < r->names.n; i++)
        clash |= oq_str_among(r->names.v[i], c->recv_nodes.v, c->recv_nodes.n);
    return clash ? oq_fail(err, ONQ_E_CONFIG,
                           "the override of tensor '%.*s' converts it for nodes that need the "
                           "original type",
                           OQ_STR(r->name))
                 : ONQ_OK;
}

static onq_code settle(mixing *x, const request *r, onq_error *err) {
    const info usual = plain(x->p->config->activation_type);
    oq_strs others;
    if (r->has_maker && !r->has_readers) {
        OQ_TRY(other_readers(x, r->name, NULL, 0, &others, err));
        return convert(x, r->name, r->maker, usual, others.v, others.n, err);
    }
    const info maker = r->has_maker ? r->maker : maker_info(x, r->name);
    if (!same(maker, r->readers))
        return convert(x, r->name, maker, r->readers, r->names.v, r->names.n, err);
    if (!r->has_maker)
        return check_unconverted(x, r, err);
    OQ_TRY(other_readers(x, r->name, r->names.v, r->names.n, &others, err));
    if (others.n > 0)
        return convert(x, r->name, maker, usual, others.v, others.n, err);
    if (oq_overrides_find(x->p->overrides, r->name) == NULL) {
        oq_tensor_override *t = oq_overrides_add(x->p->overrides, r->name);
        OQ_TRY_ALLOC(t != NULL, err);
        to_override(maker, &t->channels.v[0]);
    }
    return ONQ_OK;
}

onq_code oq_preset_mix(const oq_preset *p, onq_error *err) {
    mixing x = {.p = p};
    oq_map_init(&x.map, p->arena);
    OQ_TRY(oq_index_build(&x.ix, p->arena, p->model->proto->graph, NULL, err));
    OQ_TRY(ask_all(&x, err));
    for (size_t i = 0; i < x.all.n; i++)
        OQ_TRY(settle(&x, x.all.v[i], err));
    return ONQ_OK;
}
