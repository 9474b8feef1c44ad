/*
 * budget.h — how much the search for a cause may cost: ten times bare inference of the samples, in
 * CPU time and from the beginning of the command on. A small model has OQ_BUDGET_FLOOR seconds in
 * any case: there, loading sessions takes longer than the samples do. Runs are limited too, so that
 * small models end at the same try on every machine.
 *
 * A remedy that cost so much before that it would not be finished is not begun, and one that is
 * being made when only the time to measure it is left is given up.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define OQ_BUDGET_TIMES 10
#define OQ_BUDGET_FLOOR 10.0 /* CPU seconds */
#define OQ_BUDGET_RUNS  320  /* of samples, beyond OQ_BUDGET_TIMES for each */

typedef struct oq_budget {
    double began; /* CPU seconds of the process when the command began */
    double bare;  /* CPU seconds: loading the float model and running every sample once */
    double
        kept; /* CPU seconds: measuring a model, and timing the answer; no remedy may use them up */
    uint64_t n_samples, n_runs;
} oq_budget;

/* CPU seconds that the command may take in all. */
static inline double oq_budget_limit(const oq_budget *b) {
    return fmax(OQ_BUDGET_TIMES * b->bare, OQ_BUDGET_FLOOR);
}

static inline uint64_t oq_budget_most_runs(const oq_budget *b) {
    return OQ_BUDGET_TIMES * b->n_samples + OQ_BUDGET_RUNS;
}

/* `now`: CPU seconds of the process. */
static inline bool oq_budget_is_over(const oq_budget *b, double now) {
    return b->n_runs >= oq_budget_most_runs(b) || now - b->began >= oq_budget_limit(b);
}

/* CPU seconds of the process at which what is being made is given up. */
static inline double oq_budget_until(const oq_budget *b) {
    return b->began + oq_budget_limit(b) - b->kept;
}

/* True if `cost` more CPU seconds, what it takes to measure the result among them, are left. */
static inline bool oq_budget_allows(const oq_budget *b, double now, double cost) {
    return !oq_budget_is_over(b, now) && now + cost - b->began <= oq_budget_limit(b);
}
