/*
 * again.h — the commands that make such a quantized model again, as far as the model shows how it
 * was made: its types, whether weights have a scale for each channel, which nodes and outputs are
 * quantized. The samples and their options are those of the job.
 */
#pragma once

#include "api/options/command.h"
#include "debug/debug.h"
#include "onnx/summary/summary.h"
#include "tune/recipe.h"

typedef struct oq_again {
    oq_recipe recipe;
    oq_recipe prepare; /* command NULL: the float model was not prepared first */
} oq_again;

/* Texts go to the job's arena. `q`: what is quantized in d->made. */
onq_code oq_again_find(oq_job *job, const oq_debug *d, const oq_quantized *q, oq_again *out,
                       onq_error *err);
/* The commands, one a line, that make `output` from the float model. */
void oq_again_text(const oq_again *a, const char *input, const char *output, oq_buf *out);
/* True for a weight that could have a scale for each channel. */
bool oq_again_has_channels(const oq_debug_weight *w);
/* A list of names as the value of an option; NULL: out of memory. */
const char *oq_again_list(oq_job *job, const oq_str *names, size_t n);
