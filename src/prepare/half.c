/*
 * half.c — see half.h.
 *
 * A value that is made or read in float16 gets a name of its own beside that of the float one; a
 * Cast stands between the two where both are needed. So whatever reads the float name (outputs,
 * inner graphs, nodes that stay float) needs no look.
 */
#include "prepare/half.h"

#include "base/text/real.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"
#include "prepare/recast.h"
#include "shape/shape.h"

#define LARGEST     65504.0F /* of float16 */
#define LARGE_BYTES 1024     /* a weight that is worth a Cast */
#define MAX_NOISE   1e-6     /* that rounding may add, as a part of the power: 60 dB */

typedef enum half_kind { HALF_NOT, HALF_COMPUTES, HALF_MOVES } half_kind;

static const struct {
    const char *type;
    int64_t since;
    half_kind kind;
} operators[] = {
#define OQ_HALF(type, since, kind) {type, since, HALF_##kind},
#include "prepare/half.def"
#undef OQ_HALF
};

/* Whether float16 holds a constant: looked up once, however many nodes read it. */
typedef enum verdict { UNKNOWN, FITS, FITS_NOT } verdict;

typedef struct work {
    oq_model *m;
    oq_graph *g;
    oq_arena *a; /* the model's */
    oq_arena scratch;
    oq_index ix;
    oq_names names;
    oq_shapes *shapes;
    bool *is_half; /* of each node */
    verdict *fits; /* of each value of the index */
    oq_map halves; /* names of floats, to where names of float16 are in `to` */
    OQ_VEC(oq_str) to;
    OQ_VEC(oq_node *) nodes; /* of the graph to be */
    oq_half_report report;
} work;

/* ---- weights ---- */

#define LANES 8 /* sums side by side, which vectors hold */

typedef struct sums {
    double power[LANES], noise[LANES];
    bool fit;
} sums;

static bool add_up(void *ctx, const float *x, size_t n) {
    enum { SOME = 1024 };
    sums *s = ctx;
    uint16_t h[SOME];
    float y[SOME];
    for (size_t at = 0; at < n; at += SOME) {
        const float *v = x + at;
        const size_t now = n - at < SOME ? n - at : SOME;
        bool fit = true;
        oq_f32_to_f16_n(v, h, now);
        oq_f16_to_f32_n(h, y, now);
        for (size_t i = 0; i < now; i++)
            fit &= fabsf(v[i]) <= LARGEST; /* not NaN either */
        s->fit &= fit;
        for (size_t i = 0; i < now; i++) {
            const double apart = (double)y[i] - (double)v[i];
            s->power[i % LANES] += (double)v[i] * (double)v[i];
            s->noise[i % LANES] += apart * apart;
        }
    }
    return s->fit;
}

/* True if float16 holds all values, and all of them together well. */
static onq_code try_all(const work *w, oq_tensor *t, bool *fit, onq_error *err) {
    sums s = {.fit = true};
    OQ_TRY(oq_floats_scan(w->m, t, add_up, &s, err));
    for (size_t i = 1; i < LANES; i++) {
        s.power[0] += s.power[i];
        s.noise[0] += s.noise[i];
    }
    *fit = s.fit && s.noise[0] <= MAX_NOISE * s.power[0];
    oq_model_drop_pages(w->m);
    return ONQ_OK;
}

static onq_code fits(work *w, const oq_value *v, bool *fit, onq_error *err) {
    verdict *known = &w->fits[v - w->ix.values.v];
    if (*known == UNKNOWN) {
        OQ_TRY(try_all(w, v->init, fit, err));
        *known = *fit ? FITS : FITS_NOT;
    }
    *fit = *known == FITS;
    return ONQ_OK;
}

/* The float16 twin of a name. */
static onq_code new_name(work *w, oq_str name, oq_str *out, onq_error *err) {
    const oq_str wanted = oq_str_format(w->a, "%.*s_float16", OQ_STR(name));
    *out = wanted.p != NULL ? oq_names_unique(&w->names, wanted) : wanted;
    return out->p != NULL && OQ_PUSH(&w->scratch, &w->to, *out) &&
                   oq_map_put(&w->halves, name, (uint32_t)w->to.n - 1)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code add_half_init(work *w, oq_tensor *t, oq_str name, onq_error *err) {
    oq_tensor *half = oq_tensor_new(w->a, name, OQ_FLOAT16, t->dims.v, t->dims.n);
    OQ_TRY_ALLOC(half != NULL && oq_graph_add_init(w->a, w->g, half), err);
    w->report.n_weights++;
    return oq_recast_payload(w->m, t, half, err);
}

static onq_code add_cast(work *w, oq_str from, oq_str to, oq_dtype type, onq_error *err) {
    OQ_TRY(oq_recast_may_cast(w->m, err));
    const oq_str wanted = oq_str_format(w->a, "%.*s_cast", OQ_STR(to));
    const oq_str name = wanted.p != NULL ? oq_names_unique(&w->names, wanted) : wanted;
    oq_node *n = name.p != NULL ? oq_node_make(w->a, "Cast", name, &from, 1, &to, 1) : NULL;
    return n != NULL && oq_attr_set_int(w->a, n, OQ_S("to"), type) &&
                   OQ_PUSH(&w->scratch, &w->nodes, n)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* Its inputs may come from a Cast. Parameters of quantization must be there when the runtime looks
 * for patterns, and other domains have rules of their own. */
static bool takes_cast(const oq_node *n) {
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    return oq_domain_is_onnx(n->domain)
               ? t->kind == OQ_KIND_OTHER && !oq_str_starts(n->op_type, OQ_S("QLinear"))
               : t->fused;
}

static bool is_constant(const oq_value *v) {
    return v->init != NULL && v->producer == OQ_NO_NODE && !v->is_input &&
           v->init->data_type.v == OQ_FLOAT;
}

/* A large constant that nodes which stay float read. */
static onq_code is_worth_it(work *w, const oq_value *v, bool *worth, onq_error *err) {
    uint64_t bytes = 0;
    *worth = false;
    if (!is_constant(v) || v->is_output)
        return ONQ_OK;
    for (size_t i = 0; i < v->uses.n; i++)
        if (!takes_cast(w->g->node.v[v->uses.v[i].node]))
            return ONQ_OK;
    OQ_TRY(oq_tensor_bytes(v->init, &bytes, err));
    return bytes >= LARGE_BYTES ? fits(w, v, worth, err) : ONQ_OK;
}

/* Initializers whose names are given out by casts now. */
static void drop_cast_inits(work *w) {
    size_t n = 0;
    for (size_t i = 0; i < w->g->initializer.n; i++)
        if (oq_map_find(&w->halves, w->g->initializer.v[i]->name) == OQ_MAP_NONE)
            w->g->initializer.v[n++] = w->g->initializer.v[i];
    w->g->initializer.n = n;
}

/* Casts in front of all nodes, under the names of the floats. */
static onq_code store_weights(work *w, onq_error *err) {
    for (size_t i = 0; i < w->ix.values.n; i++) {
        const oq_value *v = &w->ix.values.v[i];
        bool worth = false;
        oq_str name;
        OQ_TRY(is_worth_it(w, v, &worth, err));
        if (!worth)
            continue;
        OQ_TRY(new_name(w, v->name, &name, err));
        OQ_TRY(add_half_init(w, v->init, name, err));
        OQ_TRY(add_cast(w, name, v->name, OQ_FLOAT, err));
    }
    drop_cast_inits(w);
    for (size_t i = 0; i < w->g->node.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &w->nodes, w->g->node.v[i]), err);
    return ONQ_OK;
}

/* ---- nodes ---- */

static half_kind kind_of(const work *w, const oq_node *n) {
    const bool one = oq_node_is(n, "BatchNormalization") || oq_node_is(n, "LayerNormalization");
    if (!oq_domain_is_onnx(n->domain) || (one && n->output.n > 1)) /* further outputs are float32 */
        return HALF_NOT;
    for (size_t i = 0; i < OQ_COUNT(operators); i++)
        if (oq_str_is(n->op_type, operators[i].type))
            return oq_model_opset(w->m, OQ_S("")) >= operators[i].since ? operators[i].kind
                                                                        : HALF_NOT;
    return HALF_NOT;
}

static bool is_float(const work *w, oq_str name) {
    return oq_shapes_elem_type(w->shapes, w->g, name) == OQ_FLOAT;
}

/* What the types of a node's values allow. */
typedef struct ends {
    bool any_float;
    bool is_open;    /* a type is not known, or another float, or a constant does not fit */
    bool among_half; /* reads a constant, or what is float16 already */
    bool among_ints; /* stands between DequantizeLinear and QuantizeLinear */
} ends;

static void look_at_type(const work *w, oq_str name, ends *e) {
    const int32_t type = oq_shapes_elem_type(w->shapes, w->g, name);
    e->any_float |= type == OQ_FLOAT;
    e->is_open |= type == 0 || (type != OQ_FLOAT && oq_dtype_is_float(type));
}

static onq_code look_at_inputs(work *w, const oq_node *n, ends *e, onq_error *err) {
    for (size_t i = 0; i < n->input.n; i++) {
        const oq_value *v = n->input.v[i].n > 0 ? oq_index_find(&w->ix, n->input.v[i]) : NULL;
        if (v == NULL)
            continue;
        look_at_type(w, v->name, e);
        if (is_constant(v)) {
            bool fit = false;
            OQ_TRY(fits(w, v, &fit, err));
            e->is_open |= !fit;
            e->among_half = true;
        }
        if (v->producer == OQ_NO_NODE)
            continue;
        e->among_half |= w->is_half[v->producer] && is_float(w, v->name);
        const oq_node *by = w->g->node.v[v->producer];
        e->among_ints |= oq_node_is_dequantize(by) && oq_domain_is_onnx(by->domain);
    }
    return ONQ_OK;
}

static void look_at_outputs(const work *w, const oq_node *n, ends *e) {
    for (size_t i = 0; i < n->output.n; i++) {
        const oq_value *v = n->output.v[i].n > 0 ? oq_index_find(&w->ix, n->output.v[i]) : NULL;
        if (v == NULL)
            continue;
        look_at_type(w, v->name, e);
        for (size_t k = 0; k < v->uses.n; k++) {
            const oq_node *reader = w->g->node.v[v->uses.v[k].node];
            e->among_ints |= oq_node_is_quantize(reader) && oq_domain_is_onnx(reader->domain);
        }
    }
}

static onq_code decide(work *w, size_t at, onq_error *err) {
    const oq_node *n = w->g->node.v[at];
    const half_kind kind = kind_of(w, n);
    ends e = {0};
    if (kind == HALF_NOT)
        return ONQ_OK;
    OQ_TRY(look_at_inputs(w, n, &e, err));
    look_at_outputs(w, n, &e);
    w->is_half[at] =
        e.any_float && !e.is_open && !e.among_ints && (kind == HALF_COMPUTES || e.among_half);
    w->report.n_nodes += w->is_half[at] && kind == HALF_COMPUTES;
    return ONQ_OK;
}

/* The name under which a float is read as float16. */
static onq_code half_of(work *w, oq_str name, oq_str *out, onq_error *err) {
    const uint32_t at = oq_map_find(&w->halves, name);
    if (at != OQ_MAP_NONE) {
        *out = w->to.v[at];
        return ONQ_OK;
    }
    const oq_value *v = oq_index_find(&w->ix, name);
    OQ_TRY(new_name(w, name, out, err));
    return is_constant(v) ? add_half_init(w, v->init, *out, err)
                          : add_cast(w, name, *out, OQ_FLOAT16, err);
}

static bool is_read_as_float(const work *w, const oq_value *v) {
    bool read = v->is_output;
    for (size_t i = 0; i < v->uses.n && !read; i++)
        read = v->uses.v[i].slot == OQ_SLOT_INNER || !w->is_half[v->uses.v[i].node];
    return read;
}

static onq_code turn_node(work *w, oq_node *n, onq_error *err) {
    for (size_t i = 0; i < n->input.n; i++)
        if (n->input.v[i].n > 0 && is_float(w, n->input.v[i]))
            OQ_TRY(half_of(w, n->input.v[i], &n->input.v[i], err));
    OQ_TRY_ALLOC(OQ_PUSH(&w->scratch, &w->nodes, n), err);
    for (size_t i = 0; i < n->output.n; i++) {
        const oq_str name = n->output.v[i];
        if (name.n == 0 || !is_float(w, name))
            continue;
        OQ_TRY(new_name(w, name, &n->output.v[i], err));
        if (is_read_as_float(w, oq_index_find(&w->ix, name)))
            OQ_TRY(add_cast(w, n->output.v[i], name, OQ_FLOAT, err));
    }
    return ONQ_OK;
}

static onq_code turn_nodes(work *w, onq_error *err) {
    const oq_shape_options how = {.symbolic = true};
    OQ_TRY(oq_shapes_infer(w->m, &how, &w->shapes, err));
    w->is_half = OQ_NEW_ARRAY(&w->scratch, bool, w->g->node.n + 1);
    OQ_TRY_ALLOC(w->is_half != NULL, err);
    for (size_t i = 0; i < w->g->node.n; i++)
        OQ_TRY(decide(w, i, err));
    for (size_t i = 0; i < w->g->node.n; i++)
        if (w->is_half[i])
            OQ_TRY(turn_node(w, w->g->node.v[i], err));
        else if (!OQ_PUSH(&w->scratch, &w->nodes, w->g->node.v[i]))
            return oq_fail_nomem(err);
    return ONQ_OK;
}

/* ---- all of it ---- */

static onq_code replace_nodes(work *w, onq_error *err) {
    OQ_TRY_ALLOC(oq_graph_set_nodes(w->a, w->g, w->nodes.v, w->nodes.n), err);
    return oq_graph_prune(w->m, w->g, err);
}

/* One step over a graph as it is now. */
static onq_code take_step(oq_model *m, oq_graph *g, onq_code (*step)(work *w, onq_error *err),
                          oq_half_report *out, onq_error *err) {
    work w = {.m = m, .g = g, .a = &m->arena};
    oq_arena_init(&w.scratch, &m->env->alloc);
    oq_map_init(&w.halves, &w.scratch);
    onq_code rc = oq_index_build(&w.ix, &w.scratch, g, NULL, err);
    w.fits = OQ_NEW_ARRAY(&w.scratch, verdict, w.ix.values.n + 1);
    if (rc == ONQ_OK && w.fits == NULL)
        rc = oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_names_collect(&w.names, w.a, m, err);
    if (rc == ONQ_OK)
        rc = step(&w, err);
    if (rc == ONQ_OK)
        rc = replace_nodes(&w, err);
    out->n_weights += w.report.n_weights;
    out->n_nodes += w.report.n_nodes;
    oq_shapes_free(w.shapes);
    oq_arena_release(&w.scratch);
    return rc;
}

typedef struct storing {
    oq_model *m;
    oq_half_report *out;
} storing;

static onq_code store_in(void *ctx, oq_graph *g, onq_error *err) {
    const storing *s = ctx;
    return take_step(s->m, g, store_weights, s->out, err);
}

onq_code oq_half_make(oq_model *m, oq_half how, oq_half_report *out, onq_error *err) {
    storing s = {m, out};
    size_t lifted = 0;
    *out = (oq_half_report){0};
    if (how == OQ_HALF_NONE)
        return ONQ_OK;
    oq_model_touch(m);
    OQ_TRY(oq_model_lift_constants(m, &lifted, err));
    if (how == OQ_HALF_ALL)
        OQ_TRY(take_step(m, m->proto->graph, turn_nodes, out, err));
    OQ_TRY(oq_walk_graphs(m->proto->graph, store_in, &s, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}
