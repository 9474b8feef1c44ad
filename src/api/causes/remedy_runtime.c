/*
 * remedy_runtime.c — remedies against what the runtime itself adds.
 */
#include "api/causes/remedy_rows.h"

/* ---- what only the runtime does ---- */

onq_code oq_remedy_saturates(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                             onq_error *err) {
    (void)how, (void)input, (void)err;
    *applies = oq_debug_kernel_loss(g->d) != NULL;
    return ONQ_OK;
}

static void say_gap(const oq_diagnosing *g, oq_buf *out) {
    const oq_debug_output *o = oq_debug_kernel_gap(g->d);
    if (o == NULL)
        return;
    oq_buf_adds(out, ": ");
    oq_remedy_db(out, oq_sums_sqnr(&o->optimised));
    oq_buf_adds(out, " in a default session and ");
    oq_remedy_db(out, oq_sums_sqnr(&o->plain));
    oq_buf_adds(out, " without its optimisations");
}

uint32_t oq_remedy_say_saturates(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)t;
    oq_buf_adds(out, "Sums of the runtime's kernels saturate on this CPU");
    say_gap(g, out);
    oq_buf_adds(out, ".");
    return OQ_NO_ROW;
}

/* Nodes that were left float, and the runtime makes integers of them. */
onq_code oq_remedy_requantizes(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                               onq_error *err) {
    (void)input, (void)err;
    *applies = oq_debug_kernel_loss(g->d) == NULL && oq_debug_kernel_gap(g->d) != NULL &&
               oq_recipe_get(&how->recipe, "nodes_to_exclude") != NULL;
    return ONQ_OK;
}

uint32_t oq_remedy_say_requantizes(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)t;
    oq_buf_adds(out, "The runtime quantizes weights that were left float, because their neighbours "
                     "are quantized");
    say_gap(g, out);
    oq_buf_adds(out, ".");
    return OQ_NO_ROW;
}
