/*
 * cost.c — see cost.h.
 */
#include "quantize/cost/cost.h"

#include "base/text/number_text.h"
#include "onnx/graph.h"

/* Less than that part of float's time is a gain. */
#define GAIN 0.95

const char *oq_unit_kind_name(oq_unit_kind kind) {
    static const char *const names[OQ_UNIT_KINDS] = {"dense",  "grouped",   "depthwise",
                                                     "pooled", "attention", "transpose"};
    assert((size_t)kind < OQ_COUNT(names));
    return names[kind];
}

/* ---- keys ---- */

static void add_dims(oq_buf *b, const int64_t *v, size_t n) {
    oq_buf_addc(b, ' ');
    for (size_t i = 0; i < n; i++)
        oq_buf_addf(b, "%s%lld", i > 0 ? "x" : "", (long long)v[i]);
}

static void add_attribute(oq_buf *b, const oq_attribute *a) {
    oq_buf_addf(b, " %.*s=", OQ_STR(a->name));
    for (size_t i = 0; i < a->ints.n; i++)
        oq_buf_addf(b, "%s%lld", i > 0 ? "," : "", (long long)a->ints.v[i]);
    if (a->i.has)
        oq_buf_addf(b, "%lld", (long long)a->i.v);
    if (a->f.has) {
        char text[OQ_NUMBER_TEXT];
        oq_float_text(text, a->f.v);
        oq_buf_adds(b, text);
    }
    if (a->s.n > 0)
        oq_buf_addf(b, "%.*s", OQ_STR(a->s));
}

oq_str oq_unit_key(const oq_unit *u, oq_arena *a) {
    OQ_SCRATCH_BUF(b, a->alloc);
    oq_buf_addf(&b, "%.*s", OQ_STR(u->node->op_type));
    add_dims(&b, u->in.dims, u->in.rank);
    add_dims(&b, u->weight.dims, u->weight.rank);
    for (size_t i = 0; i < u->node->attribute.n; i++)
        add_attribute(&b, u->node->attribute.v[i]);
    if (u->kind == OQ_UNIT_PAIR)
        oq_buf_adds(&b, " activations");
    if (u->act != NULL)
        oq_buf_addf(&b, " %.*s", OQ_STR(u->act->op_type));
    return b.failed ? (oq_str){0} : oq_str_copy(a, (oq_str){b.p, b.n});
}

/* ---- files ---- */

static onq_code read_row(oq_unit_costs *c, oq_arena *a, const json_t *row, onq_error *err) {
    static const char *const names[] = {"float_ms", "integer_ms", "alone_ms"};
    double v[3];
    const json_t *key = json_object_get(row, "unit");
    if (!json_is_string(key))
        return oq_fail(err, ONQ_E_CONFIG, "a row has no \"unit\"");
    for (size_t i = 0; i < OQ_COUNT(names); i++) {
        const json_t *x = json_object_get(row, names[i]);
        v[i] = json_is_number(x) ? json_number_value(x) : INFINITY;
        if ((x != NULL && !json_is_number(x) && !json_is_null(x)) || !(v[i] >= 0))
            return oq_fail(err, ONQ_E_CONFIG, "unit '%s': \"%s\" is not a time",
                           json_string_value(key), names[i]);
    }
    const oq_unit_cost cost = {v[0], v[1], v[2]};
    const oq_str text = oq_str_copy(a, oq_str_of(json_string_value(key)));
    if (text.p == NULL || !oq_map_put(&c->keys, text, (uint32_t)c->all.n) ||
        !OQ_PUSH(a, &c->all, cost))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_unit_costs_load(oq_unit_costs *c, oq_arena *a, const onq_allocator *alloc,
                            const char *path, onq_error *err) {
    json_t *root = NULL;
    onq_code rc = ONQ_OK;
    *c = (oq_unit_costs){0};
    oq_map_init(&c->keys, a);
    OQ_TRY(oq_json_read(alloc, path, &root, err));
    const json_t *rows = json_object_get(root, "units");
    if (!json_is_array(rows))
        rc = oq_fail(err, ONQ_E_CONFIG,
                     "has no list \"units\" (onq bench --units --json writes it)");
    for (size_t i = 0; rc == ONQ_OK && i < json_array_size(rows); i++)
        rc = read_row(c, a, json_array_get(rows, i), err);
    json_decref(root);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}

/* ---- costs ---- */

static double elements(const oq_unit_shape *s) {
    double n = 1;
    for (size_t i = 0; i < s->rank; i++)
        n *= (double)s->dims[i];
    return n;
}

/* Multiply-accumulates a millisecond. */
typedef struct rate {
    oq_unit_kind kind;
    double channels; /* that a sum goes over, at least, for this row */
    double real, integer;
} rate;

/* Of ONNX Runtime 1.31.1 on one core of an AMD EPYC with AVX512-VNNI, over the units of
 * efficientnet_lite0, ppocrv4_det, magika and minilm. Rows of a kind go from few channels to many;
 * with few, float is as fast as inside a model, where its layout need not be changed at the
 * ends. */
static const rate rates[] = {
    {OQ_UNIT_DENSE, 0, 38e6, 20e6},   {OQ_UNIT_DENSE, 8, 30e6, 45e6},
    {OQ_UNIT_DENSE, 16, 35e6, 60e6},  {OQ_UNIT_DENSE, 32, 45e6, 95e6},
    {OQ_UNIT_DENSE, 64, 50e6, 150e6}, {OQ_UNIT_DENSE, 128, 54e6, 180e6},
    {OQ_UNIT_GROUPED, 0, 30e6, 30e6}, {OQ_UNIT_DEPTHWISE, 0, 20e6, 20e6},
    {OQ_UNIT_POOLED, 0, 10e6, 10e6},  {OQ_UNIT_PAIR, 0, 22e6, 22e6},
};
/* Elements a millisecond that become integers, or floats again. */
#define CONVERTED 8e6
/* Milliseconds that a node takes whatever its size. */
#define CALL 0.002

static oq_unit_cost by_rates(const oq_unit *u) {
    const rate *r = NULL;
    const bool conv = u->product == OQ_CONV;
    const double channels = conv && u->weight.rank > 1 ? (double)u->weight.dims[1] : u->depth;
    for (size_t i = 0; i < OQ_COUNT(rates); i++)
        if (rates[i].kind == u->kind && channels >= rates[i].channels)
            r = &rates[i];
    if (r == NULL)
        return (oq_unit_cost){0, INFINITY, INFINITY};
    /* Two nodes more for a Conv, one for a product whose output stays float. */
    const double ends =
        (elements(&u->in) + (conv ? elements(&u->out) : 0)) / CONVERTED + (conv ? 2 * CALL : CALL);
    const double inner = u->macs / r->integer + CALL;
    return (oq_unit_cost){u->macs / r->real + CALL, inner, inner + ends};
}

oq_unit_cost oq_unit_cost_of(const oq_unit *u, const oq_unit_costs *c, oq_str key) {
    const uint32_t at = c != NULL ? oq_map_find(&c->keys, key) : OQ_MAP_NONE;
    return at != OQ_MAP_NONE ? c->all.v[at] : by_rates(u);
}

bool oq_cost_pays_alone(const oq_unit_cost *c) {
    return c->alone < GAIN * c->real;
}

/* Left float it would need the conversions on both sides, and what they cost is known from the unit
 * that has them. */
bool oq_cost_pays_inside(const oq_unit_cost *c) {
    return c->inner < GAIN * (c->real + c->alone - c->inner);
}

/* ---- units beside each other ---- */

typedef struct beside {
    const oq_units *units;
    oq_map inputs, outputs; /* tensor -> the last unit that reads it, the unit that makes it */
    bool *pays;
} beside;

static oq_str end_of(const oq_unit *u) {
    return u->act != NULL && u->act->output.n > 0 ? u->act->output.v[0] : u->node->output.v[0];
}

/* True if integers come in and go out: a unit that pays makes the input, and such units alone read
 * the output. */
static bool is_between(const beside *b, const oq_unit *u, const oq_index *ix) {
    assert(ix->graph != NULL && ix->graph == u->graph);
    const uint32_t maker = oq_map_find(&b->outputs, u->node->input.v[0]);
    const oq_value *v = oq_index_find(ix, end_of(u));
    if (maker == OQ_MAP_NONE || !b->pays[maker] || v == NULL || v->is_output || v->uses.n == 0)
        return false;
    for (size_t i = 0; i < v->uses.n; i++) {
        const oq_node *n = ix->graph->node.v[v->uses.v[i].node];
        const uint32_t reader =
            n->output.n > 0 ? oq_map_find(&b->inputs, n->output.v[0]) : OQ_MAP_NONE;
        if (v->uses.v[i].slot != 0 || reader == OQ_MAP_NONE || !b->pays[reader])
            return false;
    }
    return true;
}

onq_code oq_units_pay(const oq_units *u, const oq_unit_costs *c, oq_arena *a, bool **out,
                      onq_error *err) {
    beside b = {.units = u, .pays = OQ_NEW_ARRAY(a, bool, u->all.n + 1)};
    oq_unit_cost *costs = OQ_NEW_ARRAY(a, oq_unit_cost, u->all.n + 1);
    oq_index ix = {0};
    oq_map_init(&b.inputs, a);
    oq_map_init(&b.outputs, a);
    OQ_TRY_ALLOC(b.pays != NULL && costs != NULL, err);
    for (uint32_t i = 0; i < u->all.n; i++) {
        const oq_unit *one = &u->all.v[i];
        const oq_str key = oq_unit_key(one, a);
        if (key.p == NULL || !oq_map_put(&b.inputs, one->node->output.v[0], i) ||
            !oq_map_put(&b.outputs, end_of(one), i))
            return oq_fail_nomem(err);
        costs[i] = oq_unit_cost_of(one, c, key);
        b.pays[i] = oq_cost_pays_alone(&costs[i]);
    }
    /* Neighbours are those that pay by themselves, so the order does not matter. */
    bool *joins = OQ_NEW_ARRAY(a, bool, u->all.n + 1);
    OQ_TRY_ALLOC(joins != NULL, err);
    for (size_t i = 0; i < u->all.n; i++) {
        if (ix.graph != u->all.v[i].graph)
            OQ_TRY(oq_index_build(&ix, a, u->all.v[i].graph, NULL, err));
        joins[i] =
            b.pays[i] || (oq_cost_pays_inside(&costs[i]) && is_between(&b, &u->all.v[i], &ix));
    }
    *out = joins;
    return ONQ_OK;
}
