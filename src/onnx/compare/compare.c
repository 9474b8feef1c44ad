/*
 * compare.c — models and graphs. See compare.h; nodes, tensors and plain messages have their own
 * files.
 */
#include "onnx/compare/compare.h"

#include "onnx/check/check.h"
#include "onnx/compare/compare_parts.h"
#include "onnx/summary/summary.h"
#include "onnx/tensor.h"

#include <stdarg.h>

#define MAX_TEXT 500

const char *oq_diff_name(oq_diff_kind k) {
    assert(k < OQ_DIFF_COUNT);
    static const char *const names[OQ_DIFF_COUNT] = {
        "opset",       "input",      "output",     "node",       "attribute",
        "initializer", "value",      "function",   "training",   "node_name",
        "dimension",   "value_info", "order",      "ir_version", "producer",
        "doc_string",  "metadata",   "annotation", "other"};
    return names[k];
}

onq_code oq_cmp_found(oq_cmp *c, onq_error *err, oq_diff_kind kind, oq_str name, const char *fmt,
                      ...) {
    char text[MAX_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->line.n = 0;
    oq_buf_add_safe(&c->line, oq_str_of(text));
    OQ_TRY_ALLOC(!c->line.failed, err);
    const oq_difference d = {kind, c->where, name, {c->line.p, c->line.n}};
    return c->how->found(c->how->ctx, &d, err);
}

/* ---- matching by key ---- */

bool oq_chain_init(oq_chain *h, oq_arena *a, size_t count) {
    oq_map_init(&h->map, a);
    h->next = OQ_NEW_ARRAY(a, uint32_t, count);
    return h->next != NULL;
}

bool oq_chain_add(oq_chain *h, oq_str key, uint32_t item) {
    h->next[item] = oq_map_find(&h->map, key);
    return oq_map_put(&h->map, key, item);
}

uint32_t oq_chain_take(oq_chain *h, oq_str key) {
    const uint32_t item = oq_map_find(&h->map, key);
    if (item == OQ_MAP_NONE)
        return item;
    if (h->next[item] == OQ_MAP_NONE)
        oq_map_remove(&h->map, key);
    else
        (void)oq_map_put(&h->map, key, h->next[item]); /* replaces: needs no memory */
    return item;
}

/* ---- types ---- */

static onq_code tell_types(oq_cmp *c, oq_diff_kind kind, oq_str name, const oq_type *a,
                           const oq_type *b, onq_error *err) {
    OQ_SCRATCH_BUF(x, &c->a->env->alloc);
    oq_type_text(&x, a);
    oq_buf_adds(&x, " vs ");
    oq_type_text(&x, b);
    return x.failed ? oq_fail_nomem(err) : oq_cmp_found(c, err, kind, name, "%.*s", (int)x.n, x.p);
}

/* A number is not another number; a number may match a name or nothing. */
static bool shapes_agree(const oq_shape *a, const oq_shape *b) {
    if (a == NULL || b == NULL)
        return true;
    if (a->dim.n != b->dim.n)
        return false;
    for (size_t i = 0; i < a->dim.n; i++) {
        const oq_dim *x = a->dim.v[i], *y = b->dim.v[i];
        if (x->dim_value.has && y->dim_value.has && x->dim_value.v != y->dim_value.v)
            return false;
    }
    return true;
}

/* Types of two inputs or outputs, by name or position. */
static onq_code compare_type(oq_cmp *c, oq_diff_kind kind, oq_str name, const oq_type *a,
                             const oq_type *b, onq_error *err) {
    if ((a == NULL) != (b == NULL))
        return tell_types(c, OQ_DIFF_DIMENSION, name, a, b, err);
    if (a == NULL || oq_message_same(OQ_SCHEMA_type, a, b, NULL))
        return ONQ_OK;
    const oq_tensor_type *x = a->tensor_type, *y = b->tensor_type;
    if (x == NULL || y == NULL || x->elem_type.v != y->elem_type.v ||
        !shapes_agree(x->shape, y->shape))
        return tell_types(c, kind, name, a, b, err);
    return tell_types(c, OQ_DIFF_DIMENSION, name, a, b, err);
}

/* ---- inputs and outputs: their order is the interface ---- */

static onq_code compare_values(oq_cmp *c, oq_diff_kind kind, oq_value_info *const *a, size_t n,
                               oq_value_info *const *b, size_t m, onq_error *err) {
    const char *what = oq_diff_name(kind);
    if (n != m)
        OQ_TRY(oq_cmp_found(c, err, kind, OQ_S(""), "%zu %ss vs %zu %ss", n, what, m, what));
    for (size_t i = 0; i < n && i < m; i++) {
        if (!oq_str_eq(a[i]->name, b[i]->name) && !c->how->rename)
            OQ_TRY(oq_cmp_found(c, err, kind, a[i]->name, "%s %zu: '%.*s' vs '%.*s'", what, i,
                                OQ_STR(a[i]->name), OQ_STR(b[i]->name)));
        else
            OQ_TRY(compare_type(c, kind, a[i]->name, a[i]->type, b[i]->type, err));
        if (!oq_str_eq(a[i]->doc_string, b[i]->doc_string))
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_DOC, a[i]->name, "doc_string of the %s", what));
    }
    return ONQ_OK;
}

/* ---- lists matched by name ---- */

typedef struct named {
    const char *what;
    oq_diff_kind kind;
    oq_str (*name)(oq_cmp *c, void *item); /* p == NULL: out of memory */
    onq_code (*pair)(oq_cmp *c, void *a, void *b, onq_error *err);
} named;

static onq_code compare_named(oq_cmp *c, const named *k, oq_vec_any a, oq_vec_any b,
                              onq_error *err) {
    void *const *x = a.v, *const *y = b.v;
    oq_chain chain;
    bool *taken = OQ_NEW_ARRAY(c->arena, bool, b.n);
    OQ_TRY_ALLOC(taken != NULL && oq_chain_init(&chain, c->arena, b.n), err);
    for (size_t i = b.n; i > 0; i--)
        OQ_TRY_ALLOC(oq_chain_add(&chain, k->name(c, y[i - 1]), (uint32_t)(i - 1)), err);
    bool ordered = true;
    int64_t last = -1;
    for (size_t i = 0; i < a.n; i++) {
        const oq_str name = k->name(c, x[i]);
        const uint32_t at = oq_chain_take(&chain, name);
        if (at == OQ_MAP_NONE) {
            OQ_TRY(oq_cmp_found(c, err, k->kind, name, "%s only in the first", k->what));
            continue;
        }
        taken[at] = true;
        ordered = ordered && (int64_t)at > last;
        last = (int64_t)at;
        OQ_TRY(k->pair(c, x[i], y[at], err));
    }
    for (size_t i = 0; i < b.n; i++) {
        if (!taken[i])
            OQ_TRY(
                oq_cmp_found(c, err, k->kind, k->name(c, y[i]), "%s only in the second", k->what));
    }
    if (!ordered)
        OQ_TRY(
            oq_cmp_found(c, err, OQ_DIFF_ORDER, OQ_S(""), "the %ss are in another order", k->what));
    return ONQ_OK;
}

#define ANY(list) ((oq_vec_any){(list).v, (list).n, (list).cap})

static oq_str tensor_name(oq_cmp *c OQ_UNUSED, void *x) {
    return ((oq_tensor *)x)->name;
}

static onq_code tensor_pair(oq_cmp *c, void *a, void *b, onq_error *err) {
    return oq_cmp_tensor(c, OQ_DIFF_INITIALIZER, tensor_name(c, a), "", a, b, err);
}

static oq_str sparse_name(oq_cmp *c OQ_UNUSED, void *x) {
    const oq_sparse *s = x;
    return s->values != NULL ? s->values->name : OQ_S("");
}

static onq_code sparse_pair(oq_cmp *c, void *a, void *b, onq_error *err) {
    const oq_sparse *x = a, *y = b;
    static const uint16_t but[] = {1, 2, 0};
    if (!oq_message_same(OQ_SCHEMA_sparse, x, y, but) ||
        (x->values == NULL) != (y->values == NULL) || (x->indices == NULL) != (y->indices == NULL))
        return oq_cmp_found(c, err, OQ_DIFF_INITIALIZER, sparse_name(c, a),
                            "sparse: other dims or parts");
    if (x->values != NULL)
        OQ_TRY(oq_cmp_tensor(c, OQ_DIFF_INITIALIZER, sparse_name(c, a),
                             "sparse values: ", x->values, y->values, err));
    if (x->indices != NULL)
        OQ_TRY(oq_cmp_tensor(c, OQ_DIFF_INITIALIZER, sparse_name(c, a),
                             "sparse indices: ", x->indices, y->indices, err));
    return ONQ_OK;
}

static oq_str info_name(oq_cmp *c OQ_UNUSED, void *x) {
    return ((oq_value_info *)x)->name;
}

static onq_code info_pair(oq_cmp *c, void *a, void *b, onq_error *err) {
    const oq_value_info *x = a, *y = b;
    if (oq_message_same(OQ_SCHEMA_value_info, x, y, NULL))
        return ONQ_OK;
    return tell_types(c, OQ_DIFF_VALUE_INFO, x->name, x->type, y->type, err);
}

static oq_str annotation_name(oq_cmp *c OQ_UNUSED, void *x) {
    return ((oq_annotation *)x)->tensor_name;
}

static onq_code annotation_pair(oq_cmp *c, void *a, void *b, onq_error *err) {
    if (oq_message_same(OQ_SCHEMA_annotation, a, b, NULL))
        return ONQ_OK;
    return oq_cmp_found(c, err, OQ_DIFF_ANNOTATION, annotation_name(c, a), "other parameters");
}

static const named of_initializers = {"initializer", OQ_DIFF_INITIALIZER, tensor_name, tensor_pair};
static const named of_sparse = {"sparse initializer", OQ_DIFF_INITIALIZER, sparse_name,
                                sparse_pair};
static const named of_infos = {"value_info", OQ_DIFF_VALUE_INFO, info_name, info_pair};
static const named of_annotations = {"quantization_annotation", OQ_DIFF_ANNOTATION, annotation_name,
                                     annotation_pair};

/* ---- graphs ---- */

static onq_code compare_graph_texts(oq_cmp *c, const oq_graph *a, const oq_graph *b,
                                    onq_error *err) {
    static const uint16_t but[] = {1, 2, 5, 10, 11, 12, 13, 14, 15, 16, 0};
    if (!oq_str_eq(a->name, b->name))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_METADATA, OQ_S(""), "graph name: '%.*s' vs '%.*s'",
                            OQ_STR(a->name), OQ_STR(b->name)));
    OQ_TRY(oq_cmp_notes(c, OQ_S(""), "graph", OQ_NOTES(a), OQ_NOTES(b), err));
    if (!oq_message_same(OQ_SCHEMA_graph, a, b, but))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_OTHER, OQ_S(""), "unknown fields of the graph"));
    return ONQ_OK;
}

onq_code oq_cmp_graph(oq_cmp *c, oq_graph *a, oq_graph *b, onq_error *err) {
    OQ_TRY(compare_values(c, OQ_DIFF_INPUT, a->input.v, a->input.n, b->input.v, b->input.n, err));
    OQ_TRY(
        compare_values(c, OQ_DIFF_OUTPUT, a->output.v, a->output.n, b->output.v, b->output.n, err));
    OQ_TRY(compare_graph_texts(c, a, b, err));
    if (c->how->rename)
        return oq_cmp_renamed(c, a, b, err);
    OQ_TRY(compare_named(c, &of_initializers, ANY(a->initializer), ANY(b->initializer), err));
    OQ_TRY(
        compare_named(c, &of_sparse, ANY(a->sparse_initializer), ANY(b->sparse_initializer), err));
    OQ_TRY(oq_cmp_nodes(c, a->node.v, a->node.n, b->node.v, b->node.n, err));
    OQ_TRY(compare_named(c, &of_infos, ANY(a->value_info), ANY(b->value_info), err));
    return compare_named(c, &of_annotations, ANY(a->quantization_annotation),
                         ANY(b->quantization_annotation), err);
}

/* ---- functions ---- */

/* Functions may share a name: domain and overload distinguish them. */
static oq_str function_name(oq_cmp *c, void *x) {
    const oq_function *f = x;
    if (f->domain.n == 0 && f->overload.n == 0)
        return f->name;
    return oq_str_format(c->arena, "%.*s:%.*s%s%.*s", OQ_STR(f->domain), OQ_STR(f->name),
                         f->overload.n > 0 ? ":" : "", OQ_STR(f->overload));
}

static onq_code function_body(oq_cmp *c, oq_function *a, oq_function *b, onq_error *err) {
    static const uint16_t but[] = {7, 8, 11, 12, 14, 0};
    if (!oq_message_same(OQ_SCHEMA_function, a, b, but))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_FUNCTION, a->name,
                            "inputs, outputs, attributes, opsets or unknown fields differ"));
    OQ_TRY(oq_cmp_attributes(c, a->name, a->attribute_proto.v, a->attribute_proto.n,
                             b->attribute_proto.v, b->attribute_proto.n, err));
    OQ_TRY(oq_cmp_nodes(c, a->node.v, a->node.n, b->node.v, b->node.n, err));
    OQ_TRY(compare_named(c, &of_infos, ANY(a->value_info), ANY(b->value_info), err));
    return oq_cmp_notes(c, a->name, "function", OQ_NOTES(a), OQ_NOTES(b), err);
}

static onq_code function_pair(oq_cmp *c, void *a, void *b, onq_error *err) {
    oq_function *x = a;
    c->where = oq_str_format(c->arena, "function '%.*s'", OQ_STR(x->name));
    OQ_TRY_ALLOC(c->where.p != NULL, err);
    const onq_code rc = function_body(c, a, b, err);
    c->where = OQ_S("");
    return rc;
}

static const named of_functions = {"function", OQ_DIFF_FUNCTION, function_name, function_pair};

/* ---- models ---- */

/* Domain to index of its first import. */
static onq_code map_opsets(oq_cmp *c, const oq_model *m, oq_map *map, onq_error *err) {
    oq_opset *const *imports = m->proto->opset_import.v;
    oq_map_init(map, c->arena);
    for (size_t i = 0; i < m->proto->opset_import.n; i++) {
        const oq_str domain = oq_domain_plain(imports[i]->domain);
        const uint32_t first = oq_map_find(map, domain);
        OQ_TRY_IN(first != OQ_MAP_NONE ? oq_imports_agree(imports[first], imports[i], err) : ONQ_OK,
                  err, "%s", m->path);
        if (first == OQ_MAP_NONE && !oq_map_put(map, domain, (uint32_t)i))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code compare_opsets(oq_cmp *c, onq_error *err) {
    const oq_model_proto *a = c->a->proto, *b = c->b->proto;
    oq_map in_a, in_b;
    OQ_TRY(map_opsets(c, c->a, &in_a, err));
    OQ_TRY(map_opsets(c, c->b, &in_b, err));
    for (size_t i = 0; i < a->opset_import.n; i++) {
        const oq_opset *o = a->opset_import.v[i];
        const oq_str domain = oq_domain_plain(o->domain);
        if (oq_map_find(&in_a, domain) != i)
            continue; /* the first import of a domain counts */
        const uint32_t k = oq_map_find(&in_b, domain);
        const int64_t other = k != OQ_MAP_NONE ? b->opset_import.v[k]->version.v : 0;
        if (o->version.v != other)
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_OPSET, o->domain, "version %lld vs %lld",
                                (long long)o->version.v, (long long)other));
    }
    for (size_t i = 0; i < b->opset_import.n; i++) {
        const oq_opset *o = b->opset_import.v[i];
        const oq_str domain = oq_domain_plain(o->domain);
        if (oq_map_find(&in_b, domain) == i && !oq_map_has(&in_a, domain))
            OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_OPSET, o->domain, "version 0 vs %lld",
                                (long long)o->version.v));
    }
    return ONQ_OK;
}

static onq_code compare_model_texts(oq_cmp *c, onq_error *err) {
    const oq_model_proto *a = c->a->proto, *b = c->b->proto;
    if (a->ir_version.v != b->ir_version.v)
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_IR_VERSION, OQ_S(""), "%lld vs %lld",
                            (long long)a->ir_version.v, (long long)b->ir_version.v));
    if (!oq_str_eq(a->producer_name, b->producer_name) ||
        !oq_str_eq(a->producer_version, b->producer_version))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_PRODUCER, OQ_S(""), "'%.*s %.*s' vs '%.*s %.*s'",
                            OQ_STR(a->producer_name), OQ_STR(a->producer_version),
                            OQ_STR(b->producer_name), OQ_STR(b->producer_version)));
    OQ_TRY(oq_cmp_notes(c, OQ_S(""), "model", OQ_NOTES(a), OQ_NOTES(b), err));
    static const uint16_t but[] = {1, 2, 3, 6, 7, 8, 14, 20, 25, 0};
    if (!oq_message_same(OQ_SCHEMA_model_proto, a, b, but))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_OTHER, OQ_S(""),
                            "domain, model_version, device configuration or unknown fields of the "
                            "model"));
    return ONQ_OK;
}

static onq_code compare_training(oq_cmp *c, onq_error *err) {
    const oq_model_proto *a = c->a->proto, *b = c->b->proto;
    if (a->training_info.n != b->training_info.n)
        return oq_cmp_found(c, err, OQ_DIFF_TRAINING, OQ_S(""), "%zu training_info vs %zu",
                            a->training_info.n, b->training_info.n);
    for (size_t i = 0; i < a->training_info.n; i++) {
        if (!oq_message_same(OQ_SCHEMA_training, a->training_info.v[i], b->training_info.v[i],
                             NULL))
            OQ_TRY(
                oq_cmp_found(c, err, OQ_DIFF_TRAINING, OQ_S(""), "training_info %zu differs", i));
    }
    return ONQ_OK;
}

static onq_code compare_all(oq_cmp *c, onq_error *err) {
    oq_model_proto *a = c->a->proto, *b = c->b->proto;
    OQ_TRY(compare_opsets(c, err));
    OQ_TRY(compare_model_texts(c, err));
    if ((a->graph == NULL) != (b->graph == NULL))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_NODE, OQ_S(""), "only one of the models has a graph"));
    if (a->graph != NULL && b->graph != NULL)
        OQ_TRY(oq_cmp_graph(c, a->graph, b->graph, err));
    OQ_TRY(compare_named(c, &of_functions, ANY(a->functions), ANY(b->functions), err));
    return compare_training(c, err);
}

/* Bytes to look at, for the progress. Impossible sizes are left to the comparison to report. */
static onq_code add_bytes(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    uint64_t *sum = ctx, bytes;
    (void)in_attribute;
    (void)err;
    if (oq_tensor_bytes(t, &bytes, NULL) == ONQ_OK && *sum + bytes >= *sum)
        *sum += bytes;
    return ONQ_OK;
}

onq_code oq_compare_models(const oq_compare *how, oq_arena *scratch, oq_model *a, oq_model *b,
                           onq_error *err) {
    oq_cmp c = {.how = how, .arena = scratch, .a = a, .b = b, .where = OQ_S(""), .depth = 1};
    oq_buf_init(&c.line, &a->env->alloc);
    onq_code rc = oq_walk_tensors(a, add_bytes, &c.bytes_total, err);
    if (rc == ONQ_OK)
        rc = compare_all(&c, err);
    oq_buf_release(&c.line);
    return rc;
}
