/*
 * preprocess.h — the steps that prepare a float model for quantization (the reference's
 * quant_pre_process).
 *
 *     oq_prep_shapes(m, symbolic options ...)    types and shapes into the model
 *     oq_prep_optimize_ort(...)                  ONNX Runtime's basic optimisation
 *     oq_optimize(...)                           or ours (optimize.h)
 *     oq_prep_shapes(m, NULL ...)                what onnx itself infers
 *     oq_prep_mark(m)                            says that it was done
 *
 * What the runtime writes goes to a file without a name (or, past 2 GB, to a folder that is removed
 * before the call returns): nothing is left behind.
 */
#pragma once

#include "engine/engine.h"
#include "shape/shape.h"

/* Infers and writes the results into the model; report may be NULL. opts as for oq_shapes_infer. A
 * symbolic inference that stays incomplete warns and names the first node. */
onq_code oq_prep_shapes(oq_model *m, const oq_shape_options *opts, oq_shape_report *report,
                        onq_error *err);

/* Replaces *m by what the runtime's basic optimisation makes of it. `so` has threads, provider and
 * custom operators; `near` is a path in whose folder temporary data may lie. A model of more than
 * `most_inline` bytes (0: 1.9 GB) goes through external data. On failure *m stays. */
onq_code oq_prep_optimize_ort(oq_engine *e, const oq_session_options *so, const char *near,
                              uint64_t most_inline, oq_model **m, onq_error *err);

/* metadata_props "onnx.quant.pre_process": "onnxruntime.quant", in front of the others. */
onq_code oq_prep_mark(oq_model *m, onq_error *err);
/* The same for any key: a value that is there stays. */
onq_code oq_prep_mark_first(oq_model *m, oq_str key, oq_str value, onq_error *err);
