/*
 * lifted.h — a model of integer operators with pairs in their place (quantize/convert), so that it
 * can be searched like any other (debug/search/search.h).
 */
#pragma once

#include "api/options/command.h"
#include "debug/debug.h"

typedef struct oq_lifted {
    const char *folder; /* of the file; removed in the end */
    oq_model *model;    /* NULL: nothing was lifted */
    oq_debug d;         /* matched with the float model, as `given` is */
} oq_lifted;

/* True if the main graph has operators that take and give integers. */
bool oq_lifted_needs(const oq_debug *given);
/* Reads the model of `given` again and lifts it. Release it also when this fails. */
onq_code oq_lifted_open(oq_lifted *x, oq_job *job, const oq_debug *given, onq_error *err);
void oq_lifted_release(oq_lifted *x);
