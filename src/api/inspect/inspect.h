/*
 * inspect.h — between the files of `onq inspect`: api_inspect.c, inspect_work.c and inspect_page.c.
 */
#pragma once

#include "api/options/command.h"
#include "onnx/summary/summary.h"
#include "quantize/cost/profile.h"

/* 1234567 as "1,234,567"; bytes as "812 bytes", "18.9 MB" (powers of 1000, as usual for files);
 * work as "41.2 million". */
const char *oq_inspect_number(char b[32], uint64_t v);
const char *oq_inspect_bytes(char b[32], uint64_t v);
/* Text of a model, cut where it is long and free of control bytes. */
void oq_inspect_name(oq_buf *b, oq_str s);

/* Multiply-accumulates, what of them is float, and the memory of activations. */
void oq_inspect_work(oq_job *job, const oq_profile *p);
/* The largest constants. */
onq_code oq_inspect_weights(oq_job *job, const oq_profile *p, onq_error *err);
/* --nodes and --tensors. */
void oq_inspect_nodes(oq_job *job, const oq_profile *p);
void oq_inspect_tensors(oq_job *job, const oq_profile *p);
/* -o: the model as a page. */
extern const unsigned char oq_inspect_page[];
extern const size_t oq_inspect_page_size;
onq_code oq_inspect_save_page(oq_job *job, const oq_model *m, const oq_summary *s,
                              const oq_profile *p, onq_error *err);

/* For a quantized model: which forms `onq convert` can give it, and which are exact. */
onq_code oq_inspect_forms(oq_job *job, oq_model *m, bool quantized, onq_error *err);
