/*
 * attr.c — attributes of a node by name.
 *
 * Models of IR version 1 carry no AttributeProto.type: then the field that is set decides. An
 * attribute of a function body that refers to one of the function's (ref_attr_name) has no value
 * here and reads as absent.
 */
#include "onnx/attr.h"

oq_attribute *oq_attr_find(const oq_node *n, const char *name) {
    const oq_str wanted = oq_str_of(name);
    for (size_t i = 0; i < n->attribute.n; i++)
        if (oq_str_eq(n->attribute.v[i]->name, wanted))
            return n->attribute.v[i];
    return NULL;
}

/* The attribute if it holds a value of that type; `set` says whether the type's field is filled. */
static const oq_attribute *find_typed(const oq_node *n, const char *name, oq_attr_type type) {
    const oq_attribute *a = oq_attr_find(n, name);
    if (a == NULL || a->ref_attr_name.n != 0)
        return NULL;
    if (a->type.v == (int32_t)type)
        return a;
    if (a->type.v != OQ_ATTR_UNDEFINED)
        return NULL;
    switch (type) {
    case OQ_ATTR_INT:
        return a->i.has ? a : NULL;
    case OQ_ATTR_FLOAT:
        return a->f.has ? a : NULL;
    case OQ_ATTR_STRING:
        return a->s.p != NULL ? a : NULL;
    case OQ_ATTR_INTS:
        return a->ints.n != 0 ? a : NULL;
    default:
        return NULL;
    }
}

int64_t oq_attr_int(const oq_node *n, const char *name, int64_t fallback) {
    const oq_attribute *a = find_typed(n, name, OQ_ATTR_INT);
    return a != NULL ? a->i.v : fallback;
}

float oq_attr_float(const oq_node *n, const char *name, float fallback) {
    const oq_attribute *a = find_typed(n, name, OQ_ATTR_FLOAT);
    return a != NULL ? a->f.v : fallback;
}

oq_str oq_attr_str(const oq_node *n, const char *name, const char *fallback) {
    const oq_attribute *a = find_typed(n, name, OQ_ATTR_STRING);
    if (a == NULL)
        return oq_str_of(fallback);
    return a->s.p != NULL ? a->s : OQ_S("");
}

const oq_i64s *oq_attr_ints(const oq_node *n, const char *name) {
    const oq_attribute *a = find_typed(n, name, OQ_ATTR_INTS);
    return a != NULL ? &a->ints : NULL;
}

/* The attribute `name`, emptied of its value and given a type, or a new one; NULL: out of
 * memory. */
static oq_attribute *prepare(oq_arena *a, oq_node *n, oq_str name, oq_attr_type type) {
    for (size_t i = 0; i < n->attribute.n; i++) {
        oq_attribute *old = n->attribute.v[i];
        if (!oq_str_eq(old->name, name))
            continue;
        const oq_attribute kept = {.m = old->m,
                                   .name = old->name,
                                   .doc_string = old->doc_string,
                                   .type = OQ_I32((int32_t)type)};
        *old = kept;
        return old;
    }
    oq_attribute *fresh = OQ_NEW(a, oq_attribute);
    if (fresh == NULL || !OQ_PUSH(a, &n->attribute, fresh))
        return NULL;
    fresh->name = name;
    fresh->type = OQ_I32((int32_t)type);
    return fresh;
}

#define SETTER(name, type, kind, field, value)                                                     \
    bool oq_attr_set_##name(oq_arena *a, oq_node *n, oq_str called, type v) {                      \
        oq_attribute *attr = prepare(a, n, called, kind);                                          \
        if (attr != NULL)                                                                          \
            attr->field = value;                                                                   \
        return attr != NULL;                                                                       \
    }
SETTER(int, int64_t, OQ_ATTR_INT, i, OQ_I64(v))
SETTER(float, float, OQ_ATTR_FLOAT, f, OQ_F32(v))
SETTER(str, oq_str, OQ_ATTR_STRING, s, v.p != NULL ? v : OQ_S(""))
SETTER(tensor, oq_tensor *, OQ_ATTR_TENSOR, t, v)
SETTER(graph, oq_graph *, OQ_ATTR_GRAPH, g, v)

/* The values are copied before the attribute is emptied: they may be its own. */
bool oq_attr_set_ints(oq_arena *a, oq_node *n, oq_str name, const int64_t *v, size_t count) {
    assert(v != NULL || count == 0);
    int64_t *copy = OQ_NEW_ARRAY(a, int64_t, count);
    if (copy == NULL)
        return false;
    if (count != 0)
        memcpy(copy, v, count * sizeof *v);
    oq_attribute *attr = prepare(a, n, name, OQ_ATTR_INTS);
    if (attr == NULL)
        return false;
    attr->ints.v = copy;
    attr->ints.n = attr->ints.cap = count;
    return true;
}

bool oq_attr_remove(oq_node *n, const char *name) {
    const oq_str wanted = oq_str_of(name);
    for (size_t i = 0; i < n->attribute.n; i++) {
        if (oq_str_eq(n->attribute.v[i]->name, wanted)) {
            OQ_REMOVE_AT(&n->attribute, i);
            return true;
        }
    }
    return false;
}
