/*
 * bench_show.h — what bench found, as text and as JSON, and whether it reaches the targets.
 *
 *   c->order = oq_bench_worst_first(b, c);    for each model, after oq_bench_compare
 *   oq_bench_check_targets(b, &err);          the targets may not fit the model
 *   oq_bench_show(b);                         once everything was timed
 */
#pragma once

#include "api/bench/bench_compare.h"

/* The outputs in the order of their agreement, worst first; states, which are no answers, come
 * last. */
size_t *oq_bench_worst_first(oq_bench *b, const oq_bench_contender *c);
/* Fails for a target that these outputs have no figure for. */
onq_code oq_bench_check_targets(oq_bench *b, onq_error *err);
/* Sorts the times and writes all there is into the text and the JSON of the job. */
void oq_bench_show(oq_bench *b);
