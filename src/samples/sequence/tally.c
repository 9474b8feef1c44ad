/*
 * tally.c — see tally.h.
 */
#include "samples/sequence/tally.h"

#include <math.h>

onq_code oq_tally_init(oq_tally *t, const onq_allocator *alloc, const oq_roles *roles,
                       size_t n_outputs, onq_error *err) {
    *t = (oq_tally){.roles = roles, .n_outputs = n_outputs};
    oq_arena_init(&t->arena, alloc);
    oq_arena_init(&t->rows, alloc);
    t->outputs = OQ_NEW_ARRAY(&t->arena, oq_agree, n_outputs + 1);
    return t->outputs != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_tally_release(oq_tally *t) {
    if (t->roles == NULL)
        return;
    oq_arena_release(&t->arena);
    oq_arena_release(&t->rows);
    t->roles = NULL;
}

/* ---- places ---- */

static onq_code lengthen(oq_arena *a, void **v, size_t n, size_t to, size_t each, onq_error *err) {
    void *p = oq_arena_array(a, to, each);
    OQ_TRY_ALLOC(p != NULL, err);
    if (n > 0)
        memcpy(p, *v, n * each);
    *v = p;
    return ONQ_OK;
}

static onq_code make_places(oq_tally *t, uint64_t wanted, onq_error *err) {
    const size_t n = t->n_places, k = t->n_outputs;
    const uint64_t places = wanted < OQ_TALLY_PLACES ? wanted : OQ_TALLY_PLACES;
    size_t to = n > 0 ? n : 16;
    t->seen = places > t->seen ? places : t->seen;
    if (places <= n)
        return ONQ_OK;
    while (to < places)
        to *= 2;
    for (size_t i = 0; i < OQ_TALLY_WAYS; i++) {
        void *steps = t->steps[i], *text = t->text[i].by_position;
        OQ_TRY(lengthen(&t->arena, &steps, n * k, to * k + 1, sizeof(oq_agree), err));
        t->steps[i] = steps;
        if (!t->roles->language.is)
            continue;
        OQ_TRY(lengthen(&t->arena, &text, n, to, sizeof(oq_lm_score), err));
        t->text[i].by_position = text;
        t->text[i].n_positions = to;
    }
    t->n_places = to;
    return ONQ_OK;
}

/* ---- one step ---- */

/* The rows of logits after the last tokens stay: the next step has the tokens that follow. */
static onq_code keep_rows(oq_tally *t, const oq_datum *flt, const oq_datum *quantized,
                          onq_error *err) {
    const oq_datum *both[] = {flt, quantized};
    oq_arena *a = &t->rows;
    const onq_allocator *alloc = a->alloc;
    oq_arena_release(a);
    oq_arena_init(a, alloc);
    for (size_t i = 0; i < OQ_COUNT(both); i++)
        OQ_TRY(oq_lm_last_rows(a, both[i], &t->after[i], err));
    return ONQ_OK;
}

static onq_code add_text(oq_tally *t, const oq_tally_step *x, const oq_datum *quantized,
                         const oq_datum *forced, onq_error *err) {
    const oq_language *l = &t->roles->language;
    const oq_datum *ids = l->causal ? &x->inputs[l->ids] : NULL, *flt = &x->flt[l->logits];
    const oq_lm_text text = {
        .ids = ids, .mask = l->mask != OQ_NOWHERE ? &x->inputs[l->mask] : NULL, .past = t->past};
    const uint64_t length = ids != NULL && ids->rank == 2 ? (uint64_t)ids->dims[1] : 1;
    OQ_TRY(make_places(t, t->past + length, err));
    if (t->past > 0 && t->after[0].kind != OQ_DATUM_NONE && t->after[1].kind != OQ_DATUM_NONE)
        oq_lm_follow(&t->text[OQ_FREE], ids, &t->after[0], &t->after[1]);
    oq_lm_add(&t->text[OQ_FREE], &text, flt, quantized);
    if (x->has_forced)
        oq_lm_add(&t->text[OQ_FORCED], &text, flt, forced);
    t->past += length;
    return ids != NULL ? keep_rows(t, flt, quantized, err) : ONQ_OK;
}

static onq_code add_output(oq_tally *t, const oq_tally_step *x, size_t k, onq_error *err) {
    const oq_datum *flt = &x->flt[k], *quantized = x->quantized[k];
    const oq_datum *forced = x->forced != NULL ? x->forced[k] : quantized;
    if (quantized == NULL || forced == NULL) {
        t->outputs[k].differs = true;
        return ONQ_OK;
    }
    if (t->roles->states[k] &&
        oq_dtype_is_float(flt->dtype) != oq_dtype_is_float(quantized->dtype)) {
        t->outputs[k].differs = true; /* a cache of integers is not comparable without its scales */
        return ONQ_OK;
    }
    if (t->roles->states[k]) {
        oq_agree_add_state(&t->outputs[k], flt, quantized, oq_roles_past(t->roles, x->inputs, k));
        return ONQ_OK;
    }
    oq_agree step = {0};
    oq_agree_add(&step, flt, quantized);
    oq_agree_join(&t->outputs[k], &step);
    if (x->step < t->n_places) {
        oq_agree_join(&t->steps[OQ_FREE][x->step * t->n_outputs + k], &step);
        if (x->has_forced)
            oq_agree_add(&t->steps[OQ_FORCED][x->step * t->n_outputs + k], flt, forced);
    }
    if (t->roles->language.is && k == t->roles->language.logits)
        return add_text(t, x, quantized, forced, err);
    return ONQ_OK;
}

onq_code oq_tally_add(oq_tally *t, const oq_tally_step *x, onq_error *err) {
    t->forced |= x->has_forced;
    OQ_TRY(make_places(t, t->roles->language.is ? 1 : x->step + 1, err));
    for (size_t k = 0; k < t->n_outputs; k++)
        OQ_TRY(add_output(t, x, k, err));
    return ONQ_OK;
}

/* ---- sequences ---- */

/* Whether all rows of the first output with classes have the same in front. */
static void judge_sequence(oq_tally *t, const oq_tally *one) {
    for (size_t k = 0; k < one->n_outputs; k++) {
        const oq_agree *a = &one->outputs[k];
        if (one->roles->states[k] || a->rows == 0)
            continue;
        t->sequences++;
        t->kept += a->same == a->rows && !a->differs;
        return;
    }
}

onq_code oq_tally_join(oq_tally *t, const oq_tally *one, onq_error *err) {
    assert(t->n_outputs == one->n_outputs);
    OQ_TRY(make_places(t, one->seen, err));
    t->forced |= one->forced;
    judge_sequence(t, one);
    for (size_t k = 0; k < t->n_outputs; k++)
        oq_agree_join(&t->outputs[k], &one->outputs[k]);
    for (size_t i = 0; i < OQ_TALLY_WAYS; i++) {
        oq_lm_join(&t->text[i], &one->text[i]);
        for (size_t j = 0; j < one->seen * t->n_outputs; j++)
            oq_agree_join(&t->steps[i][j], &one->steps[i][j]);
        for (size_t j = 0; j < one->seen && one->text[i].by_position != NULL; j++)
            oq_lm_join(&t->text[i].by_position[j], &one->text[i].by_position[j]);
    }
    return ONQ_OK;
}

double oq_tally_kept(const oq_tally *t) {
    return t->sequences > 0 ? 100.0 * (double)t->kept / (double)t->sequences : (double)NAN;
}

/* ---- showing ---- */

static bool speaks(const oq_tally *t, size_t k) {
    return t->roles->language.is && k == t->roles->language.logits;
}

/* How near output k is over the places [from, to): dB, or the divergence of a language model. NAN
 * where nothing was compared. */
static double tally_over(const oq_tally *t, oq_tally_way way, size_t k, size_t from, size_t to) {
    oq_agree agree = {0};
    oq_lm_score text = {0};
    for (size_t i = from; i < to && i < t->seen; i++)
        if (speaks(t, k))
            oq_lm_join(&text, &t->text[way].by_position[i]);
        else
            oq_agree_join(&agree, &t->steps[way][i * t->n_outputs + k]);
    return speaks(t, k)                    ? oq_lm_kl(&text)
           : agree.n > 0 && !agree.differs ? oq_agree_sqnr(&agree)
                                           : (double)NAN;
}

static const char *const way_names[] = {[OQ_FREE] = "free", [OQ_FORCED] = "forced"};

void oq_tally_json(const oq_tally *t, size_t k, oq_str name, oq_jw *w) {
    if (t->seen < 2)
        return;
    oq_jw_begin_object(w, "along");
    oq_jw_str(w, "output", name);
    oq_jw_cstr(w, "place", speaks(t, k) ? "token" : "step");
    oq_jw_cstr(w, "figure", speaks(t, k) ? "kl" : "sqnr");
    for (size_t i = 0; i < (t->forced ? OQ_TALLY_WAYS : 1); i++) {
        oq_jw_begin_array(w, way_names[i]);
        for (size_t j = 0; j < t->seen; j++)
            oq_jw_real(w, NULL, tally_over(t, (oq_tally_way)i, k, j, j + 1));
        oq_jw_end_array(w);
    }
    oq_jw_end_object(w);
}

static void add_figure(oq_buf *out, double x, bool kl) {
    if (isnan(x))
        oq_buf_addf(out, " %9s", "-");
    else if (isinf(x))
        oq_buf_addf(out, " %9s", x > 0 ? "equal" : "-");
    else
        oq_buf_addf(out, " %9.*f", kl ? 5 : 2, x);
}

void oq_tally_text(const oq_tally *t, size_t k, oq_str name, oq_buf *out) {
    static const char *const ways[] = {
        [OQ_FREE] = "its own states", [OQ_FORCED] = "float's states"};
    if (t->seen < 2)
        return;
    oq_buf_addf(out, "%-14s", speaks(t, k) ? "KL by token" : "dB by step");
    for (size_t from = 0, to = 1; from < t->seen; from = to, to *= 2) {
        char range[40];
        const size_t end = to < t->seen ? to : (size_t)t->seen;
        (void)snprintf(range, sizeof range, end - from > 1 ? "%zu-%zu" : "%zu", from + 1, end);
        oq_buf_addf(out, " %9s", range);
    }
    oq_buf_adds(out, "  ");
    oq_buf_add_safe(out, name);
    oq_buf_addc(out, '\n');
    for (size_t i = 0; i < (t->forced ? OQ_TALLY_WAYS : 1); i++) {
        oq_buf_addf(out, "%-14s", ways[i]);
        for (size_t from = 0, to = 1; from < t->seen; from = to, to *= 2)
            add_figure(out, tally_over(t, (oq_tally_way)i, k, from, to), speaks(t, k));
        oq_buf_addc(out, '\n');
    }
}
