/*
 * attr.h — attributes of a node by name.
 */
#pragma once

#include "onnx/codec/message.h"

typedef enum oq_attr_type {
    OQ_ATTR_UNDEFINED = 0,
    OQ_ATTR_FLOAT = 1,
    OQ_ATTR_INT = 2,
    OQ_ATTR_STRING = 3,
    OQ_ATTR_TENSOR = 4,
    OQ_ATTR_GRAPH = 5,
    OQ_ATTR_FLOATS = 6,
    OQ_ATTR_INTS = 7,
    OQ_ATTR_STRINGS = 8,
    OQ_ATTR_TENSORS = 9,
    OQ_ATTR_GRAPHS = 10,
    OQ_ATTR_SPARSE_TENSOR = 11,
    OQ_ATTR_SPARSE_TENSORS = 12,
    OQ_ATTR_TYPE_PROTO = 13,
    OQ_ATTR_TYPE_PROTOS = 14
} oq_attr_type;

/* NULL when the node has none of that name. */
oq_attribute *oq_attr_find(const oq_node *n, const char *name);
/* Value or the fallback when absent (or of another type). */
int64_t oq_attr_int(const oq_node *n, const char *name, int64_t fallback);
float oq_attr_float(const oq_node *n, const char *name, float fallback);
oq_str oq_attr_str(const oq_node *n, const char *name, const char *fallback);
/* NULL when absent. */
const oq_i64s *oq_attr_ints(const oq_node *n, const char *name);

/* Sets or adds; false when out of memory. Values are copied, texts are not. */
bool oq_attr_set_int(oq_arena *a, oq_node *n, oq_str name, int64_t v);
bool oq_attr_set_float(oq_arena *a, oq_node *n, oq_str name, float v);
bool oq_attr_set_str(oq_arena *a, oq_node *n, oq_str name, oq_str v);
bool oq_attr_set_ints(oq_arena *a, oq_node *n, oq_str name, const int64_t *v, size_t count);
bool oq_attr_set_tensor(oq_arena *a, oq_node *n, oq_str name, oq_tensor *t);
bool oq_attr_set_graph(oq_arena *a, oq_node *n, oq_str name, oq_graph *g);
/* Removes; true if it was there. */
bool oq_attr_remove(oq_node *n, const char *name);
