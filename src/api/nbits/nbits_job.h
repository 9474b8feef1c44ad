/*
 * nbits_job.h — what the files of `onq nbits` and `onq bnb4` share.
 */
#pragma once

#include "api/quantizing/quantization.h"
#include "quantize/nbits/nb_import.h"
#include "quantize/nbits_budget/nb_weigh.h"

typedef struct oq_nbits {
    oq_quant q;
    oq_nb_config config;
    oq_nb_made made;
    oq_nb_import import;
    bool auto_level;
} oq_nbits;

/* ---- nbits_tell.c ---- */

/* Of few bits, before the work begins, which may take an hour. */
onq_code oq_nbits_warn_of_noise(oq_nbits *r, onq_error *err);
/* Of what gptq could not make up for, before anything is written. */
void oq_nbits_warn_of_rest_noise(const oq_nbits *r, const oq_nb_learn_job *job);
/* How much gptq looked at, and where the time went. */
void oq_nbits_tell_learned(oq_nbits *r, const oq_nb_learn_job *job);
/* The bits that --target_bits gave. */
void oq_nbits_tell_spent(const oq_nbits *r, const oq_nb_budget *b, size_t runs);
/* Names among the options that no node has. */
onq_code oq_nbits_report_names(oq_nbits *r, onq_error *err);
/* Of nodes that stay float, and of ratios that nothing used. */
void oq_nbits_warn_of_rest(const oq_nbits *r);
/* What the file of --weights gave. */
onq_code oq_nbits_tell_import(oq_nbits *r, onq_error *err);
