/*
 * fuse_activation.c — activations that exporters write out: HardSwish, and Gelu by Tanh.
 */
#include "prepare/fuse/fuse_pattern.h"

#define NEAR 1e-4 /* of a factor, relative: exporters round constants */

static bool is_near(double v, double want) {
    return fabs(v - want) <= NEAR * fabs(want);
}

/* One number, which keeps the rank of what it is combined with. */
static bool number_of(oq_fuse *f, oq_str name, oq_str like, double *v) {
    const oq_tensor *t = oq_fuse_const(f, name);
    const int rank = oq_fuse_rank(f, like);
    return t != NULL && (t->dims.n == 0 || (rank >= 0 && t->dims.n <= (size_t)rank)) &&
           oq_fuse_scalar(f, name, v);
}

/* ---- HardSwish: x * Clip(x + 3, 0, 6) / 6 ---- */

/* A Mul or Div by one number: the number as a factor and the slot of the other input; -1: not. */
static int factor_of(oq_fuse *f, const oq_node *n, double *factor) {
    if (n->input.n != 2 || n->output.n != 1 || !(oq_node_is(n, "Mul") || oq_node_is(n, "Div")))
        return -1;
    const bool div = oq_node_is(n, "Div");
    for (size_t slot = div ? 1 : 0; slot < 2; slot++) {
        if (!number_of(f, n->input.v[slot], n->output.v[0], factor))
            continue;
        *factor = div ? 1.0 / *factor : *factor;
        return (int)(1 - slot);
    }
    return -1;
}

static bool clip_bounds(oq_fuse *f, const oq_node *n, double *low, double *high) {
    if (f->opset < 11) {
        *low = (double)oq_attr_float(n, "min", -INFINITY);
        *high = (double)oq_attr_float(n, "max", INFINITY);
        return true;
    }
    return oq_fuse_scalar(f, oq_node_input(n, 1), low) &&
           oq_fuse_scalar(f, oq_node_input(n, 2), high);
}

/* `name` is Clip(x + 3, 0, 6), used once: its nodes and x. */
typedef struct gate {
    uint32_t add, clip;
    oq_str x;
} gate;

static bool find_gate(oq_fuse *f, oq_str name, gate *g) {
    double low, high, three;
    g->clip = oq_fuse_maker(f, name);
    if (g->clip == OQ_NO_NODE || !oq_fuse_sole(f, name))
        return false;
    const oq_node *clip = oq_fuse_node(f, g->clip);
    if (!oq_node_is(clip, "Clip") || !clip_bounds(f, clip, &low, &high) || low != 0.0 ||
        high != 6.0)
        return false;
    g->add = oq_fuse_maker(f, clip->input.v[0]);
    if (g->add == OQ_NO_NODE || !oq_fuse_sole(f, clip->input.v[0]))
        return false;
    const oq_node *add = oq_fuse_node(f, g->add);
    for (size_t slot = 0; slot < 2 && oq_node_is(add, "Add") && add->input.n == 2; slot++) {
        g->x = add->input.v[slot];
        if (number_of(f, add->input.v[1 - slot], g->x, &three) && three == 3.0)
            return true;
    }
    return false;
}

static onq_code make_gate(oq_fuse *f, const gate *g, oq_node *n, onq_error *err) {
    n->op_type = OQ_S("HardSigmoid");
    n->attribute.n = 0;
    n->input.n = 0;
    if (!oq_node_add_input(&f->m->arena, n, g->x) ||
        !oq_attr_set_float(&f->m->arena, n, OQ_S("alpha"), 1.0f / 6.0f) ||
        !oq_attr_set_float(&f->m->arena, n, OQ_S("beta"), 0.5f))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* The division is the last step: of the product, or of the gate alone. */
onq_code oq_fuse_hardswish(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    oq_node *n = oq_fuse_node(f, i);
    double sixth;
    gate g;
    const int slot = factor_of(f, n, &sixth);
    if (slot < 0 || !is_near(sixth, 1.0 / 6.0) || !oq_fuse_is_float(f, n->output.v[0]))
        return ONQ_OK;
    const oq_str in = n->input.v[slot];
    if (find_gate(f, in, &g)) {
        OQ_TRY(make_gate(f, &g, n, err));
        oq_fuse_drop(f, g.add);
        oq_fuse_drop(f, g.clip);
        oq_fuse_keep(f, i);
        *done = true;
        return ONQ_OK;
    }
    const uint32_t at = oq_fuse_maker(f, in);
    const oq_node *mul = at != OQ_NO_NODE && oq_fuse_sole(f, in) ? oq_fuse_node(f, at) : NULL;
    for (size_t k = 0; mul != NULL && oq_node_is(mul, "Mul") && k < 2; k++) {
        if (!find_gate(f, mul->input.v[k], &g) || !oq_str_eq(mul->input.v[1 - k], g.x))
            continue;
        oq_node *clip = oq_fuse_node(f, g.clip);
        const oq_str out =
            oq_names_unique(f->names, oq_str_cat(&f->m->arena, clip->output.v[0], OQ_S("_gate")));
        OQ_TRY_ALLOC(out.p != NULL, err);
        OQ_TRY(make_gate(f, &g, clip, err));
        clip->output.v[0] = out;
        n->op_type = OQ_S("Mul");
        n->input.v[0] = g.x;
        n->input.v[1] = out;
        oq_fuse_drop(f, g.add);
        oq_fuse_drop(f, at);
        oq_fuse_keep(f, g.clip);
        oq_fuse_keep(f, i);
        *done = true;
        return ONQ_OK;
    }
    return ONQ_OK;
}

/* ---- Gelu: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) ---- */

/* What a tensor is as a polynomial of x and t = tanh(...), however it is written: c[i][k] belongs
 * to t^i x^k. */
#define DEGREES 4
typedef struct poly {
    double c[2][DEGREES];
} poly;

typedef struct reading {
    oq_fuse *f;
    oq_str x, t; /* t.n == 0: there is none */
    oq_pattern p;
} reading;

static poly constant(double v) {
    return (poly){.c = {{v}}};
}

static bool times(const poly *a, const poly *b, poly *out) {
    poly r = {0};
    for (size_t i = 0; i < 2 * DEGREES; i++)
        for (size_t k = 0; k < 2 * DEGREES; k++) {
            const double v = a->c[i / DEGREES][i % DEGREES] * b->c[k / DEGREES][k % DEGREES];
            const size_t t = i / DEGREES + k / DEGREES, x = i % DEGREES + k % DEGREES;
            if (v == 0.0)
                continue;
            if (t > 1 || x >= DEGREES)
                return false;
            r.c[t][x] += v;
        }
    *out = r;
    return true;
}

static bool plus(const poly *a, const poly *b, double sign, poly *out) {
    for (size_t i = 0; i < 2 * DEGREES; i++)
        out->c[i / DEGREES][i % DEGREES] =
            a->c[i / DEGREES][i % DEGREES] + sign * b->c[i / DEGREES][i % DEGREES];
    return true;
}

static bool to_power(const poly *a, const poly *b, poly *out) {
    const double n = b->c[0][0];
    *out = *a;
    if (n != 1.0 && n != 2.0 && n != 3.0)
        return false;
    for (int k = 1; k < (int)n; k++)
        if (!times(out, a, out))
            return false;
    return true;
}

static bool is_constant(const poly *a) {
    for (size_t i = 1; i < 2 * DEGREES; i++)
        if (a->c[i / DEGREES][i % DEGREES] != 0.0)
            return false;
    return true;
}

static bool combine(const oq_node *n, const poly *a, const poly *b, poly *out) {
    if (oq_node_is(n, "Mul"))
        return times(a, b, out);
    if (oq_node_is(n, "Add"))
        return plus(a, b, 1.0, out);
    if (oq_node_is(n, "Sub"))
        return plus(a, b, -1.0, out);
    if (!is_constant(b))
        return false;
    if (oq_node_is(n, "Div")) {
        const poly inverse = constant(1.0 / b->c[0][0]);
        return b->c[0][0] != 0.0 && times(a, &inverse, out);
    }
    return oq_node_is(n, "Pow") && to_power(a, b, out);
}

static bool add_node(oq_pattern *p, uint32_t at) {
    for (size_t k = 0; k < p->n; k++)
        if (p->nodes[k] == at)
            return true;
    if (p->n == OQ_COUNT(p->nodes))
        return false;
    p->nodes[p->n++] = at;
    return true;
}

/* Reads `name` down to x, t and numbers, at most `depth` nodes deep. */
static bool read_poly(reading *r, oq_str name, unsigned depth, poly *out) {
    double v;
    poly in[2];
    *out = constant(0.0);
    if (oq_str_eq(name, r->x)) {
        out->c[0][1] = 1.0;
        return true;
    }
    if (r->t.n > 0 && oq_str_eq(name, r->t)) {
        out->c[1][0] = 1.0;
        return true;
    }
    if (number_of(r->f, name, r->x, &v)) {
        *out = constant(v);
        return true;
    }
    const uint32_t at = oq_fuse_maker(r->f, name);
    const oq_node *n = at != OQ_NO_NODE && depth > 0 ? oq_fuse_node(r->f, at) : NULL;
    if (n == NULL || n->input.n != 2 || n->output.n != 1 || !add_node(&r->p, at))
        return false;
    for (size_t k = 0; k < 2; k++)
        if (!read_poly(r, n->input.v[k], depth - 1, &in[k]))
            return false;
    return combine(n, &in[0], &in[1], out);
}

#define DEPTH 6

static bool is_gelu_inside(const poly *p) {
    const double root = sqrt(2.0 / 3.14159265358979323846);
    return is_near(p->c[0][1], root) && is_near(p->c[0][3], 0.044715 * root) && p->c[0][0] == 0.0 &&
           p->c[0][2] == 0.0;
}

static bool is_gelu(const poly *p) {
    for (size_t i = 0; i < 2 * DEGREES; i++)
        if (i % DEGREES != 1 ? p->c[i / DEGREES][i % DEGREES] != 0.0
                             : !is_near(p->c[i / DEGREES][1], 0.5))
            return false;
    return true;
}

/* x is one of the tensors that Tanh's input is made of: the first that gives the polynomial. */
static bool find_x(oq_fuse *f, oq_str inside, reading *r) {
    oq_str names[16];
    size_t n = 0;
    names[n++] = inside;
    for (size_t k = 0; k < n; k++) {
        poly p;
        *r = (reading){.f = f, .x = names[k]};
        if (read_poly(r, inside, DEPTH, &p) && is_gelu_inside(&p))
            return true;
        const uint32_t at = oq_fuse_maker(f, names[k]);
        const oq_node *maker = at != OQ_NO_NODE ? oq_fuse_node(f, at) : NULL;
        for (size_t s = 0; maker != NULL && s < maker->input.n && n < OQ_COUNT(names); s++)
            if (maker->input.n == 2 && oq_fuse_const(f, maker->input.v[s]) == NULL)
                names[n++] = maker->input.v[s];
    }
    return false;
}

onq_code oq_fuse_fastgelu(oq_fuse *f, uint32_t i, bool *done, onq_error *err) {
    const oq_node *tanh_node = oq_fuse_node(f, i);
    reading r;
    poly p;
    oq_node *made;
    if (!oq_node_is(tanh_node, "Tanh") || tanh_node->input.n != 1 ||
        !oq_fuse_is_float(f, tanh_node->output.v[0]) || !find_x(f, tanh_node->input.v[0], &r))
        return ONQ_OK;
    const oq_pattern inside = r.p;
    oq_str out = tanh_node->output.v[0];
    for (unsigned step = 0; step < DEPTH; step++) {
        const uint32_t at = oq_fuse_user(f, out);
        if (at == OQ_NO_NODE || oq_fuse_node(f, at)->output.n != 1)
            return ONQ_OK;
        out = oq_fuse_node(f, at)->output.v[0];
        r.t = tanh_node->output.v[0];
        r.p = inside;
        if (!add_node(&r.p, i) || !read_poly(&r, out, DEPTH, &p) || !is_gelu(&p))
            continue;
        r.p.output = out;
        /* The last node of a pattern makes its output. */
        for (size_t k = 0; k < r.p.n; k++)
            if (r.p.nodes[k] == at) {
                r.p.nodes[k] = r.p.nodes[r.p.n - 1];
                r.p.nodes[r.p.n - 1] = at;
            }
        if (!oq_pattern_is_closed(f, &r.p))
            return ONQ_OK;
        OQ_TRY(oq_pattern_replace(f, &r.p, "FastGelu", "com.microsoft", &r.x, 1, &made, err));
        *done = true;
        return oq_model_set_opset(f->m, OQ_S("com.microsoft"), 1, err);
    }
    return ONQ_OK;
}
