/*
 * trial.c — see trial.h.
 */
#include "tune/trial.h"

#include "engine/sweep.h"

#include <math.h>

#define SCORE_MEMORY ((uint64_t)512 << 20) /* that samples which run at once may add */

void oq_trials_init(oq_trials *t, const onq_allocator *alloc, const oq_meaning *meaning) {
    *t = (oq_trials){.meaning = meaning};
    oq_arena_init(&t->arena, alloc);
}

void oq_trials_release(oq_trials *t) {
    oq_arena_release(&t->arena);
    *t = (oq_trials){0};
}

int64_t oq_trial_batch(const oq_trial_step *x) {
    return x->sample.n_inputs > 0 && x->sample.inputs[0].rank > 0 ? x->sample.inputs[0].dims[0] : 0;
}

const char *oq_trials_word(const oq_trials *t) {
    return t->steps.n > t->all.n ? "sequences" : "samples";
}

/* The numbers of all steps of the samples whose places a fold has. */
static onq_code name_steps(oq_trials *t, oq_fold *f, onq_error *err) {
    OQ_VEC(uint64_t) numbers = {0};
    for (size_t i = 0; i < f->n_calibrate; i++) {
        const oq_trial *x = &t->all.v[f->calibrate[i]];
        for (size_t k = 0; k < x->n; k++)
            OQ_TRY_ALLOC(OQ_PUSH(&t->arena, &numbers, t->steps.v[x->first + k].sample.number), err);
    }
    f->calibrate = numbers.v;
    f->n_calibrate = numbers.n;
    return ONQ_OK;
}

onq_code oq_trials_divide(oq_trials *t, size_t n_parts, uint64_t salt, oq_division *out,
                          onq_error *err) {
    const size_t n = t->all.n;
    uint64_t *hashes = OQ_NEW_ARRAY(&t->arena, uint64_t, n + 1);
    uint64_t *places = OQ_NEW_ARRAY(&t->arena, uint64_t, n + 1);
    OQ_TRY_ALLOC(hashes != NULL && places != NULL, err);
    for (size_t i = 0; i < n; i++) {
        hashes[i] = oq_sample_hash(&t->steps.v[t->all.v[i].first].sample);
        places[i] = i;
    }
    OQ_TRY(oq_divide(&t->arena, hashes, places, n, n_parts, salt, out, err));
    for (size_t i = 0; i < out->n; i++)
        OQ_TRY(name_steps(t, &out->folds[i], err));
    return ONQ_OK;
}

typedef struct filling {
    oq_trials *t;
    uint64_t memory;
} filling;

static bool has_room(void *ctx, uint64_t at) {
    const filling *f = ctx;
    const oq_trials *t = f->t;
    (void)at;
    const bool whole = t->all.n > 0 && t->steps.v[t->steps.n - 1].sample.last;
    if (t->until > 0 && whole && oq_seconds() > (t->all.n >= OQ_TRIALS_MIN ? t->until : t->latest))
        return false;
    return t->all.n == 0 || (t->all.n == 1 && !whole) || t->arena.used < f->memory;
}

static onq_code run_float(void *ctx, const oq_turn *turn, onq_error *err) {
    const filling *f = ctx;
    const double begin = oq_seconds();
    OQ_TRY(oq_turn_run(turn, err));
    f->t->seconds += oq_seconds() - begin;
    return ONQ_OK;
}

/* The output that holds classes, else the first that is no state. */
static size_t classes_of(const oq_trials *t) {
    size_t at = 0;
    if (t->meaning->classes < t->n_outputs)
        return t->meaning->classes;
    while (at + 1 < t->n_outputs && oq_meaning_is_state(t->meaning, at))
        at++;
    return at;
}

/* What a run answers; nobody looks at its states, which would fill the memory. */
static onq_code copy_answers(oq_arena *a, const oq_meaning *m, const oq_outputs *from,
                             oq_datum **out, onq_error *err) {
    *out = OQ_NEW_ARRAY(a, oq_datum, from->n + 1);
    OQ_TRY_ALLOC(*out != NULL, err);
    for (size_t k = 0; k < from->n; k++)
        if (!oq_meaning_is_state(m, k))
            OQ_TRY(oq_datum_copy(a, &from->v[k], &(*out)[k], err));
    return ONQ_OK;
}

static onq_code keep_run(void *ctx, const oq_turn *turn, onq_error *err) {
    oq_trials *t = ((const filling *)ctx)->t;
    const oq_outputs *out = &turn->outputs[0];
    oq_trial_step x = {0};
    t->n_outputs = out->n;
    OQ_TRY(oq_sample_copy(&t->arena, &turn->samples[0], &x.sample, err));
    OQ_TRY(copy_answers(&t->arena, t->meaning, out, &x.outputs, err));
    if (x.sample.step == 0 || t->all.n == 0)
        OQ_TRY_ALLOC(OQ_PUSH(&t->arena, &t->all, ((oq_trial){t->steps.n, 0})), err);
    t->all.v[t->all.n - 1].n++;
    return OQ_PUSH(&t->arena, &t->steps, x) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code measure_texts(oq_trials *t, const oq_meaning *m, onq_error *err) {
    oq_text_events found = {0};
    for (size_t i = 0; i < t->steps.n; i++) {
        const oq_trial_step *x = &t->steps.v[i];
        const oq_datum *d = &x->outputs[m->classes];
        const oq_text_pair pair = {d, NULL, m->links[m->classes], m->blank,
                                   oq_sequences_of(d, oq_trial_batch(x))};
        OQ_TRY(oq_text_add(&pair, &t->arena, &found, NULL, err));
    }
    t->text_margins = (oq_margins){found.margins.v, found.margins.n, found.margins.cap};
    t->n_texts = found.counts.n;
    return ONQ_OK;
}

onq_code oq_trials_find_texts(oq_trials *t, oq_meaning *m, onq_error *err) {
    oq_text_step *v = OQ_NEW_ARRAY(&t->arena, oq_text_step, t->steps.n + 1);
    OQ_TRY_ALLOC(v != NULL, err);
    if (m->classes >= t->n_outputs)
        return ONQ_OK;
    for (size_t i = 0; i < t->steps.n; i++) {
        const oq_trial_step *x = &t->steps.v[i];
        if (x->sample.n_inputs == 0)
            return ONQ_OK;
        v[i] = (oq_text_step){&x->sample.inputs[0], &x->outputs[m->classes]};
    }
    OQ_TRY(oq_text_blank(v, t->steps.n, &t->arena, &m->blank, err));
    m->is_text = m->blank != OQ_NO_BLANK;
    return m->is_text ? measure_texts(t, m, err) : ONQ_OK;
}

onq_code oq_trials_look(oq_trials *t, onq_error *err) {
    double sum = 0;
    uint64_t n = 0;
    const size_t at = classes_of(t);
    const oq_link link = at < t->n_outputs ? t->meaning->links[at] : OQ_LINK_NONE;
    assert(t->margins.n == 0);
    for (size_t i = 0; i < t->steps.n && at < t->n_outputs; i++) {
        const oq_datum *d = &t->steps.v[i].outputs[at];
        OQ_TRY(oq_margins_add(&t->margins, &t->arena, t->meaning, d, link, err));
        oq_link_power(d, link, &sum, &n);
    }
    t->signal = n > 0 ? sum / (double)n : NAN;
    return ONQ_OK;
}

/* Counts the samples that did not fit; a sequence that is not complete is one of them. */
static onq_code count_left_out(oq_trials *t, oq_source *source, size_t before, onq_error *err) {
    const oq_sample *next = NULL;
    if (t->all.n > 1 && !t->steps.v[t->steps.n - 1].sample.last)
        t->steps.n = t->all.v[--t->all.n].first;
    if (oq_source_count(source) == t->steps.n - before)
        return ONQ_OK;
    OQ_TRY(oq_source_seek(source, t->steps.n - before, err));
    do {
        OQ_TRY(oq_source_next(source, &next, err));
        t->left_out += next != NULL && next->last;
    } while (next != NULL);
    return ONQ_OK;
}

onq_code oq_trials_fill(oq_trials *t, oq_source *source, oq_session *flt, uint64_t memory,
                        onq_error *err) {
    filling f = {t, memory};
    const oq_sweep sweep = {.env = flt->engine->env,
                            .model = {.source = source, .session = flt},
                            .ctx = &f,
                            .more = has_room,
                            .run = run_float,
                            .take = keep_run,
                            .what = "float model"};
    const size_t before = t->steps.n;
    const double began = oq_cpu_seconds();
    OQ_TRY(oq_sweep_run(&sweep, err));
    t->cpu += oq_cpu_seconds() - began;
    return count_left_out(t, source, before, err);
}

/* ---- scores ---- */

/* What a candidate answered in a sequence that is not yet scored. */
typedef struct scoring_slot {
    oq_arena arena;
    OQ_VEC(oq_datum *) outputs; /* of each step ... */
    size_t n_outputs;
    uint64_t at; /* ... the first of which is at this place of the run */
} scoring_slot;

typedef struct scoring_run {
    const oq_trials *trials;
    const oq_trial_step **steps;
    oq_sample *samples;
    size_t n;
    scoring_slot *slots;
    const onq_allocator *alloc;
    oq_scoring *into;
} scoring_run;

static onq_code add_step(const oq_trial_step *x, const oq_datum *quantized, size_t n_quantized,
                         oq_scoring *into, onq_error *err) {
    const oq_pair pair = {.number = x->sample.sequence,
                          .flt = x->outputs,
                          .quantized = quantized,
                          .n_quantized = n_quantized,
                          .inputs = x->sample.inputs,
                          .next = x->sample.last ? NULL : x[1].sample.inputs,
                          .batch = oq_trial_batch(x),
                          .labels = x->labels,
                          .follows = x->sample.step > 0};
    return oq_scoring_add(into, &pair, err);
}

static onq_code keep_answers(void *ctx, const oq_turn *turn, onq_error *err) {
    const scoring_run *r = ctx;
    scoring_slot *slot = &r->slots[turn->slot];
    oq_datum *outputs = NULL;
    if (slot->outputs.n == 0)
        slot->at = turn->at;
    slot->n_outputs = turn->outputs[0].n;
    OQ_TRY(copy_answers(&slot->arena, r->trials->meaning, &turn->outputs[0], &outputs, err));
    return OQ_PUSH(&slot->arena, &slot->outputs, outputs) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code score_slot(void *ctx, unsigned at, onq_error *err) {
    const scoring_run *r = ctx;
    scoring_slot *slot = &r->slots[at];
    assert(slot->at + slot->outputs.n <= r->n);
    for (size_t i = 0; i < slot->outputs.n; i++)
        OQ_TRY(add_step(r->steps[slot->at + i], slot->outputs.v[i], slot->n_outputs, r->into, err));
    oq_arena_release(&slot->arena);
    *slot = (scoring_slot){0};
    oq_arena_init(&slot->arena, r->alloc);
    return ONQ_OK;
}

/* The steps of the samples at these places. Their tokens are float's, so none is generated. */
static onq_code list_steps(scoring_run *r, oq_arena *a, const size_t *places, size_t n,
                           onq_error *err) {
    const oq_trials *t = r->trials;
    size_t n_steps = 0;
    for (size_t i = 0; i < n; i++)
        n_steps += t->all.v[places[i]].n;
    r->steps = OQ_NEW_ARRAY(a, const oq_trial_step *, n_steps + 1);
    r->samples = OQ_NEW_ARRAY(a, oq_sample, n_steps + 1);
    r->slots = OQ_NEW_ARRAY(a, scoring_slot, OQ_SWEEP_SLOTS);
    OQ_TRY_ALLOC(r->steps != NULL && r->samples != NULL && r->slots != NULL, err);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t->all.v[places[i]].n; k++, r->n++) {
            r->steps[r->n] = &t->steps.v[t->all.v[places[i]].first + k];
            r->samples[r->n] = r->steps[r->n]->sample;
            r->samples[r->n].generated = false;
        }
    assert(r->n == n_steps);
    return ONQ_OK;
}

/* Sequences run at once and are scored in their order. */
static onq_code run_steps(scoring_run *r, oq_session *s, const oq_model *m, onq_error *err) {
    const oq_sweep sweep = {
        .env = s->engine->env,
        .model = {.kept = r->samples, .n_kept = r->n, .session = s, .walker = r->trials->walker},
        .ctx = r,
        .take = keep_answers,
        .end = score_slot,
        .whole_sequences = true,
        .wide = {.model = m, .memory = SCORE_MEMORY}};
    for (size_t i = 0; i < OQ_SWEEP_SLOTS; i++)
        oq_arena_init(&r->slots[i].arena, r->alloc);
    const onq_code rc = oq_sweep_run(&sweep, err);
    for (size_t i = 0; i < OQ_SWEEP_SLOTS; i++)
        oq_arena_release(&r->slots[i].arena);
    return rc;
}

onq_code oq_trials_score(const oq_trials *t, oq_session *s, const oq_model *m, const size_t *places,
                         size_t n, oq_scoring *into, onq_error *err) {
    scoring_run r = {.trials = t, .alloc = t->arena.alloc, .into = into};
    OQ_SCRATCH(scratch, t->arena.alloc);
    OQ_TRY(list_steps(&r, &scratch, places, n, err));
    if (s != NULL)
        return run_steps(&r, s, m, err);
    for (size_t i = 0; i < r.n; i++)
        OQ_TRY(add_step(r.steps[i], r.steps[i]->outputs, t->n_outputs, into, err));
    return ONQ_OK;
}
