/*
 * node_method.h — how single nodes are quantized: the file of `static --node_methods`.
 *
 * The file is JSON: {"node name": "method", ...}. The methods are rows of node_method.def. A node
 * without a name goes by the name of its first output. A node that the file does not name follows
 * the general options; one that it names follows the file, whatever lists of nodes and operators
 * say. `onq auto` writes such files.
 */
#pragma once

#include "base/env.h"
#include "base/map.h"
#include "base/vec.h"
#include "onnx/codec/message.h"

typedef enum oq_method {
    OQ_METHOD_GENERAL, /* nothing is said of the node */
#define OQ_METHOD(id, name, samples, what) OQ_METHOD_##id,
#include "quantize/choose/node_method.def"
#undef OQ_METHOD
    OQ_METHODS
} oq_method;

/* Channels that "outliers" without a number leaves float. */
#define OQ_OUTLIERS_DEFAULT 8
#define OQ_MAX_OUTLIERS     65536

typedef struct oq_node_method {
    oq_str node;
    oq_method method;
    uint32_t channels; /* outliers: how many are computed in float */
} oq_node_method;

typedef struct oq_node_methods {
    oq_arena *arena;
    OQ_VEC(oq_node_method) all; /* in the order of the file */
    oq_map map;                 /* name -> index in all */
} oq_node_methods;

void oq_node_methods_init(oq_node_methods *m, oq_arena *arena);
/* Reads the file; ONQ_E_CONFIG names node and method. */
onq_code oq_node_methods_load(oq_node_methods *m, const onq_allocator *alloc, const char *path,
                              onq_error *err);
/* What the file says of a node, or NULL. */
const oq_node_method *oq_node_methods_find(const oq_node_methods *m, const oq_node *n);
/* Warns of every name that no node of the graph has; with `strict` the first is an error. */
onq_code oq_node_methods_report(const oq_node_methods *m, const onq_env *env, oq_graph *g,
                                bool strict, onq_error *err);

/* A method as it is written in the file; ONQ_E_CONFIG if it is none. */
onq_code oq_method_parse(oq_str text, oq_node_method *out, onq_error *err);
const char *oq_method_name(oq_method method);
/* The float model is changed by what samples of it show: its ranges become others. */
bool oq_method_needs_samples(oq_method method);
