/*
 * check_parts.h — what the files of the model check share (check.c, check_graph.c, check_tensor.c).
 */
#pragma once

#include "onnx/graph.h"
#include "onnx/model.h"

/* The opset_import list of a model or of a function. */
typedef struct oq_imports {
    oq_opset *const *v;
    size_t n;
    bool implied; /* IR version below 3 names no opsets: the default domain is there */
} oq_imports;

typedef struct oq_check {
    oq_model *m;
    oq_arena arena; /* indices of the graphs; released at the end */
    oq_index *main; /* NULL, or where that of the main graph goes, with an arena of its own */
} oq_check;

/* One graph and all inside it: names, producers, inputs, cycles, attributes, types; domains unless
 * imports is NULL. */
onq_code oq_check_graph(oq_check *c, oq_graph *g, const oq_imports *imports, onq_error *err);
/* A list of nodes alone, as in a function: `given` names are available. */
onq_code oq_check_function(oq_check *c, oq_function *f, const oq_imports *imports, onq_error *err);
/* Payload size = dims x type, of whatever storage. The signature is oq_tensor_fn's; ctx is an
 * oq_check. */
onq_code oq_check_tensor(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err);
