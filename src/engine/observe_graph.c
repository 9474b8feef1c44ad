/*
 * observe_graph.c — puts an Observe node after each named tensor of a graph (and its subgraphs).
 *
 * The output of a node is renamed and the observer gives out the old name, so that everything that
 * uses the tensor sees what it saw: nodes, subgraphs, value_info. Where the name itself must stay
 * (graph inputs, initializers, graph outputs) the observer gives out a new name, and the nodes that
 * use the tensor read that: the observer is then in the way of the first of them and runs while
 * the tensor is hot.
 *
 * A node of the runtime costs more than a look at a small tensor does, when it runs and when the
 * graph is opened. So small tensors that follow each other get one observer together. They live
 * until it runs, which is why a group takes no more than a cache holds.
 *
 * When it runs is the runtime's choice. It starts from the last node that nothing reads, and goes
 * from a node to those it reads, the last in the list first, before it lets the node run. So groups
 * stand at the end, and each reads an empty tensor that the one before gives out: the runtime
 * arrives at the first group first, and lets each run as soon as its own tensors are there.
 * (Without that tensor, and in the reverse order, they would run so too. But for another order of
 * all nodes, which it does not use, the runtime keeps a sorted list of those that could run next,
 * and all groups would wait in it.)
 */
#include "engine/session_graph.h"

#include "onnx/attr.h"
#include "onnx/edit.h"

/* Larger tensors get an observer of their own, which is in the way and costs no memory. */
#define SMALL_BYTES (16 << 10)
#define GROUP_BYTES (64 << 10)
#define MAX_GROUP   64

typedef OQ_VEC(oq_node *) node_list;

typedef struct observing {
    oq_arena *arena;
    const oq_str *names;
    const oq_dtype *types; /* or NULL */
    const uint64_t *bytes; /* or NULL */
    bool beside;           /* nothing reads what the observers give out */
    size_t n;
    oq_map wanted;          /* name -> index */
    oq_names taken;         /* every name of the model */
    bool *found;            /* by index */
    const oq_graph **given; /* by index: the last graph that has it as input or initializer */
    oq_str *renamed; /* by index: what uses in the current graph become; p == NULL: unchanged */
    OQ_VEC(uint32_t) changed; /* indices with a renamed text */
    uint32_t *hidden; /* by index: > 0 inside a graph that has a tensor of that name of its own */
    /* The group that is being filled, of the current graph. */
    int64_t group[MAX_GROUP];
    size_t n_group;
    uint64_t group_bytes;
    oq_str token; /* what the last group gives out; p == NULL: there is none yet */
} observing;

static oq_str new_name(observing *o, oq_str base) {
    const oq_str text = oq_str_cat(o->arena, base, OQ_S("__onq_observed"));
    return text.p != NULL ? oq_names_unique(&o->taken, text) : text;
}

static oq_node *observe_node(observing *o, const char *op, const int64_t *index, size_t n_index,
                             const oq_str *in, size_t n_in, oq_str out) {
    const oq_str name = oq_names_unique(&o->taken, OQ_S("onq_observe"));
    if (name.p == NULL)
        return NULL;
    oq_node *node = oq_node_make(o->arena, op, name, in, n_in, &out, 1);
    if (node == NULL || !oq_attr_set_ints(o->arena, node, OQ_S("i"), index, n_index))
        return NULL;
    node->domain = OQ_S(OQ_ENGINE_DOMAIN);
    return node;
}

static oq_node *observe_one(observing *o, uint32_t index, oq_str in, oq_str out) {
    const bool half = o->types != NULL && o->types[index] == OQ_FLOAT16;
    return observe_node(o, half ? OQ_OBSERVE_HALF_OP : OQ_OBSERVE_OP, &(int64_t){index}, 1, &in, 1,
                        out);
}

/* ---- groups ---- */

static bool is_small(const observing *o, uint32_t index) {
    return !o->beside && o->bytes != NULL && o->bytes[index] > 0 &&
           o->bytes[index] <= SMALL_BYTES && (o->types == NULL || o->types[index] != OQ_FLOAT16);
}

static onq_code end_group(observing *o, node_list *out, onq_error *err) {
    oq_str in[MAX_GROUP + 1];
    size_t n = 0;
    if (o->n_group == 0)
        return ONQ_OK;
    while (n < o->n_group) {
        in[n] = o->names[o->group[n]];
        n++;
    }
    if (o->token.p != NULL)
        in[n++] = o->token;
    o->token = oq_names_unique(&o->taken, OQ_S("onq_observed"));
    OQ_TRY_ALLOC(o->token.p != NULL, err);
    oq_node *node = observe_node(o, OQ_OBSERVE_GROUP_OP, o->group, o->n_group, in, n, o->token);
    o->n_group = 0;
    o->group_bytes = 0;
    return node != NULL && OQ_PUSH(o->arena, out, node) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code join_group(observing *o, uint32_t index, node_list *out, onq_error *err) {
    if (o->n_group == MAX_GROUP || o->group_bytes + o->bytes[index] > GROUP_BYTES)
        OQ_TRY(end_group(o, out, err));
    o->group[o->n_group++] = index;
    o->group_bytes += o->bytes[index];
    o->found[index] = true;
    return ONQ_OK;
}

/* ---- uses of a tensor whose name stays ---- */

static void hide(observing *o, oq_str name, int by) {
    const uint32_t i = oq_map_find(&o->wanted, name);
    if (i != OQ_MAP_NONE)
        o->hidden[i] = (uint32_t)((int)o->hidden[i] + by);
}

static void hide_own(observing *o, const oq_graph *g, int by) {
    for (size_t i = 0; i < g->input.n; i++)
        hide(o, g->input.v[i]->name, by);
    for (size_t i = 0; i < g->initializer.n; i++)
        hide(o, g->initializer.v[i]->name, by);
    for (size_t i = 0; i < g->node.n; i++)
        for (size_t k = 0; k < g->node.v[i]->output.n; k++)
            hide(o, g->node.v[i]->output.v[k], by);
}

static onq_code rewire(observing *o, const oq_graph *g, unsigned depth, onq_error *err);

static onq_code rewire_inner(observing *o, const oq_graph *g, unsigned depth, onq_error *err) {
    hide_own(o, g, 1);
    onq_code rc = rewire(o, g, depth + 1, err);
    hide_own(o, g, -1);
    return rc;
}

static onq_code rewire(observing *o, const oq_graph *g, unsigned depth, onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "subgraphs are nested more than %d deep",
                       OQ_MAX_GRAPH_DEPTH);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++) {
            const uint32_t at = oq_map_find(&o->wanted, n->input.v[k]);
            if (at != OQ_MAP_NONE && o->renamed[at].p != NULL && o->hidden[at] == 0)
                n->input.v[k] = o->renamed[at];
        }
        for (size_t k = 0; k < n->attribute.n; k++) {
            const oq_attribute *a = n->attribute.v[k];
            if (a->g != NULL)
                OQ_TRY(rewire_inner(o, a->g, depth, err));
            for (size_t j = 0; j < a->graphs.n; j++)
                OQ_TRY(rewire_inner(o, a->graphs.v[j], depth, err));
        }
    }
    return ONQ_OK;
}

/* ---- one graph ---- */

/* An observer for a tensor whose name stays; its users are rewired later. */
static onq_code observe_named(observing *o, uint32_t index, node_list *out, onq_error *err) {
    const oq_str to = new_name(o, o->names[index]);
    oq_node *n = to.p != NULL ? observe_one(o, index, o->names[index], to) : NULL;
    OQ_TRY_ALLOC(n != NULL && OQ_PUSH(o->arena, out, n), err);
    o->found[index] = true;
    if (o->beside)
        return ONQ_OK;
    OQ_TRY_ALLOC(OQ_PUSH(o->arena, &o->changed, index), err);
    o->renamed[index] = to;
    return ONQ_OK;
}

/* The lists that the new nodes of a graph go to. */
typedef struct placing {
    node_list first;  /* before all others */
    node_list all;    /* the graph's own, and what is in the way */
    node_list beside; /* what nothing reads, as it is to run */
    node_list groups;
} placing;

/* Graph inputs and initializers: once each. */
static onq_code observe_given(observing *o, const oq_graph *g, oq_str name, placing *p,
                              onq_error *err) {
    const uint32_t i = oq_map_find(&o->wanted, name);
    if (i == OQ_MAP_NONE || o->given[i] == g)
        return ONQ_OK;
    o->given[i] = g;
    return is_small(o, i) ? join_group(o, i, &p->groups, err) : observe_named(o, i, &p->first, err);
}

static bool is_output(const oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->output.n; i++)
        if (oq_str_eq(g->output.v[i]->name, name))
            return true;
    return false;
}

static onq_code observe_made(observing *o, const oq_graph *g, oq_str *output, placing *p,
                             onq_error *err) {
    const uint32_t i = oq_map_find(&o->wanted, *output);
    if (output->n == 0 || i == OQ_MAP_NONE)
        return ONQ_OK;
    if (is_small(o, i))
        return join_group(o, i, &p->groups, err);
    if (o->beside || is_output(g, *output))
        return observe_named(o, i, o->beside ? &p->beside : &p->all, err);
    const oq_str inner = new_name(o, *output);
    oq_node *n = inner.p != NULL ? observe_one(o, i, inner, *output) : NULL;
    OQ_TRY_ALLOC(n != NULL && OQ_PUSH(o->arena, &p->all, n), err);
    *output = inner;
    o->found[i] = true;
    return ONQ_OK;
}

static onq_code observe_tensors(observing *o, const oq_graph *g, placing *p, onq_error *err) {
    for (size_t i = 0; i < g->input.n; i++)
        OQ_TRY(observe_given(o, g, g->input.v[i]->name, p, err));
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY(observe_given(o, g, g->initializer.v[i]->name, p, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        OQ_TRY_ALLOC(OQ_PUSH(o->arena, &p->all, n), err);
        for (size_t k = 0; k < n->output.n; k++)
            OQ_TRY(observe_made(o, g, &n->output.v[k], p, err));
    }
    return end_group(o, &p->groups, err);
}

static onq_code observe_graph(void *ctx, oq_graph *g, onq_error *err) {
    observing *o = ctx;
    placing p = {0};
    o->token = (oq_str){NULL, 0};
    OQ_TRY(observe_tensors(o, g, &p, err));
    /* Rewire what was there before the observers, which must keep reading the old names. */
    if (o->changed.n > 0)
        OQ_TRY(rewire(o, g, 0, err));
    while (o->changed.n > 0)
        o->renamed[o->changed.v[--o->changed.n]] = (oq_str){NULL, 0};
    const size_t total = p.first.n + p.all.n + p.beside.n + p.groups.n;
    oq_node **v = OQ_NEW_ARRAY(o->arena, oq_node *, total + 1);
    OQ_TRY_ALLOC(v != NULL, err);
    g->node.v = v;
    g->node.n = g->node.cap = total;
    for (size_t i = 0; i < p.first.n; i++)
        *v++ = p.first.v[i];
    for (size_t i = 0; i < p.all.n; i++)
        *v++ = p.all.v[i];
    /* The runtime starts with the last node that nothing reads and what that needs. In this order
     * an observer runs as soon as its tensors are there, and they need not live until the end. */
    for (size_t i = p.beside.n; i-- > 0;)
        *v++ = p.beside.v[i];
    for (size_t i = 0; i < p.groups.n; i++)
        *v++ = p.groups.v[i];
    return ONQ_OK;
}

/* ---- the model ---- */

static onq_code import_domain(oq_arena *a, oq_model_proto *proto, onq_error *err) {
    oq_opset *set = OQ_NEW(a, oq_opset);
    OQ_TRY_ALLOC(set != NULL, err);
    set->domain = OQ_S(OQ_ENGINE_DOMAIN);
    set->version = OQ_I64(1);
    return OQ_PUSH(a, &proto->opset_import, set) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_graph_observe(oq_arena *a, oq_model *m, oq_model_proto *proto,
                          const oq_session_options *so, onq_error *err) {
    const oq_str *names = so->observer->names;
    const size_t n = so->observer->n_names;
    observing o = {.arena = a,
                   .names = names,
                   .types = so->observed_types,
                   .bytes = so->observed_bytes,
                   .beside = so->observe_beside,
                   .n = n};
    oq_map_init(&o.wanted, a);
    o.found = OQ_NEW_ARRAY(a, bool, n);
    o.renamed = OQ_NEW_ARRAY(a, oq_str, n);
    o.hidden = OQ_NEW_ARRAY(a, uint32_t, n);
    o.given = OQ_NEW_ARRAY(a, const oq_graph *, n);
    OQ_TRY_ALLOC(o.given != NULL && o.found != NULL && o.renamed != NULL && o.hidden != NULL, err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY_ALLOC(oq_map_put(&o.wanted, names[i], (uint32_t)i), err);
    OQ_TRY(oq_names_collect(&o.taken, a, m, err));
    OQ_TRY(oq_walk_graphs(proto->graph, observe_graph, &o, err));
    for (size_t i = 0; i < n; i++)
        if (!o.found[i])
            return oq_fail(err, ONQ_E_INVALID, "there is no tensor '%.*s' in the graph to observe",
                           OQ_STR(names[i]));
    return import_domain(a, proto, err);
}
