/*
 * plan.c — the table of decisions, as JSON and as a summary.
 */
#include "quantize/plan.h"

#define MANY_TYPES 3 /* operators that the mode does not know: more share a line */

void oq_plan_init(oq_plan *p, oq_arena *arena) {
    *p = (oq_plan){.arena = arena};
}

bool oq_plan_add_node(oq_plan *p, oq_plan_node row) {
    return OQ_PUSH(p->arena, &p->nodes, row);
}

bool oq_plan_add_tensor(oq_plan *p, oq_plan_tensor row) {
    assert(row.name.p != NULL);
    return OQ_PUSH(p->arena, &p->tensors, row);
}

bool oq_plan_add_scalar(oq_plan *p, oq_plan_tensor row, float scale, int32_t zero) {
    float *s = OQ_NEW(p->arena, float);
    int32_t *z = OQ_NEW(p->arena, int32_t);
    if (s == NULL || z == NULL)
        return false;
    *s = scale;
    *z = zero;
    row.scale = s;
    row.zero = z;
    row.n = 1;
    return oq_plan_add_tensor(p, row);
}

const char *oq_fate_name(oq_plan_fate fate) {
    static const char *const names[] = {"float", "quantized", "removed"};
    assert((size_t)fate < OQ_COUNT(names));
    return names[fate];
}

const char *oq_plan_by_name(oq_plan_by by) {
    static const char *const names[] = {"rule", "choice", "samples"};
    assert((size_t)by < OQ_COUNT(names));
    return names[by];
}

const char *oq_plan_role_name(oq_plan_role role) {
    static const char *const names[] = {"activation", "weight", "bias"};
    assert((size_t)role < OQ_COUNT(names));
    return names[role];
}

/* One number each, or lists where the tensor has channels or blocks. */
static void params_json(const oq_plan_tensor *t, oq_jw *w) {
    if (t->axis < 0) {
        oq_jw_float(w, "scale", t->scale[0]);
        oq_jw_int(w, "zero_point", t->zero != NULL ? t->zero[0] : 0);
        return;
    }
    oq_jw_begin_array(w, "scale");
    for (uint64_t i = 0; i < t->n; i++)
        oq_jw_float(w, NULL, t->scale[i]);
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "zero_point");
    for (uint64_t i = 0; i < t->n; i++)
        oq_jw_int(w, NULL, t->zero != NULL ? t->zero[i] : 0);
    oq_jw_end_array(w);
}

static void tensor_json(const oq_plan_tensor *t, oq_jw *w) {
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, "name", t->name);
    oq_jw_cstr(w, "role", oq_plan_role_name(t->role));
    if (t->scale != NULL) {
        oq_jw_cstr(w, "type", oq_dtype_name((int64_t)t->type));
        if (t->axis >= 0)
            oq_jw_int(w, "axis", t->axis);
        if (t->block > 0)
            oq_jw_uint(w, "block_size", t->block);
        params_json(t, w);
    }
    if (t->same_as.n > 0)
        oq_jw_str(w, "same_as", t->same_as);
    if (t->computed)
        oq_jw_bool(w, "computed", true);
    if (t->converted)
        oq_jw_bool(w, "converted", true);
    if (t->adjusted)
        oq_jw_bool(w, "adjusted", true);
    oq_jw_cstr(w, "why", t->why != NULL ? t->why : "");
    oq_jw_end_object(w);
}

static void node_json(const oq_plan_node *n, oq_jw *w) {
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, "name", n->name);
    oq_jw_str(w, "op_type", n->op_type);
    oq_jw_str(w, "output", n->output);
    oq_jw_cstr(w, "treatment", oq_fate_name(n->fate));
    if (n->fate == OQ_FATE_FLOAT)
        oq_jw_cstr(w, "by", oq_plan_by_name(n->by));
    if (n->bits > 0) {
        oq_jw_uint(w, "bits", n->bits);
        oq_jw_int(w, "block_size", n->block > 0 ? (int64_t)n->block : -1);
        oq_jw_bool(w, "symmetric", n->symmetric);
        if (n->method.n > 0)
            oq_jw_str(w, "method", n->method);
        if (n->accuracy_level != 0)
            oq_jw_int(w, "accuracy_level", n->accuracy_level);
    }
    oq_jw_cstr(w, "why", n->why != NULL ? n->why : "");
    oq_jw_end_object(w);
}

void oq_plan_json(const oq_plan *p, oq_jw *w) {
    oq_jw_begin_array(w, "nodes");
    for (size_t i = 0; i < p->nodes.n; i++)
        node_json(&p->nodes.v[i], w);
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "tensors");
    for (size_t i = 0; i < p->tensors.n; i++)
        tensor_json(&p->tensors.v[i], w);
    oq_jw_end_array(w);
}

static int by_type(const void *a, const void *b) {
    const oq_plan_count *x = a, *y = b;
    const int order = oq_str_cmp(x->op_type, y->op_type);
    if (order != 0)
        return order;
    if (x->fate != y->fate) /* quantized first, float last */
        return (x->fate == OQ_FATE_FLOAT) - (y->fate == OQ_FATE_FLOAT) != 0
                   ? (x->fate == OQ_FATE_FLOAT) - (y->fate == OQ_FATE_FLOAT)
                   : (int)x->fate - (int)y->fate;
    return strcmp(x->why, y->why);
}

size_t oq_plan_count_why(const oq_plan *p, const char *why, const oq_plan_node **first) {
    size_t n = 0;
    *first = NULL;
    for (size_t i = 0; i < p->nodes.n; i++) {
        const oq_plan_node *row = &p->nodes.v[i];
        if (row->fate != OQ_FATE_FLOAT || strcmp(row->why, why) != 0)
            continue;
        *first = n++ == 0 ? row : *first;
    }
    return n;
}

onq_code oq_plan_summary(const oq_plan *p, oq_arena *a, oq_plan_counts *out, onq_error *err) {
    *out = (oq_plan_counts){0};
    if (p->nodes.n == 0)
        return ONQ_OK;
    oq_plan_count *all = OQ_NEW_ARRAY(a, oq_plan_count, p->nodes.n);
    OQ_TRY_ALLOC(all != NULL, err);
    for (size_t i = 0; i < p->nodes.n; i++) {
        const oq_plan_node *n = &p->nodes.v[i];
        all[i] = (oq_plan_count){n->op_type, n->why != NULL ? n->why : "", n->fate, 1};
    }
    qsort(all, p->nodes.n, sizeof *all, by_type);
    size_t kept = 0;
    for (size_t i = 1; i < p->nodes.n; i++)
        if (by_type(&all[kept], &all[i]) == 0)
            all[kept].n++;
        else
            all[++kept] = all[i];
    assert(kept < p->nodes.n);
    out->v = all;
    out->n = out->cap = kept + 1;
    return ONQ_OK;
}

/* True for the only row of an operator that the mode does not know. */
static bool is_unknown(const oq_plan_counts *c, size_t i) {
    const bool alone = (i == 0 || !oq_str_eq(c->v[i].op_type, c->v[i - 1].op_type)) &&
                       (i + 1 == c->n || !oq_str_eq(c->v[i].op_type, c->v[i + 1].op_type));
    return alone && c->v[i].fate == OQ_FATE_FLOAT && strcmp(c->v[i].why, OQ_WHY_MODE) == 0;
}

static void add_row(const oq_plan_counts *counts, size_t i, oq_buf *out) {
    const oq_plan_count *c = &counts->v[i];
    if (i > 0 && oq_str_eq(c->op_type, counts->v[i - 1].op_type)) {
        oq_buf_adds(out, "; ");
    } else {
        oq_buf_adds(out, out->n == 0 || out->p[out->n - 1] == '\n' ? "  " : "\n  ");
        oq_buf_add_safe(out, c->op_type);
        oq_buf_adds(out, ": ");
    }
    oq_buf_addf(out, "%zu %s", c->n,
                c->fate == OQ_FATE_FLOAT ? "left float" : oq_fate_name(c->fate));
    if (c->why[0] != '\0')
        oq_buf_addf(out, " (%s)", c->why);
}

void oq_plan_text(const oq_plan_counts *counts, oq_buf *out) {
    size_t types = 0, nodes = 0;
    for (size_t i = 0; i < counts->n; i++)
        if (is_unknown(counts, i)) {
            types++;
            nodes += counts->v[i].n;
        }
    for (size_t i = 0; i < counts->n; i++)
        if (types <= MANY_TYPES || !is_unknown(counts, i))
            add_row(counts, i, out);
    if (counts->n > types || (types > 0 && types <= MANY_TYPES))
        oq_buf_addc(out, '\n');
    if (types > MANY_TYPES)
        oq_buf_addf(out, "  %zu other operators: %zu left float (%s)\n", types, nodes, OQ_WHY_MODE);
}
