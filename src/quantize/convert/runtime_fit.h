/*
 * runtime_fit.h — a model as a given version of ONNX Runtime can run it: an opset and an IR that it
 * knows, and quantized weights in a form that it computes rightly (ort/runtime_facts.h).
 */
#pragma once

#include "onnx/model.h"
#include "quantize/ort/runtime_facts.h"

typedef struct oq_runtime_fitted {
    int64_t opset_was, opset, ir_was, ir;
    const char *form; /* what the weights became, in words; NULL: they are as they were */
    size_t n_form;    /* nodes that were rewritten for it */
} oq_runtime_fitted;

/* Rewrites the model. ONQ_E_UNSUPPORTED names the first node that the runtime cannot run in any form
 * that is exact. */
onq_code oq_runtime_fit(oq_model *m, const oq_runtime *r, oq_runtime_fitted *out, onq_error *err);
/* True if the model had to be changed. */
bool oq_runtime_fit_changed(const oq_runtime_fitted *f);
