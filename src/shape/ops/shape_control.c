/*
 * shape_control.c — If, Loop and Scan: types flow into the subgraphs and back.
 *
 * A value that a loop carries may change its shape from one iteration to the next. Plain mode then
 * knows only its element type, as onnx. Symbolic mode looks whether the body keeps the shape: it
 * infers the body, opens the dimensions that came out different, and tries again.
 */
#include "shape/sop.h"

#define LOOP_PASSES 4

static const oq_vtype **new_types(oq_rctx *c, size_t n) {
    const oq_vtype **t = OQ_NEW_ARRAY(c->in->arena, const oq_vtype *, n + 1);
    c->in->nomem = c->in->nomem || t == NULL;
    return t;
}

static const oq_data **new_data(oq_rctx *c, size_t n) {
    const oq_data **d = OQ_NEW_ARRAY(c->in->arena, const oq_data *, n + 1);
    c->in->nomem = c->in->nomem || d == NULL;
    return d;
}

static bool known_bool(const oq_data *d, bool *value) {
    int64_t v;
    if (d == NULL || d->n != 1 || !oq_cell_integer(d->v[0], &v))
        return false;
    *value = v != 0;
    return true;
}

static bool infer_branch(oq_rctx *c, const char *name, const oq_vtype **outs,
                         const oq_data **data) {
    oq_graph *g = oq_r_graph(c, name);
    if (g == NULL)
        return false;
    oq_sub sub = {.graph = g, .outs = outs, .out_data = data, .n_out = c->n_out};
    return oq_infer_sub(c, &sub);
}

void oq_rule_if(oq_rctx *c) {
    const oq_vtype **a = new_types(c, c->n_out), **b = new_types(c, c->n_out);
    const oq_data **da = new_data(c, c->n_out), **db = new_data(c, c->n_out);
    if (a == NULL || b == NULL || da == NULL || db == NULL ||
        !infer_branch(c, "then_branch", a, da) || !infer_branch(c, "else_branch", b, db))
        return;
    bool taken = false;
    const bool fixed = !c->plain && known_bool(oq_r_data(c, 0), &taken);
    for (size_t o = 0; o < c->n_out; o++) {
        if (fixed) {
            oq_r_set_type(c, o, taken ? a[o] : b[o]);
            c->data[o] = taken ? da[o] : db[o];
            continue;
        }
        const oq_vtype *t = oq_vtype_union(c->in, a[o], b[o]);
        OQ_R_FAIL_IF(t == NULL && (c->plain || (a[o] != NULL && b[o] != NULL)), c,
                     "the branches give output %zu different types", o);
        oq_r_set_type(c, o, t);
    }
}

/* What holds for a carried value before and after an iteration. NULL: nothing. */
static const oq_vtype *carried(oq_rctx *c, const oq_vtype *before, const oq_vtype *after) {
    if (before == NULL || after == NULL)
        return NULL;
    /* A sequence that starts empty gets the type of what is put into it. */
    const bool seq = before->kind == OQ_V_SEQUENCE && after->kind == OQ_V_SEQUENCE;
    if (seq && before->inner != NULL && after->inner != NULL && !before->inner->has_shape &&
        before->inner->elem_type == after->inner->elem_type)
        return after;
    const oq_vtype *t = oq_vtype_union(c->in, before, after);
    return t != NULL ? t : oq_vtype_shapeless(c->in, before);
}

/* The type of iteration number or condition: as the body declares it, else a scalar. */
static const oq_vtype *scalar_like(oq_rctx *c, const oq_graph *g, size_t i, int32_t elem_type) {
    const oq_vtype *declared = i < g->input.n ? oq_vtype_of(c->in, g->input.v[i]->type, 0) : NULL;
    if (declared != NULL && declared->kind == OQ_V_TENSOR && declared->has_shape)
        return declared;
    oq_vtype *t = oq_r_new_type(c, OQ_V_TENSOR);
    if (t != NULL) {
        t->elem_type = elem_type;
        t->has_shape = !c->plain;
    }
    return t;
}

typedef struct loop {
    oq_sub sub;
    size_t n_state;
    const oq_vtype **types;
    const oq_data **data;
    bool endless_cond; /* the condition is true at the start */
} loop;

static bool loop_start(oq_rctx *c, loop *l) {
    oq_graph *g = oq_r_graph(c, "body");
    if (g == NULL)
        return false;
    if (c->n_in < 2) {
        oq_r_fail(c, "a loop has at least two inputs");
        return false;
    }
    l->n_state = c->n_in - 2;
    l->types = new_types(c, c->n_in);
    l->data = new_data(c, c->n_in);
    l->sub = (oq_sub){.graph = g, .types = l->types, .data = l->data, .n_in = c->n_in};
    l->sub.n_out = c->n_out + 1;
    l->sub.outs = new_types(c, c->n_out + 1);
    l->sub.out_data = new_data(c, c->n_out + 1);
    if (l->types == NULL || l->data == NULL || l->sub.outs == NULL || l->sub.out_data == NULL)
        return false;
    l->types[0] = scalar_like(c, g, 0, OQ_INT64);
    l->types[1] = c->plain ? oq_r_type(c, 1) : scalar_like(c, g, 1, OQ_BOOL);
    for (size_t i = 2; i < c->n_in; i++) {
        const oq_vtype *t = oq_r_type(c, i);
        if (t == NULL && c->plain)
            return oq_r_fail(c, "the type of input %zu is not known", i);
        l->types[i] = c->plain ? oq_vtype_shapeless(c->in, t) : t;
    }
    return true;
}

/* Inside the body the condition is true; that is a value to follow. */
static void follow_condition(oq_rctx *c, loop *l) {
    bool start = false;
    oq_data *d = oq_data_new(c->in, OQ_BOOL, NULL, 0);
    l->endless_cond = !oq_r_has(c, 1) || (known_bool(oq_r_data(c, 1), &start) && start);
    if (d != NULL) {
        d->v[0] = oq_cell_int(oq_sdim_num(1));
        l->data[1] = d;
    }
}

/* Infers the body until the carried types stay as they are. */
static bool loop_settle(oq_rctx *c, loop *l) {
    for (unsigned pass = 0; pass < LOOP_PASSES; pass++) {
        if (!oq_infer_sub(c, &l->sub))
            return false;
        bool stable = true;
        for (size_t i = 0; i < l->n_state; i++) {
            const oq_vtype *was = l->types[i + 2];
            const oq_vtype *now = carried(c, was, l->sub.outs[i + 1]);
            if (pass + 2 >= LOOP_PASSES && !oq_vtype_eq(was, now))
                now = oq_vtype_shapeless(c->in, now);
            stable = stable && oq_vtype_eq(was, now);
            l->types[i + 2] = now;
        }
        if (stable || c->in->budget < 1000)
            break;
    }
    return true;
}

static oq_sdim trip_count(oq_rctx *c, const loop *l) {
    bool cond = false;
    const oq_data *m = oq_r_data(c, 0);
    if (c->plain || !l->endless_cond || !known_bool(l->sub.out_data[0], &cond) || !cond ||
        m == NULL || m->n != 1 || m->v[0].den != 1)
        return oq_sdim_unknown();
    return oq_sdim_max(c->ds, m->v[0].d, oq_sdim_num(0));
}

static bool scan_output(oq_rctx *c, const loop *l, size_t o, oq_sdim trips) {
    const oq_vtype *t = l->sub.outs[o + 1];
    if (t == NULL || t->kind != OQ_V_TENSOR)
        return !c->plain || oq_r_fail(c, "output %zu of the body is not a tensor", o + 1);
    oq_r_set_elem(c, o, t->elem_type);
    oq_sdim *dims = t->has_shape ? oq_r_dims(c, (size_t)t->rank + 1) : NULL;
    if (dims != NULL) {
        dims[0] = trips;
        if (t->rank > 0)
            memcpy(dims + 1, t->dims, t->rank * sizeof *dims);
        oq_r_set_shape(c, o, dims, (size_t)t->rank + 1);
    }
    return true;
}

/* onnx keeps the element type of a tensor and the whole type of a sequence or optional, unless the
 * body gives another kind. */
static const oq_vtype *carried_plain(oq_rctx *c, size_t o, const oq_vtype *after) {
    const oq_vtype *before = oq_r_type(c, o + 2);
    if (after == NULL || after->kind == OQ_V_NONE) {
        oq_r_fail(c, "the type of output %zu of the body is not known", o + 1);
        return NULL;
    }
    if (before->kind != after->kind) {
        if (after->kind == OQ_V_TENSOR)
            oq_r_fail(c, "output %zu of the body is of another kind than the value carried", o + 1);
        return oq_vtype_shapeless(c->in, after);
    }
    if (before->kind == OQ_V_TENSOR && before->elem_type != after->elem_type)
        oq_r_fail(c, "output %zu of the body has another type than the value carried", o + 1);
    return before->kind == OQ_V_TENSOR ? oq_vtype_shapeless(c->in, before) : before;
}

void oq_rule_loop(oq_rctx *c) {
    loop l = {.n_state = 0};
    OQ_R_NEED(loop_start(c, &l));
    if (!c->plain)
        follow_condition(c, &l);
    if (!(c->plain ? oq_infer_sub(c, &l.sub) : loop_settle(c, &l)))
        return;
    oq_sdim trips = trip_count(c, &l);
    if (oq_sdim_is_unknown(trips))
        trips = oq_r_fresh(c, l.n_state, 0);
    for (size_t o = 0; o < c->n_out; o++) {
        if (o >= l.n_state) {
            OQ_R_NEED(scan_output(c, &l, o, trips));
            continue;
        }
        const oq_vtype *t = c->plain ? carried_plain(c, o, l.sub.outs[o + 1])
                                     : carried(c, l.types[o + 2], l.sub.outs[o + 1]);
        OQ_R_NEED(!c->failed);
        oq_r_set_type(c, o, t);
    }
}

/* The type without axis `axis`, which is returned too. */
static const oq_vtype *without_axis(oq_rctx *c, const oq_vtype *t, size_t axis, oq_sdim *size) {
    oq_vtype *out = oq_r_new_type(c, t->kind);
    oq_sdim *dims = oq_r_dims(c, t->rank);
    if (out == NULL || dims == NULL)
        return NULL;
    size_t n = 0;
    for (size_t i = 0; i < t->rank; i++)
        if (i == axis)
            *size = t->dims[i];
        else
            dims[n++] = t->dims[i];
    *out = *t;
    out->rank = (uint32_t)n;
    out->dims = dims;
    return out;
}

static void set_with_axis(oq_rctx *c, size_t o, const oq_vtype *t, size_t axis, oq_sdim size) {
    oq_sdim *dims = oq_r_dims(c, (size_t)t->rank + 1);
    for (size_t i = 0; dims != NULL && i <= t->rank; i++)
        dims[i] = i == axis ? size : t->dims[i > axis ? i - 1 : i];
    if (dims != NULL)
        oq_r_set_shape(c, o, dims, (size_t)t->rank + 1);
}

typedef struct scan {
    size_t first; /* inputs before the states: 1 in opset 8 (sequence_lens), else 0 */
    size_t n_state, n_scan;
    const int64_t *in_axes, *out_axes;
    oq_sdim batch, length;
    const oq_vtype **types;
    oq_sub sub;
} scan;

/* Takes the scanned axis (and in opset 8 the batch axis) off the inputs. */
static bool scan_inputs(oq_rctx *c, scan *s) {
    for (size_t i = 0; i < s->n_state + s->n_scan; i++) {
        const oq_vtype *t = oq_r_type(c, s->first + i);
        if (t == NULL || t->kind != OQ_V_TENSOR)
            return oq_r_fail(c, "input %zu is not a tensor", s->first + i);
        oq_sdim size = oq_sdim_unknown();
        if (t->has_shape && s->first > 0) {
            if (t->rank < 1)
                return oq_r_fail(c, "input %zu has no batch axis", s->first + i);
            t = without_axis(c, t, 0, &size);
            /* onnx reads the batch size off the scanned inputs only. */
            s->batch = i >= s->n_state || !c->plain ? oq_r_same(c, s->batch, size) : s->batch;
        }
        if (t != NULL && t->has_shape && i >= s->n_state) {
            const size_t k = i - s->n_state;
            size_t axis;
            if (!oq_r_axis(c, s->in_axes != NULL ? s->in_axes[k] : 0, t->rank, &axis))
                return false;
            t = without_axis(c, t, axis, &size);
            s->length = oq_r_same(c, s->length, size);
        }
        s->types[i] = t;
    }
    return !c->failed;
}

static bool scan_outputs(oq_rctx *c, scan *s) {
    for (size_t o = 0; o < c->n_out; o++) {
        const oq_vtype *t = s->sub.outs[o];
        const bool is_state = o < s->n_state;
        if (t == NULL || t->kind != OQ_V_TENSOR) {
            if (c->plain)
                return oq_r_fail(c, "output %zu of the body is not a tensor", o);
            continue;
        }
        if (is_state && c->plain) {
            const char *why = NULL;
            t = oq_vtype_merge(c->in, s->types[o], t, &why);
            if (why != NULL)
                return oq_r_fail(c, "output %zu of the body: %s from the state", o, why);
        }
        oq_r_set_elem(c, o, t->elem_type);
        if (!t->has_shape)
            continue;
        const oq_vtype *full = t;
        if (!is_state) {
            const size_t k = o - s->n_state;
            size_t axis;
            if (!oq_r_axis(c, s->out_axes != NULL ? s->out_axes[k] : 0, (size_t)t->rank + 1, &axis))
                return false;
            set_with_axis(c, o, t, axis, s->length);
            full = &c->out[o];
        } else {
            oq_r_set_shape(c, o, t->dims, t->rank);
        }
        if (s->first > 0) {
            const oq_vtype copy = *full, *in = is_state ? oq_r_shape(c, s->first + o) : NULL;
            set_with_axis(c, o, &copy, 0, c->plain && in != NULL ? in->dims[0] : s->batch);
        }
    }
    return true;
}

static void run_scan(oq_rctx *c, size_t first) {
    scan s = {.first = first, .batch = oq_sdim_unknown(), .length = oq_sdim_unknown()};
    const int64_t n_scan = oq_r_int(c, "num_scan_inputs", 0);
    size_t n;
    oq_graph *g = oq_r_graph(c, "body");
    OQ_R_NEED(g != NULL);
    OQ_R_FAIL_IF(c->n_in < first || n_scan < 1 || n_scan > (int64_t)(c->n_in - first), c,
                 "num_scan_inputs is %lld", (long long)n_scan);
    s.n_scan = (size_t)n_scan;
    s.n_state = c->n_in - first - s.n_scan;
    OQ_R_FAIL_IF(
        c->n_out < s.n_state ||
            (oq_r_ints(c, "scan_input_axes", &s.in_axes, &n) && n != s.n_scan) ||
            (oq_r_ints(c, "scan_output_axes", &s.out_axes, &n) && n != c->n_out - s.n_state),
        c, "the number of outputs or axes does not fit");
    s.types = new_types(c, s.n_state + s.n_scan);
    s.sub = (oq_sub){.graph = g, .types = s.types, .n_in = s.n_state + s.n_scan};
    s.sub.outs = new_types(c, c->n_out);
    s.sub.n_out = c->n_out;
    OQ_R_NEED(!c->in->nomem && scan_inputs(c, &s) && oq_infer_sub(c, &s.sub));
    scan_outputs(c, &s);
}

void oq_rule_scan(oq_rctx *c) {
    run_scan(c, 0);
}

/* Opset 8: an optional sequence_lens first, a batch axis everywhere, the sequence on axis 1. */
void oq_rule_scan_batched(oq_rctx *c) {
    run_scan(c, 1);
}
