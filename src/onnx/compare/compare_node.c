/*
 * compare_node.c — nodes and attributes of two graphs. See compare.h.
 *
 * Nodes are matched by the first tensor they make, which is theirs alone in a valid graph; what is
 * left then by node name and operator. A graph in another order is the same graph.
 */
#include "onnx/compare/compare_parts.h"

/* ---- attributes ---- */

/* "[1, 2, ...]" cut to fit. */
static const char *ints_text(char *b, size_t size, const oq_i64s *v) {
    size_t n = (size_t)snprintf(b, size, "[");
    for (size_t i = 0; i < v->n; i++) {
        if (n + 30 >= size) {
            n += (size_t)snprintf(b + n, size - n, ", ...");
            break;
        }
        n += (size_t)snprintf(b + n, size - n, "%s%lld", i > 0 ? ", " : "", (long long)v->v[i]);
    }
    snprintf(b + n, size - n, "]");
    return b;
}

static bool floats_same(const oq_cmp *c, const oq_f32s *a, const oq_f32s *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!oq_cmp_real_same(c, (double)a->v[i], (double)b->v[i]))
            return false;
    return true;
}

static const char *type_name(int32_t type) {
    static const char *const names[] = {
        "UNDEFINED",      "FLOAT",      "INT",        "STRING",  "TENSOR", "GRAPH",
        "FLOATS",         "INTS",       "STRINGS",    "TENSORS", "GRAPHS", "SPARSE_TENSOR",
        "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};
    return type >= 0 && (size_t)type < OQ_COUNT(names) ? names[type] : "unknown";
}

/* Fields of AttributeProto that compare_attribute looks at itself. */
static const uint16_t attribute_own[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 20, 0};

/* Texts, ints and floats; *told if a difference was reported. */
static onq_code compare_plain(oq_cmp *c, oq_str owner, const char *what, const oq_attribute *a,
                              const oq_attribute *b, bool *told, onq_error *err) {
    char x[120], y[120];
    *told = true;
    if (a->type.v != b->type.v)
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%stype %s vs %s", what,
                            type_name(a->type.v), type_name(b->type.v));
    if (a->i.v != b->i.v)
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%s%lld vs %lld", what,
                            (long long)a->i.v, (long long)b->i.v);
    if (!oq_cmp_real_same(c, (double)a->f.v, (double)b->f.v))
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%s%.9g vs %.9g", what,
                            (double)a->f.v, (double)b->f.v);
    if (!oq_str_eq(a->s, b->s))
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%s'%.*s' vs '%.*s'", what,
                            OQ_STR(a->s), OQ_STR(b->s));
    if (a->ints.n != b->ints.n ||
        (a->ints.n > 0 && memcmp(a->ints.v, b->ints.v, a->ints.n * sizeof *a->ints.v) != 0))
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%s%s vs %s", what,
                            ints_text(x, sizeof x, &a->ints), ints_text(y, sizeof y, &b->ints));
    if (!floats_same(c, &a->floats, &b->floats))
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%sthe counts differ (%zu vs %zu)",
                            what, a->floats.n, b->floats.n);
    if (!oq_message_same(OQ_SCHEMA_attribute, a, b, attribute_own))
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%sthe values differ", what);
    *told = false;
    if (!oq_str_eq(a->doc_string, b->doc_string))
        return oq_cmp_found(c, err, OQ_DIFF_DOC, owner, "doc_string of %s", what);
    return ONQ_OK;
}

/* A graph inside an attribute, reported under "BRANCH of 'NODE'". */
static onq_code compare_inner(oq_cmp *c, oq_str owner, oq_str attribute, oq_graph *a, oq_graph *b,
                              onq_error *err) {
    if (c->depth >= OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    const oq_str before = c->where;
    c->where = oq_str_format(c->arena, "%.*s of '%.*s'%s%.*s", OQ_STR(attribute), OQ_STR(owner),
                             before.n > 0 ? " in " : "", OQ_STR(before));
    OQ_TRY_ALLOC(c->where.p != NULL, err);
    c->depth++;
    const onq_code rc = oq_cmp_graph(c, a, b, err);
    c->depth--;
    c->where = before;
    return rc;
}

static onq_code compare_attribute(oq_cmp *c, oq_str owner, const oq_attribute *a,
                                  const oq_attribute *b, onq_error *err) {
    char what[120];
    snprintf(what, sizeof what, "%.*s: ", OQ_STR(a->name));
    bool told;
    OQ_TRY(compare_plain(c, owner, what, a, b, &told, err));
    if (told)
        return ONQ_OK;
    if ((a->t == NULL) != (b->t == NULL) || (a->g == NULL) != (b->g == NULL) ||
        a->tensors.n != b->tensors.n || a->graphs.n != b->graphs.n)
        return oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%sanother kind of value", what);
    if (a->t != NULL)
        OQ_TRY(oq_cmp_tensor(c, OQ_DIFF_ATTRIBUTE, owner, what, a->t, b->t, err));
    for (size_t i = 0; i < a->tensors.n; i++)
        OQ_TRY(oq_cmp_tensor(c, OQ_DIFF_ATTRIBUTE, owner, what, a->tensors.v[i], b->tensors.v[i],
                             err));
    if (a->g != NULL)
        OQ_TRY(compare_inner(c, owner, a->name, a->g, b->g, err));
    for (size_t i = 0; i < a->graphs.n; i++)
        OQ_TRY(compare_inner(c, owner, a->name, a->graphs.v[i], b->graphs.v[i], err));
    return ONQ_OK;
}

/* True if the names are the same in the same places, as they nearly always are. */
static bool attributes_aligned(oq_attribute *const *a, size_t n, oq_attribute *const *b, size_t m) {
    if (n != m)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!oq_str_eq(a[i]->name, b[i]->name))
            return false;
    return true;
}

onq_code oq_cmp_attributes(oq_cmp *c, oq_str owner, oq_attribute *const *a, size_t n,
                           oq_attribute *const *b, size_t m, onq_error *err) {
    if (attributes_aligned(a, n, b, m)) {
        for (size_t i = 0; i < n; i++)
            OQ_TRY(compare_attribute(c, owner, a[i], b[i], err));
        return ONQ_OK;
    }
    oq_chain chain;
    bool *taken = OQ_NEW_ARRAY(c->arena, bool, m);
    OQ_TRY_ALLOC(taken != NULL && oq_chain_init(&chain, c->arena, m), err);
    for (size_t i = m; i > 0; i--)
        OQ_TRY_ALLOC(oq_chain_add(&chain, b[i - 1]->name, (uint32_t)(i - 1)), err);
    for (size_t i = 0; i < n; i++) {
        const uint32_t k = oq_chain_take(&chain, a[i]->name);
        if (k == OQ_MAP_NONE) {
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%.*s: only in the first",
                                OQ_STR(a[i]->name)));
            continue;
        }
        taken[k] = true;
        OQ_TRY(compare_attribute(c, owner, a[i], b[k], err));
    }
    for (size_t i = 0; i < m; i++) {
        if (!taken[i])
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_ATTRIBUTE, owner, "%.*s: only in the second",
                                OQ_STR(b[i]->name)));
    }
    return ONQ_OK;
}

/* ---- one pair of nodes ---- */

static onq_code compare_names(oq_cmp *c, oq_str owner, const char *what, const oq_strs *a,
                              const oq_strs *b, onq_error *err) {
    const size_t n = oq_cmp_trimmed(a), m = oq_cmp_trimmed(b);
    if (n != m)
        return oq_cmp_found(c, err, OQ_DIFF_NODE, owner, "%zu %ss vs %zu %ss", n, what, m, what);
    for (size_t i = 0; i < n; i++) {
        if (!oq_str_eq(a->v[i], b->v[i]))
            return oq_cmp_found(c, err, OQ_DIFF_NODE, owner, "%s %zu: '%.*s' vs '%.*s'", what, i,
                                OQ_STR(a->v[i]), OQ_STR(b->v[i]));
    }
    return ONQ_OK;
}

onq_code oq_cmp_operator(oq_cmp *c, const oq_node *a, const oq_node *b, onq_error *err) {
    const oq_str owner = oq_node_label(a);
    if (!oq_str_eq(a->op_type, b->op_type) ||
        !oq_str_eq(oq_domain_plain(a->domain), oq_domain_plain(b->domain)) ||
        !oq_str_eq(a->overload, b->overload))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_NODE, owner, "operator %.*s%s%.*s vs %.*s%s%.*s",
                            OQ_STR(a->domain), a->domain.n > 0 ? ":" : "", OQ_STR(a->op_type),
                            OQ_STR(b->domain), b->domain.n > 0 ? ":" : "", OQ_STR(b->op_type)));
    OQ_TRY(oq_cmp_attributes(c, owner, a->attribute.v, a->attribute.n, b->attribute.v,
                             b->attribute.n, err));
    OQ_TRY(oq_cmp_notes(c, owner, "node", OQ_NOTES(a), OQ_NOTES(b), err));
    static const uint16_t but[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0};
    if (!oq_message_same(OQ_SCHEMA_node, a, b, but))
        OQ_TRY(
            oq_cmp_found(c, err, OQ_DIFF_OTHER, owner, "device configuration or unknown fields"));
    return ONQ_OK;
}

static onq_code compare_pair(oq_cmp *c, const oq_node *a, const oq_node *b, onq_error *err) {
    const oq_str owner = oq_node_label(a);
    OQ_TRY(compare_names(c, owner, "input", &a->input, &b->input, err));
    OQ_TRY(compare_names(c, owner, "output", &a->output, &b->output, err));
    if (!oq_str_eq(a->name, b->name))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_NODE_NAME, owner, "'%.*s' vs '%.*s'", OQ_STR(a->name),
                            OQ_STR(b->name)));
    return oq_cmp_operator(c, a, b, err);
}

/* ---- matching ---- */

static oq_str first_output(const oq_node *n) {
    for (size_t i = 0; i < n->output.n; i++)
        if (n->output.v[i].n > 0)
            return n->output.v[i];
    return (oq_str){NULL, 0};
}

/* What a node without outputs is known by. */
static oq_str key_of(oq_cmp *c, const oq_node *n, bool by_name) {
    oq_str key = first_output(n);
    if (!by_name && key.n > 0)
        return key;
    key = n->name;
    if (by_name && key.n == 0)
        return key;
    key = oq_str_format(c->arena, "%.*s\n%.*s", OQ_STR(n->op_type), OQ_STR(key));
    return key;
}

typedef struct matching {
    oq_node *const *a, *const *b;
    size_t n, m;
    uint32_t *to; /* of each a: the b, or OQ_NO_NODE */
    bool *taken;  /* of each b */
} matching;

static onq_code match_by(oq_cmp *c, matching *t, bool by_name, onq_error *err) {
    oq_chain chain;
    OQ_TRY_ALLOC(oq_chain_init(&chain, c->arena, t->m), err);
    for (size_t i = t->m; i > 0; i--) {
        if (t->taken[i - 1])
            continue;
        const oq_str key = key_of(c, t->b[i - 1], by_name);
        if (key.n > 0 && !oq_chain_add(&chain, key, (uint32_t)(i - 1)))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->to[i] != OQ_NO_NODE)
            continue;
        const oq_str key = key_of(c, t->a[i], by_name);
        const uint32_t k = key.n > 0 ? oq_chain_take(&chain, key) : OQ_MAP_NONE;
        if (k == OQ_MAP_NONE)
            continue;
        t->to[i] = k;
        t->taken[k] = true;
    }
    return ONQ_OK;
}

static onq_code tell_alone(oq_cmp *c, const oq_node *n, const char *which, onq_error *err) {
    return oq_cmp_found(c, err, OQ_DIFF_NODE, oq_node_label(n),
                        "%.*s, only in the %s (makes '%.*s')", OQ_STR(n->op_type), which,
                        OQ_STR(first_output(n)));
}

onq_code oq_cmp_nodes(oq_cmp *c, oq_node *const *a, size_t n, oq_node *const *b, size_t m,
                      onq_error *err) {
    matching t = {a, b, n, m, OQ_NEW_ARRAY(c->arena, uint32_t, n), OQ_NEW_ARRAY(c->arena, bool, m)};
    OQ_TRY_ALLOC(t.to != NULL && t.taken != NULL, err);
    for (size_t i = 0; i < n; i++)
        t.to[i] = OQ_NO_NODE;
    OQ_TRY(match_by(c, &t, false, err));
    OQ_TRY(match_by(c, &t, true, err));
    bool ordered = true;
    int64_t last = -1;
    for (size_t i = 0; i < n; i++) {
        if (t.to[i] == OQ_NO_NODE) {
            OQ_TRY(tell_alone(c, a[i], "first", err));
            continue;
        }
        ordered = ordered && (int64_t)t.to[i] > last;
        last = (int64_t)t.to[i];
        OQ_TRY(compare_pair(c, a[i], b[t.to[i]], err));
    }
    for (size_t i = 0; i < m; i++)
        if (!t.taken[i])
            OQ_TRY(tell_alone(c, b[i], "second", err));
    if (!ordered)
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_ORDER, OQ_S(""), "the nodes are in another order"));
    return ONQ_OK;
}
