/*
 * place.c — the same place in two graphs whose names differ.
 *
 * Every tensor gets a number computed from the operators between it and the graph's inputs;
 * constants do not count, nor do operators that quantization or preprocessing puts in or folds away
 * (QuantizeLinear, DequantizeLinear, Relu, Clip, BatchNormalization, Identity ...). Tensors with
 * the same number in both graphs are at the same place: the first with the first and so on when
 * both graphs have as many; else by operator, and the last matches the last (a Relu that went
 * into the node before it).
 */
#include "debug/debug.h"

#include "onnx/operators.h"

typedef struct mark {
    uint64_t hash;
    uint32_t order, value;
} mark;

struct oq_debug_places {
    const oq_debug *d;
    oq_str *flt; /* by value of the quantized model's index */
};

#define CONSTANT 0u /* the hash of what no input reaches */

static uint64_t mix(uint64_t h, uint64_t x) {
    h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h ^= h >> 31;
    return h * 0xbf58476d1ce4e5b9u;
}

static uint64_t mix_text(uint64_t h, oq_str s) {
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 0x100000001b3u;
    return mix(h, s.n);
}

/* Operators that leave a tensor at its place. */
static bool is_silent(const oq_node *n) {
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    return t->clips || t->vanishes || oq_node_is_pair(n) ||
           oq_str_is(n->op_type, "BatchNormalization");
}

static uint64_t hash_of(const oq_index *ix, const uint64_t *hash, oq_str name) {
    const oq_value *v = name.n > 0 ? oq_index_find(ix, name) : NULL;
    return v != NULL ? hash[v - ix->values.v] : CONSTANT;
}

static void hash_node(const oq_index *ix, uint64_t *hash, const oq_node *n) {
    uint64_t h = mix_text(0xcbf29ce484222325u, n->op_type);
    uint64_t only = CONSTANT;
    for (size_t k = 0; k < n->input.n; k++) {
        const uint64_t in = hash_of(ix, hash, n->input.v[k]);
        if (in == CONSTANT)
            continue;
        only = only == CONSTANT ? in : only;
        h = mix(h, in);
    }
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_value *v = n->output.v[k].n > 0 ? oq_index_find(ix, n->output.v[k]) : NULL;
        if (v == NULL)
            continue;
        uint64_t out = CONSTANT;
        if (only != CONSTANT)
            out = is_silent(n) ? only : mix(h, k);
        hash[v - ix->values.v] = out;
    }
}

static int by_hash(const void *a, const void *b) {
    const mark *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* The marks of a graph, by hash and order; inputs first. */
static onq_code mark_graph(oq_arena *a, const oq_index *ix, mark **out, size_t *n_out,
                           onq_error *err) {
    const oq_graph *g = ix->graph;
    uint32_t *order = NULL;
    OQ_TRY(oq_topo_order(ix, a, &order, err));
    uint64_t *hash = OQ_NEW_ARRAY(a, uint64_t, ix->values.n + 1);
    mark *v = OQ_NEW_ARRAY(a, mark, ix->values.n + 1);
    OQ_TRY_ALLOC(hash != NULL && v != NULL, err);
    size_t n = 0, place = 0;
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_value *in = oq_index_find(ix, g->input.v[i]->name);
        const size_t at = in != NULL ? (size_t)(in - ix->values.v) : 0;
        if (in == NULL || in->init != NULL || hash[at] != CONSTANT) /* there twice */
            continue;
        hash[at] = mix(0x1234567u, ++place);
        v[n] = (mark){hash[at], (uint32_t)n, (uint32_t)at};
        n++;
    }
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *node = g->node.v[order[i]];
        hash_node(ix, hash, node);
        for (size_t k = 0; k < node->output.n && !oq_node_is_pair(node); k++) {
            const oq_value *o = oq_index_find(ix, node->output.v[k]);
            const size_t at = o != NULL ? (size_t)(o - ix->values.v) : 0;
            if (o == NULL || node->output.v[k].n == 0 || hash[at] == CONSTANT ||
                o->producer != order[i] || o->producer_slot != k)
                continue;
            v[n] = (mark){hash[at], (uint32_t)n, (uint32_t)at};
            n++;
        }
    }
    qsort(v, n, sizeof *v, by_hash);
    *out = v;
    *n_out = n;
    return ONQ_OK;
}

static size_t run_length(const mark *v, size_t n, size_t at) {
    size_t k = 1;
    while (at + k < n && v[at + k].hash == v[at].hash)
        k++;
    return k;
}

static oq_str op_of(const oq_index *ix, const mark *m) {
    const uint32_t node = ix->values.v[m->value].producer;
    return node != OQ_NO_NODE ? ix->graph->node.v[node]->op_type : OQ_S("");
}

/* Marks of one hash, `a` in the float graph and `b` in the other. */
static void join_run(oq_debug_places *p, const mark *flt, size_t a, const mark *quantized,
                     size_t b) {
    const oq_index *tx = &p->d->float_index, *mx = &p->d->quantized_index;
    size_t next = 0;
    for (size_t k = 0; a == b && k < b; k++)
        p->flt[quantized[k].value] = tx->values.v[flt[k].value].name;
    if (a <= b)
        return;
    /* Some of the float graph's are gone: by operator in order, and the last matches the
     * last. */
    for (size_t k = 0; k + 1 < b; k++) {
        size_t at = next;
        while (at < a && !oq_str_eq(op_of(tx, &flt[at]), op_of(mx, &quantized[k])))
            at++;
        if (at == a)
            continue;
        p->flt[quantized[k].value] = tx->values.v[flt[at].value].name;
        next = at + 1;
    }
    p->flt[quantized[b - 1].value] = tx->values.v[flt[a - 1].value].name;
}

static void join(oq_debug_places *p, const mark *flt, size_t n_float, const mark *quantized,
                 size_t n_quantized) {
    size_t i = 0, j = 0;
    while (i < n_float && j < n_quantized) {
        if (flt[i].hash != quantized[j].hash) {
            *(flt[i].hash < quantized[j].hash ? &i : &j) += 1;
            continue;
        }
        const size_t a = run_length(flt, n_float, i), b = run_length(quantized, n_quantized, j);
        join_run(p, flt + i, a, quantized + j, b);
        i += a;
        j += b;
    }
}

onq_code oq_debug_places_build(oq_debug *d, oq_debug_places **out, onq_error *err) {
    oq_arena scratch;
    oq_arena_init(&scratch, &d->env->alloc);
    mark *flt = NULL, *quantized = NULL;
    size_t n_float = 0, n_quantized = 0;
    onq_code rc = ONQ_OK;
    oq_debug_places *p = OQ_NEW(&d->arena, oq_debug_places);
    if (p != NULL)
        p->flt = OQ_NEW_ARRAY(&d->arena, oq_str, d->quantized_index.values.n + 1);
    OQ_TRY_ALLOC(p != NULL && p->flt != NULL, err);
    p->d = d;
    OQ_GO(mark_graph(&scratch, &d->float_index, &flt, &n_float, err));
    OQ_GO(mark_graph(&scratch, &d->quantized_index, &quantized, &n_quantized, err));
    join(p, flt, n_float, quantized, n_quantized);
    *out = p;
done:
    oq_arena_release(&scratch);
    return rc;
}

oq_str oq_debug_place_of(const oq_debug_places *p, oq_str made_name) {
    const oq_index *ix = &p->d->quantized_index;
    for (size_t steps = 0; steps < 4; steps++) {
        const oq_value *v = oq_index_find(ix, made_name);
        if (v == NULL)
            break;
        const oq_str at = p->flt[v - ix->values.v];
        const oq_node *n = oq_value_node(ix, v);
        if (at.p != NULL || n == NULL || !oq_node_is_pair(n) || n->input.n == 0)
            return at;
        made_name = n->input.v[0]; /* after a pair: the place of its input */
    }
    return (oq_str){NULL, 0};
}
