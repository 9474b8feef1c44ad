/*
 * remedy_ranges.c — remedies for ranges of activations, and for channels and means of them.
 */
#include "api/causes/remedy_rows.h"

#include <math.h>

/* ---- ranges of activations ---- */

static const oq_debug_act *worst_act(const oq_diagnosing *g, unsigned reasons) {
    const oq_debug_act *worst = NULL;
    for (size_t i = 0; i < g->d->acts.n; i++) {
        const oq_debug_act *a = &g->d->acts.v[i];
        if ((reasons & 1u << a->verdict.reason) != 0 &&
            (worst == NULL || a->verdict.rank < worst->verdict.rank))
            worst = a;
    }
    return worst;
}

onq_code oq_remedy_has_mask(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                            onq_error *err) {
    (void)how, (void)input, (void)err;
    *applies = worst_act(g, 1u << OQ_DEBUG_MASK) != NULL;
    return ONQ_OK;
}

uint32_t oq_remedy_say_mask(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, 1u << OQ_DEBUG_MASK);
    (void)t;
    assert(a != NULL); /* as oq_remedy_has_mask has seen */
    oq_buf_adds(out, "A mask stretches the range of ");
    oq_remedy_name(out, a->name);
    oq_buf_addf(out, " to %.3g; the other values lie between %.3g and %.3g and share few steps.",
                a->q_lo, (double)a->lo, (double)a->hi);
    return oq_remedy_act_row(g, a);
}

onq_code oq_remedy_is_symmetric(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = oq_recipe_get(&how->recipe, "activation_symmetric") != NULL;
    return ONQ_OK;
}

uint32_t oq_remedy_say_symmetric(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, 1u << OQ_DEBUG_SKEWED);
    (void)t;
    oq_buf_adds(out, "The ranges of activations are symmetric about zero, but the values are not");
    if (a != NULL) {
        oq_buf_adds(out, ": half of the range of ");
        oq_remedy_name(out, a->name);
        oq_buf_adds(out, " is not used");
    }
    oq_buf_adds(out, ".");
    return oq_remedy_act_row(g, a);
}

#define STRETCHED (1u << OQ_DEBUG_WIDE | 1u << OQ_DEBUG_OUTLIERS)

uint32_t oq_remedy_say_ranges(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, STRETCHED);
    (void)t;
    oq_buf_adds(out, "A few large values stretch the ranges of activations");
    if (a != NULL && a->local.n > 0) {
        oq_buf_adds(out, ": ");
        oq_remedy_name(out, a->name);
        oq_buf_addf(out,
                    " has the range %.3g to %.3g, and its values have a root mean square of %.3g",
                    a->q_lo, a->q_hi, sqrt(a->local.xx / (double)a->local.n));
    }
    oq_buf_adds(out, ".");
    return oq_remedy_act_row(g, a);
}

bool oq_remedy_has_stretched(const oq_diagnosing *g) {
    return worst_act(g, STRETCHED) != NULL;
}

/* ---- channels ---- */

bool oq_remedy_has_uneven(const oq_diagnosing *g) {
    return worst_act(g, STRETCHED | 1u << OQ_DEBUG_FEW_BITS) != NULL;
}

uint32_t oq_remedy_say_channels(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_act *a = worst_act(g, STRETCHED | 1u << OQ_DEBUG_FEW_BITS);
    (void)t;
    oq_buf_adds(out, "The channels of activations differ much in size, and share one range");
    if (a != NULL) {
        oq_buf_adds(out, ": worst in ");
        oq_remedy_name(out, a->name);
    }
    oq_buf_adds(out, ".");
    return oq_remedy_act_row(g, a);
}

uint32_t oq_remedy_say_shifted(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    (void)g, (void)t;
    oq_buf_adds(out, "Rounding shifts the means of what products compute, and the shifts add up; "
                     "biases that are corrected take them back.");
    return OQ_NO_ROW;
}
