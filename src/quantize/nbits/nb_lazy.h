/*
 * nb_lazy.h — quantized weights as payloads of tensors: the three parts of a weight are made in one
 * go, when the first of them is written.
 */
#pragma once

#include "quantize/nbits/nb_task.h"

typedef struct oq_nb_lazy oq_nb_lazy;
/* Producers in the arena; oq_nb_lazy_release frees what was made and never taken. */
onq_code oq_nb_lazy_new(oq_arena *a, const oq_nb_task *t, oq_nb_lazy **out, onq_error *err);
const oq_nb_task *oq_nb_lazy_task(const oq_nb_lazy *z);
const oq_producer *oq_nb_lazy_part(const oq_nb_lazy *z, unsigned part);
/* Makes all parts now, from what was learned, and keeps them until the release. */
onq_code oq_nb_lazy_make(oq_nb_lazy *z, const struct oq_nb_learned *learned, onq_error *err);
/* The part that is written first, and makes the others. */
void oq_nb_lazy_leads(oq_nb_lazy *z, unsigned part);
void oq_nb_lazy_release(oq_nb_lazy *z);
