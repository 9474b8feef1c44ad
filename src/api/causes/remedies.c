/*
 * remedies.c — see remedies.h.
 */
#include "api/causes/remedies.h"

#include "api/causes/faults.h"
#include "api/causes/remedy_rows.h"

#include <math.h>

/* ---- words ---- */

void oq_remedy_db(oq_buf *out, double v) {
    if (isinf(v))
        oq_buf_adds(out, v > 0 ? "no loss" : "NaN or infinity");
    else
        oq_buf_addf(out, "%.1f dB", v);
}

void oq_remedy_name(oq_buf *out, oq_str name) {
    oq_buf_addc(out, '\'');
    oq_buf_add_safe(out, name.n > 60 ? (oq_str){name.p + name.n - 60, 60} : name);
    oq_buf_addc(out, '\'');
}

uint32_t oq_remedy_weight_row(const oq_diagnosing *g, const oq_debug_weight *w) {
    return w != NULL ? (uint32_t)(w - g->d->weights.v) : OQ_NO_ROW;
}

uint32_t oq_remedy_act_row(const oq_diagnosing *g, const oq_debug_act *a) {
    return a != NULL ? (uint32_t)(g->d->weights.n + (size_t)(a - g->d->acts.v)) : OQ_NO_ROW;
}

bool oq_remedy_has_option(const oq_recipe *r, const oq_recipe_option *o) {
    const char *value = oq_recipe_get(r, o->name);
    return value != NULL && (o->value == NULL || strcmp(value, o->value) == 0);
}

/* `prepare` asks already: the remedy makes no sense where nothing shows that it is needed. */
static bool is_asked(const oq_diagnosing *g) {
    (void)g;
    return true;
}

/* ---- the table ---- */

#define SAME  .same_ranges = true
#define LEAVE .same_ranges = true, .leaves_float = true

const oq_remedy oq_remedies[] = {
    {"not_prepared", .commands = OQ_FOR_STATIC | OQ_FOR_DYNAMIC, .is_free = true,
     .prepare = oq_remedy_prepare_float, .is_likely = is_asked, .say = oq_remedy_say_prepare},
    {"saturation",
     {{"saturation_safe", NULL}},
     SAME,
     .of_runtime = true,
     .prepare = oq_remedy_saturates,
     .say = oq_remedy_say_saturates},
    {"requantized",
     {{"keep_excluded_float", NULL}},
     SAME,
     .of_runtime = true,
     .prepare = oq_remedy_requantizes,
     .say = oq_remedy_say_requantizes},
    {"per_channel",
     {{"per_channel", NULL}},
     .commands = OQ_FOR_STATIC | OQ_FOR_DYNAMIC,
     SAME,
     .is_free = true,
     .prepare = oq_remedy_has_tensor_weights,
     .is_likely = is_asked,
     .is_sure = oq_remedy_has_outlier_channels,
     .say = oq_remedy_say_per_channel},
    {"few_bits", .drops = "weight_type", SAME, .prepare = oq_remedy_has_small_type,
     .is_likely = is_asked, .is_sure = is_asked, .say = oq_remedy_say_few_bits},
    {"mask",
     {{"masks", "float"}},
     .prepare = oq_remedy_has_mask,
     .is_likely = is_asked,
     .is_sure = is_asked,
     .say = oq_remedy_say_mask},
    {"symmetric", .drops = "activation_symmetric", SAME, .is_free = true,
     .prepare = oq_remedy_is_symmetric, .is_likely = is_asked, .say = oq_remedy_say_symmetric},
    {"stretched_ranges",
     {{"calibration_method", "mse"}},
     .is_likely = oq_remedy_has_stretched,
     .say = oq_remedy_say_ranges},
    {"stretched_ranges",
     {{"calibration_method", "percentile"}, {"calib_percentile", "99.99"}},
     .is_likely = oq_remedy_has_stretched,
     .say = oq_remedy_say_ranges},
    {"input_range", LEAVE, .is_local = true, .prepare = oq_remedy_leave_inputs,
     .is_likely = is_asked, .say = oq_remedy_say_inputs},
    {"amplified", LEAVE, .is_local = true, .prepare = oq_remedy_leave_amplifier,
     .is_likely = oq_remedy_has_amplifiers, .say = oq_remedy_say_amplified},
    {"amplified", LEAVE, .prepare = oq_remedy_leave_results, .is_likely = oq_remedy_has_amplifiers,
     .say = oq_remedy_say_amplified},
    {"amplified", LEAVE, .prepare = oq_remedy_leave_all_before, .say = oq_remedy_say_amplified},
    {"channels",
     {{"equalize", NULL}},
     .is_likely = oq_remedy_has_uneven,
     .say = oq_remedy_say_channels},
    {"channels",
     {{"channel_ranges", "both"}},
     .is_likely = oq_remedy_has_uneven,
     .say = oq_remedy_say_channels},
    {"channels",
     {{"outlier_channels", "8"}},
     .is_likely = oq_remedy_has_uneven,
     .say = oq_remedy_say_channels},
    {"shifted_means", {{"bias_correction", NULL}}, .say = oq_remedy_say_shifted},
    {"arithmetic", LEAVE, .prepare = oq_remedy_leave_arithmetic, .say = oq_remedy_say_arithmetic},
    {"outputs", {{"op_set", "noout"}}, LEAVE, .say = oq_remedy_say_outputs},
    {"few_bits",
     {{"block_size", "32"}},
     .commands = OQ_FOR_NBITS,
     .prepare = oq_remedy_has_large_blocks,
     .is_likely = is_asked,
     .say = oq_remedy_say_few_bits},
    {"few_bits",
     {{"bits", "4"}},
     .commands = OQ_FOR_NBITS,
     .prepare = oq_remedy_has_fewer_than_4,
     .is_likely = is_asked,
     .say = oq_remedy_say_few_bits},
    {"few_bits",
     {{"bits", "8"}},
     .commands = OQ_FOR_NBITS,
     .prepare = oq_remedy_has_fewer_than_8,
     .is_likely = is_asked,
     .say = oq_remedy_say_few_bits},
};
const size_t oq_remedy_count = OQ_COUNT(oq_remedies);

onq_code oq_remedy_apply(oq_diagnosing *g, const oq_remedy *r, oq_again *how, const char **input,
                         bool *applies, onq_error *err) {
    *applies = true;
    if (r->prepare != NULL)
        OQ_TRY(r->prepare(g, how, input, applies, err));
    if (r->drops != NULL)
        oq_recipe_drop(&how->recipe, r->drops);
    for (size_t i = 0; *applies && i < OQ_COUNT(r->options) && r->options[i].name != NULL; i++) {
        *applies = !oq_remedy_has_option(&how->recipe, &r->options[i]);
        oq_recipe_drop(&how->recipe, r->options[i].name);
        OQ_TRY(oq_recipe_add(&how->recipe, &g->job->arena, r->options[i].name, r->options[i].value,
                             err));
    }
    return ONQ_OK;
}

bool oq_remedy_is_for(const oq_remedy *r, const char *command) {
    const unsigned bit = strcmp(command, "dynamic") == 0 ? OQ_FOR_DYNAMIC
                         : strcmp(command, "nbits") == 0 ? OQ_FOR_NBITS
                                                         : OQ_FOR_STATIC;
    return ((r->commands != 0 ? r->commands : OQ_FOR_STATIC) & bit) != 0;
}

onq_code oq_remedy_say(const oq_diagnosing *g, const oq_try *t, oq_buf *out, uint32_t *row,
                       onq_error *err) {
    if (t->row == oq_remedy_count)
        return oq_fault_say(g, t, out, row, err);
    *row = oq_remedies[t->row].say(g, t, out);
    return ONQ_OK;
}
