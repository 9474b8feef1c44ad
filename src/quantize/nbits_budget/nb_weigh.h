/*
 * nb_weigh.h — what harm the noise of each weight does to the outputs of a model, from few runs.
 *
 * One session holds the float model with a switch at every weight: an If whose one branch is the
 * product as it was, and whose other is the product with the weight in few bits. To run a sample
 * with some weights quantized is to set some inputs.
 *
 *     oq_nb_weigher *w = NULL;
 *     OQ_TRY(oq_nb_weigher_new(&job, &w, err));
 *     budget.see = oq_nb_weigher_see, budget.weigh = oq_nb_weigher_weigh;
 *     budget.judge = oq_nb_weigher_judge, budget.ctx = w;
 *     ... oq_nb_spend ...
 *     oq_nb_weigher_free(w);
 *
 * A small model runs once for each weight. A large one runs once for each layer and once for each
 * kind of weight (all value projections, say): the harm of a weight is what both say together. The
 * weights of the layers that do half of all harm then run one by one.
 */
#pragma once

#include "quantize/nbits_method/nb_learn.h"

typedef struct oq_nb_weigher oq_nb_weigher;

onq_code oq_nb_weigher_new(const oq_nb_learn_job *job, oq_nb_weigher **out, onq_error *err);
void oq_nb_weigher_free(oq_nb_weigher *w);
/* As oq_nb_budget takes them, with the weigher as context. */
onq_code oq_nb_weigher_see(void *w, oq_nb_weighed *all, size_t n, onq_error *err);
onq_code oq_nb_weigher_weigh(void *w, oq_nb_weighed *all, size_t n, onq_error *err);
onq_code oq_nb_weigher_judge(void *w, double *harm, onq_error *err);
/* Runs of single samples so far. */
size_t oq_nb_weigher_runs(const oq_nb_weigher *w);
