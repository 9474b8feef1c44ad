/*
 * remedy_rows.h — what the rows of the table of remedies are made of: whether a remedy makes sense
 * (`prepare`), whether the tensors speak for it (`is_likely`, `is_sure`), and the sentence that names
 * its cause (`say`). See remedies.h.
 */
#pragma once

#include "api/causes/remedies.h"
#include "debug/search/search.h"

/* Words that sentences share, and the row of `d` that shows a cause. */
void oq_remedy_db(oq_buf *out, double v);
void oq_remedy_name(oq_buf *out, oq_str name);
uint32_t oq_remedy_weight_row(const oq_diagnosing *g, const oq_debug_weight *w);
uint32_t oq_remedy_act_row(const oq_diagnosing *g, const oq_debug_act *a);
bool oq_remedy_has_option(const oq_recipe *r, const oq_recipe_option *o);

/* remedy_weights.c */
onq_code oq_remedy_prepare_float(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err);
uint32_t oq_remedy_say_prepare(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
onq_code oq_remedy_has_tensor_weights(oq_diagnosing *g, oq_again *how, const char **input,
                                      bool *applies, onq_error *err);
bool oq_remedy_has_outlier_channels(const oq_diagnosing *g);
uint32_t oq_remedy_say_per_channel(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
onq_code oq_remedy_has_fewer_than_4(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err);
onq_code oq_remedy_has_fewer_than_8(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err);
onq_code oq_remedy_has_large_blocks(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err);
onq_code oq_remedy_has_small_type(oq_diagnosing *g, oq_again *how, const char **input,
                                  bool *applies, onq_error *err);
uint32_t oq_remedy_say_few_bits(const oq_diagnosing *g, const oq_try *t, oq_buf *out);

/* remedy_ranges.c */
onq_code oq_remedy_has_mask(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                            onq_error *err);
uint32_t oq_remedy_say_mask(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
onq_code oq_remedy_is_symmetric(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                onq_error *err);
uint32_t oq_remedy_say_symmetric(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
uint32_t oq_remedy_say_ranges(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
bool oq_remedy_has_stretched(const oq_diagnosing *g);
bool oq_remedy_has_uneven(const oq_diagnosing *g);
uint32_t oq_remedy_say_channels(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
uint32_t oq_remedy_say_shifted(const oq_diagnosing *g, const oq_try *t, oq_buf *out);

/* remedy_floats.c */
onq_code oq_remedy_leave_inputs(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                onq_error *err);
uint32_t oq_remedy_say_inputs(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
bool oq_remedy_has_amplifiers(const oq_diagnosing *g);
onq_code oq_remedy_leave_amplifier(oq_diagnosing *g, oq_again *how, const char **input,
                                   bool *applies, onq_error *err);
onq_code oq_remedy_leave_results(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err);
onq_code oq_remedy_leave_all_before(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err);
uint32_t oq_remedy_say_amplified(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
onq_code oq_remedy_leave_arithmetic(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err);
uint32_t oq_remedy_say_arithmetic(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
uint32_t oq_remedy_say_outputs(const oq_diagnosing *g, const oq_try *t, oq_buf *out);

/* remedy_runtime.c */
onq_code oq_remedy_saturates(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                             onq_error *err);
uint32_t oq_remedy_say_saturates(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
onq_code oq_remedy_requantizes(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                               onq_error *err);
uint32_t oq_remedy_say_requantizes(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
