/*
 * masks.c — see masks.h.
 */
#include "quantize/choose/masks.h"

#include "onnx/graph.h"
#include "onnx/operators.h"

/* e to the power of minus this, added to 1, is 1 in float. */
#define MARGIN 17.5

/* What a tensor must be able to hold, for the Softmax in the end. */
typedef struct floor_of {
    bool wide;  /* a mask stretches its range */
    bool vast;  /* to where products of scales overflow */
    bool known; /* readers cannot tell its values below `low` apart */
    double low;
} floor_of;

typedef struct settling {
    oq_extremes *e;
    const oq_graph *g;
    oq_ranges *ranges;
    oq_index ix;
    floor_of *of; /* by value of the index */
} settling;

static size_t number_of(const settling *s, const oq_value *v) {
    return (size_t)(v - s->ix.values.v);
}

static const oq_value *value_at(const settling *s, const oq_strs *names, size_t slot) {
    return slot < names->n && names->v[slot].n > 0 ? oq_index_find(&s->ix, names->v[slot]) : NULL;
}

/* The range of an operand that is no mask; false if it has none. */
static bool score_range(const settling *s, const oq_value *v, double *lo, double *hi) {
    const oq_range *r = v != NULL ? oq_ranges_find(s->ranges, v->name) : NULL;
    return r != NULL && !s->of[number_of(s, v)].wide && oq_range_pair(r, lo, hi) &&
           *lo > (double)OQ_EXTREME_MASK;
}

/* A Softmax reads it: the lowest of what it was made of that is no mask. */
static bool floor_by_maker(const settling *s, const oq_value *v, double *low) {
    const oq_node *n = oq_value_node(&s->ix, v);
    bool any = false;
    double lo, hi;
    if (n == NULL || (!oq_str_is(n->op_type, "Add") && !oq_str_is(n->op_type, "Where")))
        return false;
    for (size_t k = 0; k < n->input.n; k++)
        if (score_range(s, value_at(s, &n->input, k), &lo, &hi)) {
            *low = any ? fmin(*low, lo - MARGIN) : lo - MARGIN;
            any = true;
        }
    return any;
}

/* As one node that reads it allows. */
static bool floor_by_reader(const settling *s, const oq_value *v, oq_use use, double *low) {
    const oq_node *n = s->g->node.v[use.node];
    const oq_value *out = value_at(s, &n->output, 0);
    double lo, hi;
    if (use.slot == OQ_SLOT_INNER || out == NULL)
        return false;
    if (oq_str_is(n->op_type, "Softmax"))
        return floor_by_maker(s, v, low);
    const floor_of *after = &s->of[number_of(s, out)];
    if (!after->known)
        return false;
    if (oq_op_traits_of(n->op_type)->repeats != OQ_REPEATS_NOTHING && use.slot == 0) {
        *low = after->low;
        return true;
    }
    if (oq_str_is(n->op_type, "Add") && use.slot < 2 &&
        score_range(s, value_at(s, &n->input, 1 - use.slot), &lo, &hi)) {
        *low = lo - hi - MARGIN;
        return true;
    }
    if (oq_str_is(n->op_type, "Where") && use.slot > 0 &&
        score_range(s, value_at(s, &n->input, 3 - use.slot), &lo, &hi)) {
        *low = lo - MARGIN;
        return true;
    }
    return false;
}

static void find_floor(settling *s, const oq_value *v) {
    floor_of *f = &s->of[number_of(s, v)];
    double low = INFINITY;
    bool known = f->wide && !v->is_output && v->uses.n > 0;
    for (size_t i = 0; known && i < v->uses.n; i++) {
        double one = 0;
        known = floor_by_reader(s, v, v->uses.v[i], &one);
        low = fmin(low, one);
    }
    f->known = known;
    f->low = low;
}

/* Readers come after their makers, so the graph is gone through backwards. */
static void find_floors(settling *s) {
    for (size_t i = s->g->node.n; i-- > 0;) {
        const oq_node *n = s->g->node.v[i];
        for (size_t k = 0; k < n->output.n; k++) {
            const oq_value *v = value_at(s, &n->output, k);
            if (v != NULL)
                find_floor(s, v);
        }
    }
    for (size_t i = 0; i < s->ix.values.n; i++)
        if (s->ix.values.v[i].producer == OQ_NO_NODE)
            find_floor(s, &s->ix.values.v[i]);
}

/* A constant has its scale from its values: one that is vast would overflow in the node that reads
 * it, which stays float. What it makes is clamped where it is quantized. */
static onq_code leave_maker(const settling *s, const oq_value *v, oq_qrun *run, onq_error *err) {
    const oq_node *n = oq_value_node(&s->ix, v);
    bool constant = false;
    for (size_t k = 0; n != NULL && k < n->input.n; k++) {
        const oq_value *in = value_at(s, &n->input, k);
        constant |=
            in != NULL && (in->init != NULL || oq_node_is_constant(oq_value_node(&s->ix, in)));
    }
    return constant ? oq_qrun_leave(run, n, OQ_LEFT_MASK, err) : ONQ_OK;
}

static onq_code clamp(settling *s, const oq_extreme *x, oq_qrun *run, bool *done, onq_error *err) {
    const oq_value *v = oq_index_find(&s->ix, x->name);
    const floor_of *f = &s->of[number_of(s, v)];
    oq_range *r = oq_ranges_find(s->ranges, x->name);
    *done = f->known && r != NULL && f->low < (double)x->highest;
    if (!*done)
        return ONQ_OK;
    const double low = fmin(f->low, 0); /* 0 is in every range */
    if (low > (double)x->lowest && !oq_num_make_one(&s->ranges->arena, &r->lowest, r->lowest.type,
                                                    r->lowest.bare, (double)(float)low))
        return oq_fail_nomem(err);
    return f->vast ? leave_maker(s, v, run, err) : ONQ_OK;
}

static onq_code leave_around(const settling *s, const oq_extreme *x, oq_qrun *run, onq_error *err) {
    const oq_value *v = oq_index_find(&s->ix, x->name);
    if (v->producer != OQ_NO_NODE)
        OQ_TRY(oq_qrun_leave(run, s->g->node.v[v->producer], OQ_LEFT_MASK, err));
    for (size_t i = 0; i < v->uses.n; i++)
        OQ_TRY(oq_qrun_leave(run, s->g->node.v[v->uses.v[i].node], OQ_LEFT_MASK, err));
    return ONQ_OK;
}

onq_code oq_masks_settle(oq_extremes *e, size_t from, oq_masks how, oq_graph *g, oq_ranges *ranges,
                         oq_qrun *run, onq_error *err) {
    settling s = {.e = e, .g = g, .ranges = ranges};
    if (how == OQ_MASKS_KEEP) {
        size_t kept = from;
        for (size_t i = from; i < e->all.n; i++)
            if (!e->all.v[i].pure)
                e->all.v[kept++] = e->all.v[i];
        e->all.n = kept;
    }
    if (how == OQ_MASKS_KEEP || from == e->all.n)
        return ONQ_OK;
    OQ_TRY(oq_index_build(&s.ix, e->arena, g, NULL, err));
    s.of = OQ_NEW_ARRAY(e->arena, floor_of, s.ix.values.n + 1);
    OQ_TRY_ALLOC(s.of != NULL, err);
    for (size_t i = from; i < e->all.n; i++)
        s.of[number_of(&s, oq_index_find(&s.ix, e->all.v[i].name))] =
            (floor_of){.wide = true, .vast = e->all.v[i].lowest <= -OQ_EXTREME_VAST};
    if (how == OQ_MASKS_CLAMP)
        find_floors(&s);
    for (size_t i = from; i < e->all.n; i++) {
        bool done = false;
        if (how == OQ_MASKS_CLAMP)
            OQ_TRY(clamp(&s, &e->all.v[i], run, &done, err));
        if (!done)
            OQ_TRY(leave_around(&s, &e->all.v[i], run, err));
        e->n_clamped += done;
        e->n_left += !done;
    }
    e->all.n = from;
    return ONQ_OK;
}
