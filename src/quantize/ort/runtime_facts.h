/*
 * runtime_facts.h — what versions of ONNX Runtime can run: the table runtime.def, which
 * bench/measure_runtimes.py measured.
 */
#pragma once

#include "base/err.h"
#include "onnx/model.h"

typedef struct oq_runtime {
    unsigned minor;      /* 20 of 1.20.1 */
    const char *version; /* that was measured */
    int64_t opset, ir;   /* the newest that it runs */
} oq_runtime;

/* The forms that were tried. */
typedef enum oq_runtime_form {
#define OQ_CAN(name, marks, about) OQ_CAN_##name,
#include "quantize/ort/runtime.def"
    OQ_CAN_COUNT /* nothing that was tried */
} oq_runtime_form;

/* The row of "1.20" or "1.20.1"; NULL: not one of those that were measured. */
const oq_runtime *oq_runtime_find(const char *version);
/* The oldest and the newest of them. */
const oq_runtime *oq_runtime_oldest(void);
const oq_runtime *oq_runtime_newest(void);

/* True if the runtime loads the form and computes the right thing, with its optimisations and
 * without. */
bool oq_runtime_can(const oq_runtime *r, oq_runtime_form form);
/* What the form is, in words, and the first runtime from which on all can run it; NULL: none. */
const char *oq_runtime_about(oq_runtime_form form);
const oq_runtime *oq_runtime_since(oq_runtime_form form);
/* The form that is named after an operator; OQ_CAN_COUNT. */
oq_runtime_form oq_runtime_form_named(oq_str type);

/* The opset that a node of the default domain cannot go below, where that is above 21: it is an
 * operator, or has an attribute or an input, that came with it. */
int64_t oq_runtime_node_opset(const oq_node *n);
