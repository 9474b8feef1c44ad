/*
 * static_job.h — what the files of `onq static` share: the job, and its steps in the order in which
 * api_static.c takes them.
 */
#pragma once

#include "api/options/choices.h"
#include "api/quantizing/quantization.h"
#include "calibrate/method/method.h"
#include "quantize/choose/extreme.h"
#include "quantize/choose/selection.h"

enum { OQ_FORMAT_QDQ, OQ_FORMAT_QOPERATOR };
#define OQ_FORMATS(ROW) ROW("qdq", OQ_FORMAT_QDQ) ROW("qoperator", OQ_FORMAT_QOPERATOR)
enum { OQ_PRESET_NONE, OQ_PRESET_QDQ, OQ_PRESET_QNN };
#define OQ_PRESETS(ROW)                                                                            \
    ROW("none", OQ_PRESET_NONE) ROW("qdq", OQ_PRESET_QDQ) ROW("qnn", OQ_PRESET_QNN)

typedef struct oq_static {
    oq_quant q;
    oq_cal_method method;
    bool from_cache;
    bool unsaved; /* the ranges were computed and are in no file */
    int format, preset;
    oq_selection selection;
    unsigned rewrite; /* sets of oq_rewrite_set */
    oq_extremes extremes;
    size_t inner_nodes; /* that would be quantized if inner graphs were */
} oq_static;

/* ---- static_check.c: options against each other ---- */

/* Reads what does not depend on the model, and checks it. */
onq_code oq_static_check_options(oq_static *s, onq_error *err);
/* Types, once a preset may have changed them. */
onq_code oq_static_check_types(const oq_static *s, onq_error *err);

/* ---- static_ranges.c: from the caller, a cache or a calibration ---- */

/* Takes ranges that are there already. It comes before the model: a cache knows its method. */
onq_code oq_static_read_ranges(oq_static *s, onq_error *err);
/* Calibrates where there are none, and writes the cache. */
onq_code oq_static_make_ranges(oq_static *s, onq_error *err);

/* ---- static_model.c: what the quantizer will see ---- */

/* Reads --tensor_quant_overrides. */
onq_code oq_static_load_overrides(oq_static *s, onq_error *err);
/* Opens the model, changes it as the options say, infers types, raises the opset, applies the
 * preset and checks overrides. */
onq_code oq_static_prepare(oq_static *s, onq_error *err);
/* Where overrides come from, for messages. */
const char *oq_static_overrides_name(const oq_static *s);
/* A refusal of what an override asks for names the file that it is in. */
onq_code oq_static_blame_overrides(const oq_static *s, onq_code rc, onq_error *err);
/* Opens the runtime, unless it is open. */
onq_code oq_static_open_engine(oq_static *s, onq_error *err);

/* ---- static_warn.c: what the user should know of the result ---- */

void oq_static_warn(const oq_static *s);
