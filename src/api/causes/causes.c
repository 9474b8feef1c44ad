/*
 * causes.c — tries remedies; the one that helps shows the cause. See causes.h.
 */
#include "api/causes/causes.h"

#include "api/causes/cause_choice.h"
#include "api/causes/clock.h"
#include "api/causes/faults.h"
#include "api/causes/lifted.h"
#include "api/causes/narrow.h"
#include "api/causes/remedies.h"
#include "debug/search/search.h"
#include "debug/verify.h"

#include <math.h>

#define HARMFUL    (-1.0) /* dB: a remedy that lost more alone is not tried with others */
#define LITTLE     0.5    /* dB: what gained less beside one remedy is not tried beside two */
#define ENOUGH     35.0   /* dB: what reaches it ends the search */
#define MAX_ROUNDS 3      /* remedies that are put together */
#define MUCH       10.0   /* dB lost with half of the samples: they are too few ... */
#define HALF_GOOD                                                                                  \
    17.0         /* ... if less than so many dB are left: half find ranges less well than all */
#define SEARCH 4 /* one in so many parts of the budget is what a search takes to begin with */

/* ---- the same model again ---- */

static onq_code keep_try(oq_diagnosing *g, const char *cause, const oq_again *how,
                         const oq_remade *made, onq_error *err) {
    const oq_try t = {.cause = cause,
                      .how = *how,
                      .made = *made,
                      .input = g->input,
                      .row = oq_remedy_count,
                      .before = g->current.sqnr,
                      .apart = NAN,
                      .apart_before = NAN};
    return OQ_PUSH(&g->job->arena, &g->out->tries, t) ? ONQ_OK : oq_fail_nomem(err);
}

/* Makes the float model that the recipe reads: prepared, where the model's was. */
static onq_code find_input(oq_diagnosing *g, onq_error *err) {
    g->input = g->maker.input;
    if (g->base.prepare.command == NULL)
        return ONQ_OK;
    const char *path = NULL;
    OQ_TRY(oq_remake_float(&g->maker, &g->base.prepare, &path, err));
    if (path != NULL)
        g->input = path;
    else
        g->base.prepare.command = NULL;
    return ONQ_OK;
}

/* Makes a model, and notes what that costs at least. */
static onq_code remake(oq_diagnosing *g, const oq_recipe *r, const char *input, bool same_ranges,
                       oq_remade *out, onq_error *err) {
    const bool finds = !same_ranges || !g->has_ranges;
    const double began = oq_cpu_seconds();
    OQ_TRY(oq_remake(&g->maker, r, input, same_ranges, out, err));
    g->out->late |= g->maker.gave_up;
    if (out->path == NULL)
        return ONQ_OK;
    g->has_ranges |= same_ranges;
    g->cost[finds] = fmin(g->cost[finds], oq_cpu_seconds() - began);
    return ONQ_OK;
}

static onq_code make_again(oq_diagnosing *g, onq_error *err) {
    bool changed = false;
    OQ_TRY(remake(g, &g->base.recipe, g->input, true, &g->again, err));
    if (g->again.path != NULL)
        OQ_TRY(oq_narrow(g, &g->again, &changed, err));
    if (changed)
        OQ_TRY(remake(g, &g->base.recipe, g->input, true, &g->again, err));
    if (g->again.path == NULL) /* made in a way that the model does not show */
        return ONQ_OK;
    return keep_try(g, "parameters", &g->base, &g->again, err);
}

/* ---- remedies ---- */

static bool is_budget_over(const oq_diagnosing *g) {
    return oq_budget_is_over(&g->budget, oq_cpu_seconds());
}

/* True if so many models can be made within the budget, going by the cheapest so far; otherwise
 * notes that something was left out. */
static bool can_make(oq_diagnosing *g, bool same_ranges, double models) {
    const double cost = g->cost[!same_ranges || !g->has_ranges];
    const bool can =
        oq_budget_allows(&g->budget, oq_cpu_seconds(), isinf(cost) ? 0 : models * cost);
    g->out->late |= !can;
    return can;
}

static onq_code try_remedy(oq_diagnosing *g, size_t row, onq_error *err) {
    assert(row < oq_remedy_count);
    const oq_remedy *r = &oq_remedies[row];
    oq_again how = {.prepare = g->base.prepare};
    oq_remade made;
    bool applies = true;
    const char *input = g->input;
    OQ_TRY(oq_recipe_copy(&g->base.recipe, &g->job->arena, &how.recipe, err));
    OQ_TRY(oq_remedy_apply(g, r, &how, &input, &applies, err));
    if (!applies)
        return ONQ_OK;
    const bool same_ranges = r->same_ranges && g->same_ranges;
    OQ_TRY(oq_progress(g->job->env, "trying remedies", g->n_tried++, 0, err));
    g->budget.n_runs += (same_ranges ? 0 : g->d->n_samples) + g->out->n_samples;
    OQ_TRY(remake(g, &how.recipe, input, same_ranges, &made, err));
    if (made.path == NULL)
        return ONQ_OK;
    OQ_TRY(keep_try(g, r->cause, &how, &made, err));
    oq_try *t = &g->out->tries.v[g->out->tries.n - 1];
    t->input = input;
    t->row = row;
    g->row_gain[row] = oq_gain_over(g->current.sqnr, made.sqnr);
    return ONQ_OK;
}

/* True if the row makes sense on top of what was taken so far; in later rounds only those do that
 * helped alone. */
static bool is_worth_a_try(const oq_diagnosing *g, size_t row) {
    const double worst = g->out->causes.n > 1 ? LITTLE : HARMFUL;
    const oq_remedy *r = &oq_remedies[row];
    if (!oq_remedy_is_for(r, g->base.recipe.command) || r->of_runtime ||
        (r->leaves_float && oq_is_good_enough(g)))
        return false;
    return g->out->causes.n == 0 || (!g->taken[row] && !(g->row_gain[row] < worst));
}

/* Tries the rows that the tensors speak for, or the others, up to the first that is enough. */
static onq_code try_rows(oq_diagnosing *g, bool likely, size_t *end, onq_error *err) {
    for (size_t i = 0; i < *end; i++) {
        const size_t n = g->out->tries.n;
        const oq_remedy *r = &oq_remedies[i];
        if ((r->is_likely != NULL && r->is_likely(g)) != likely || !is_worth_a_try(g, i) ||
            !can_make(g, r->same_ranges && g->same_ranges, 1))
            continue;
        OQ_TRY(try_remedy(g, i, err));
        if (g->out->tries.n > n && oq_is_quantized_enough(g, &g->out->tries.v[n].made) &&
            g->out->tries.v[n].made.sqnr >= ENOUGH)
            *end = i + 1;
    }
    return ONQ_OK;
}

static onq_code try_round(oq_diagnosing *g, onq_error *err) {
    size_t end = oq_remedy_count;
    OQ_TRY(try_rows(g, true, &end, err));
    return try_rows(g, false, &end, err);
}

/* ---- the answer ---- */

const oq_cause *oq_diagnosis_last(const oq_diagnosis *x) {
    const oq_cause *last = NULL;
    for (size_t i = 0; i < x->causes.n; i++)
        if (!x->causes.v[i].also)
            last = &x->causes.v[i];
    return last;
}

static const char *kept(oq_diagnosing *g, oq_buf *b) {
    const char *text =
        b->failed ? NULL : oq_arena_strdup(&g->job->arena, b->n > 0 ? b->p : "", b->n);
    b->n = 0;
    return text;
}

/* Nodes that are written to a file (oq_diagnosis_floats) are read from it. */
static onq_code show_list(oq_diagnosing *g, oq_recipe *shown, onq_error *err) {
    const char *path = oq_opt_str(g->job->opts, "exclude_list");
    if (path == NULL || g->d->search != NULL || oq_recipe_get(shown, "nodes_to_exclude") == NULL)
        return ONQ_OK;
    const oq_str file = oq_str_format(&g->job->arena, "@%s", path);
    OQ_TRY_ALLOC(file.p != NULL, err);
    oq_recipe_drop(shown, "nodes_to_exclude");
    return oq_recipe_add(shown, &g->job->arena, "nodes_to_exclude", file.p, err);
}

static onq_code add_cause(oq_diagnosing *g, const oq_try *t, onq_error *err) {
    oq_cause c = {.cause = t->cause,
                  .before = g->current.sqnr,
                  .made = t->made,
                  .apart = t->apart,
                  .apart_before = t->apart_before};
    OQ_SCRATCH_BUF(b, &g->job->env->alloc);
    OQ_TRY(oq_remedy_say(g, t, &b, &c.row, err));
    c.text = kept(g, &b);
    oq_again shown = t->how;
    OQ_TRY(oq_recipe_copy(&t->how.recipe, &g->job->arena, &shown.recipe, err));
    oq_recipe_drop(&shown.recipe, "hold_out");
    c.floats = oq_recipe_get(&shown.recipe, "nodes_to_exclude");
    OQ_TRY(show_list(g, &shown.recipe, err));
    oq_again_text(&shown, g->d->flt->path, "better.onnx", &b);
    c.command = kept(g, &b);
    OQ_TRY_ALLOC(c.text != NULL && c.command != NULL, err);
    OQ_TRY_ALLOC(OQ_PUSH(&g->job->arena, &g->out->causes, c), err);
    return ONQ_OK;
}

/* What comes next is tried on top of it. */
static onq_code take(oq_diagnosing *g, const oq_try *t, onq_error *err) {
    assert(t->row <= oq_remedy_count); /* that many: it is no remedy */
    if (g->out->causes.n == 0 && t->row < oq_remedy_count) {
        g->first = g->base;
        g->first_input = g->input;
    }
    OQ_TRY(add_cause(g, t, err));
    g->current = t->made;
    g->apart = t->apart;
    g->base = t->how;
    g->input = t->input;
    g->firm |= t->row == oq_remedy_count || oq_remedies[t->row].is_free ||
               oq_remedies[t->row].of_runtime || oq_share_needed(g, t) <= 0;
    if (t->row < oq_remedy_count) {
        g->same_ranges &= oq_remedies[t->row].same_ranges;
        for (size_t i = 0; i < oq_remedy_count; i++)
            g->taken[i] |= strcmp(oq_remedies[i].cause, t->cause) == 0;
    }
    return ONQ_OK;
}

/* CPU seconds that timing takes, about. */
static double clock_cost(const oq_diagnosing *g) {
    return g->run->kernel ? 2 * g->maker.load + OQ_CLOCK_SECONDS : 0;
}

/* Weights in Constant nodes are no weights to the quantizer: that comes first, however accurate the
 * model is without them, and before anything else is made, because the graph shows it. The prepared
 * model is then what others are compared with. */
static onq_code blame_constants(oq_diagnosing *g, onq_error *err) {
    const size_t first = g->out->tries.n;
    if (!oq_remedy_has_constants(g))
        return ONQ_OK;
    /* It may use up what is kept for timing, which is worth less. */
    g->maker.until += clock_cost(g);
    OQ_TRY(try_remedy(g, 0, err));
    g->maker.until -= clock_cost(g);
    if (g->out->tries.n == first)
        return ONQ_OK;
    const oq_try copy = g->out->tries.v[first];
    g->again = copy.made;
    g->prepares = true;
    return take(g, &copy, err);
}

/* What only the runtime does is measured apart (kernels.c): it is looked at before parameters. */
static onq_code blame_runtime(oq_diagnosing *g, onq_error *err) {
    const size_t first = g->out->tries.n;
    if (g->again.path == NULL || oq_debug_kernel_gap(g->d) == NULL)
        return ONQ_OK;
    for (size_t i = 0; i < oq_remedy_count; i++)
        if (oq_remedies[i].of_runtime)
            OQ_TRY(try_remedy(g, i, err));
    const oq_try *t = oq_choose_cause(g, first);
    if (t == NULL)
        return ONQ_OK;
    const oq_try copy = *t;
    return take(g, &copy, err);
}

/* ---- remedies that fit samples ---- */

/* dB that a try gains on samples that calibrate neither it nor what it is put on; NAN: there are
 * none of which that is known. A step of a sequence is no sample of its own. */
static onq_code gain_apart(oq_diagnosing *g, oq_try *t, double *gain, onq_error *err) {
    *gain = NAN;
    if (g->out->n_samples < 2 || oq_opt_is_set(g->job->opts, "hold_out") || g->job->steps != NULL)
        return ONQ_OK;
    if (!can_make(g, false, isnan(g->apart) ? 1 : 0.5)) /* of half the samples */
        return ONQ_OK;
    g->budget.n_runs += g->d->n_samples;
    if (isnan(g->apart))
        OQ_TRY(oq_remake_apart(&g->maker, &g->base.recipe, g->input, &g->apart, err));
    OQ_TRY(oq_remake_apart(&g->maker, &t->how.recipe, t->input, &t->apart, err));
    g->out->late |= g->maker.gave_up;
    t->apart_before = g->apart;
    *gain = oq_gain_over(t->apart_before, t->apart);
    return ONQ_OK;
}

/* The try since `first` that names the cause, if what it gains is not only on its samples; NULL. */
static onq_code choose(oq_diagnosing *g, size_t first, const oq_try **out, onq_error *err) {
    oq_try *t;
    while ((t = oq_choose_cause(g, first)) != NULL && oq_fits_samples(g, t)) {
        double gain;
        OQ_TRY(gain_apart(g, t, &gain, err));
        if (!oq_is_overfit(g, gain))
            break;
        t->dismissed = true;
    }
    *out = t;
    return ONQ_OK;
}

/* Where the budget ended before remedies were put together, a remedy of few means may have been
 * taken first: then the best that was measured is the answer too. */
static onq_code take_best(oq_diagnosing *g, onq_error *err) {
    const oq_diagnosis *x = g->out;
    const oq_try *best = NULL;
    for (size_t i = 0; x->late && x->causes.n > 0 && i < x->tries.n; i++) {
        const oq_try *t = &x->tries.v[i];
        if (!t->dismissed && oq_is_quantized_enough(g, &t->made) && !oq_fits_samples(g, t) &&
            (best == NULL || t->made.sqnr > best->made.sqnr))
            best = t;
    }
    if (best == NULL || oq_gain_over(g->current.sqnr, best->made.sqnr) < OQ_MIN_GAIN)
        return ONQ_OK;
    const oq_try copy = *best;
    return take(g, &copy, err);
}

static onq_code find_causes(oq_diagnosing *g, onq_error *err) {
    for (size_t round = 0; round < MAX_ROUNDS && !(g->current.sqnr >= ENOUGH); round++) {
        const size_t first = g->out->tries.n;
        const oq_try *t;
        OQ_TRY(try_round(g, err));
        OQ_TRY(choose(g, first, &t, err));
        if (t == NULL)
            break;
        const oq_try copy = *t;
        OQ_TRY(take(g, &copy, err));
    }
    return take_best(g, err);
}

/* ---- samples that did not calibrate ---- */

/* True if the model is good here, and samples are left to calibrate without some of them. */
static bool can_hold_out(const oq_diagnosing *g) {
    return g->out->causes.n == 0 && g->out->now.sqnr >= OQ_GOOD && g->out->n_samples >= 2 &&
           oq_recipe_calibrates(&g->base.recipe) && !oq_opt_is_set(g->job->opts, "hold_out") &&
           !is_budget_over(g);
}

/* Calibrates with every other sample and judges the others. If the result is poor, causes are looked
 * for in it, and judged by these samples too. */
static onq_code hold_out(oq_diagnosing *g, onq_error *err) {
    oq_remade whole = OQ_NOT_MADE, half;
    if (!can_hold_out(g))
        return ONQ_OK;
    if (g->again.path == NULL)
        OQ_TRY(make_again(g, err));
    if (g->rescaled || !(g->again.sqnr >= OQ_GOOD)) /* made in a way that the model does not show */
        return ONQ_OK;
    const oq_remaker all = g->maker;
    const oq_again base = g->base;
    const bool had_ranges = g->has_ranges;
    OQ_TRY(oq_recipe_copy(&base.recipe, &g->job->arena, &g->base.recipe, err));
    OQ_TRY(oq_recipe_add(&g->base.recipe, &g->job->arena, "hold_out", "2", err));
    OQ_TRY(oq_remaker_keep_between(&g->maker, "half.json", err));
    g->has_ranges = false;
    OQ_TRY(remake(g, &g->base.recipe, g->input, true, &half, err));
    if (half.sqnr < HALF_GOOD)
        OQ_TRY(oq_remake_measure_file(&g->maker, g->again.path, &whole, err));
    if (half.path == NULL || oq_gain_over(half.sqnr, whole.sqnr) < MUCH) {
        g->base = base;
        oq_remaker_keep_all(&g->maker, &all);
        g->has_ranges = had_ranges;
        return ONQ_OK;
    }
    g->out->half = g->current = half;
    g->out->n_half = g->maker.record.runs.n;
    for (size_t i = 0; i < oq_remedy_count; i++)
        g->row_gain[i] = INFINITY;
    return find_causes(g, err);
}

/* ---- faults that the outputs do not show ---- */

/* Adds what is wrong with the file to causes that gain more. */
static onq_code add_also(oq_diagnosing *g, const oq_try *t, onq_error *err) {
    const char *command = oq_diagnosis_last(g->out)->command;
    OQ_TRY(add_cause(g, t, err));
    oq_cause *c = &g->out->causes.v[g->out->causes.n - 1];
    c->also = true;
    c->command = command;
    c->before = t->before;
    return ONQ_OK;
}

/* A tensor may have parameters that do not fit although the outputs are good, or poor for another
 * reason: the samples do not need its values, and others will. */
static onq_code find_misfit(oq_diagnosing *g, onq_error *err) {
    const oq_diagnosis *x = g->out;
    bool yes = false;
    if (x->half.path != NULL || g->rescaled || is_budget_over(g))
        return ONQ_OK;
    if (g->again.path == NULL)
        OQ_TRY(make_again(g, err));
    if (x->tries.n == 0 || (x->causes.n > 0 && strcmp(x->causes.v[0].cause, "parameters") == 0))
        return ONQ_OK;
    oq_try copy = x->tries.v[0];
    if (copy.row != oq_remedy_count && !g->prepares)
        return ONQ_OK;
    copy.cause =
        "parameters"; /* of a prepared model, which has other weights, the ranges show it */
    copy.row = oq_remedy_count;
    OQ_TRY(oq_fault_stands_out(g, &copy, &yes, err));
    if (!yes)
        return ONQ_OK;
    return x->causes.n > 0 ? add_also(g, &copy, err) : take(g, &copy, err);
}

/* ---- gains on samples that did not calibrate ---- */

/* Of a model that is good, the tries that gain there too, though too little for a cause; the others
 * fit their samples. */
static onq_code judge_small_gains(oq_diagnosing *g, onq_error *err) {
    oq_diagnosis *x = g->out;
    for (size_t i = 0; i < x->tries.n; i++) {
        oq_try *t = &x->tries.v[i];
        double gain = NAN;
        if (!oq_fits_samples(g, t) || oq_gain_over(t->before, t->made.sqnr) < OQ_MIN_GAIN)
            continue;
        if (isnan(t->apart))
            OQ_TRY(gain_apart(g, t, &gain, err));
        else
            gain = oq_gain_over(t->apart_before, t->apart);
        t->dismissed = !(gain >= OQ_MIN_GAIN);
    }
    return ONQ_OK;
}

/* True if one of the causes was judged by samples that did not calibrate. */
static bool is_judged_apart(const oq_diagnosis *x) {
    bool any = false;
    for (size_t i = 0; i < x->causes.n; i++)
        any |= !isnan(x->causes.v[i].apart);
    return any;
}

/* What all remedies together gain there, where one of them takes ranges or scales from the samples.
 * Where the file is at fault first, what it is put on cannot be made from other samples. */
static onq_code judge_remedy(oq_diagnosing *g, onq_error *err) {
    oq_diagnosis *x = g->out;
    x->apart = g->apart;
    x->apart_before = x->causes.n > 0 ? x->causes.v[0].apart_before : (double)NAN;
    if (!is_judged_apart(x) || g->first.recipe.command == NULL)
        return ONQ_OK;
    if (isnan(x->apart_before) && can_make(g, false, 0.5))
        OQ_TRY(oq_remake_apart(&g->maker, &g->first.recipe, g->first_input, &x->apart_before, err));
    if (isnan(x->apart) && can_make(g, false, 0.5))
        OQ_TRY(oq_remake_apart(&g->maker, &g->base.recipe, g->input, &x->apart, err));
    return ONQ_OK;
}

/* Times the model as it is and what the last command makes, in turns. */
static onq_code clock_remedy(oq_diagnosing *g, onq_error *err) {
    oq_diagnosis *x = g->out;
    if (x->causes.n == 0 || !g->run->kernel ||
        !oq_budget_allows(&g->budget, oq_cpu_seconds(), clock_cost(g)))
        return ONQ_OK;
    const oq_cause *last = oq_diagnosis_last(x);
    const oq_record_run *first = &g->maker.record.runs.v[0];
    const oq_sample sample = {.inputs = first->inputs, .n_inputs = first->n_inputs};
    oq_model *both[2] = {g->d->quantized, NULL};
    double ms[2];
    const oq_open_options how = {.data_root = oq_opt_str(g->job->opts, "data_root")};
    OQ_TRY(oq_model_open(g->job->env, last->made.path, &how, &both[1], err));
    const onq_code rc = oq_clock_two(g->job, g->run, &sample, both, ms, err);
    oq_model_free(both[1]);
    x->now.ms = ms[0];
    x->causes.v[last - x->causes.v].made.ms = ms[1];
    return rc;
}

/* ---- no cause ---- */

/* Nothing was found that is at fault for certain, and what was found does not make a good model. */
static bool is_unexplained(const oq_diagnosing *g) {
    return !g->firm && !(g->current.sqnr >= OQ_GOOD) && !(g->out->now.sqnr >= OQ_GOOD);
}

/* Takes what a search found as the answer, if it is better than what remedies gave: then they are
 * no causes. */
static onq_code take_set(oq_diagnosing *g, const oq_debug_search *s, onq_error *err) {
    oq_diagnosis *x = g->out;
    oq_remade made = OQ_NOT_MADE;
    made.sqnr = s->quantized_sqnr;
    made.agreement = s->quantized_agreement;
    made.macs = s->macs;
    if (!s->reached || s->n_excluded == 0 || !oq_is_quantized_enough(g, &made) ||
        oq_gain_over(g->current.sqnr, made.sqnr) < OQ_MIN_GAIN)
        return ONQ_OK;
    x->causes.n = 0;
    x->set.units = s->n_excluded;
    x->set.of = s->units.n;
    x->set.made = made;
    OQ_SCRATCH_BUF(b, &g->job->env->alloc);
    oq_again_text(&x->tries.v[0].how, g->d->flt->path, "better.onnx", &b); /* as it is */
    oq_buf_addc(&b, ' ');
    oq_debug_search_options(s, NULL, &b);
    x->set.command = kept(g, &b);
    return x->set.command != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* The least set of nodes that gives a good model when it is left float, by units, or by operators
 * where that would take too many runs. */
static onq_code search_set(oq_diagnosing *g, oq_debug *d, onq_error *err) {
    const oq_str by_type = OQ_S("op_type");
    const size_t n_samples = g->out->n_samples;
    oq_debug_search *s = OQ_NEW(&d->arena, oq_debug_search);
    bool can = false;
    const oq_debug_target t = {.bisect = true,
                               .sqnr = OQ_GOOD,
                               .agreement = NAN,
                               .most_samples = n_samples,
                               .memory = oq_opt_size(g->job->opts, "memory"),
                               .cpu_until = oq_budget_until(&g->budget),
                               .groups = &by_type,
                               .n_groups = d->acts.n * n_samples > oq_budget_most_runs(&g->budget)};
    OQ_TRY_ALLOC(s != NULL, err);
    OQ_TRY(oq_debug_can_search(d, &can, err));
    if (!can)
        return ONQ_OK;
    OQ_TRY(oq_debug_run_search(d, g->run, &t, s, err));
    return take_set(g, s, err);
}

/* A model of integer operators is searched in a copy with pairs. */
static onq_code find_set(oq_diagnosing *g, onq_error *err) {
    oq_lifted lifted = {0};
    if (g->out->tries.n == 0 || g->d->search != NULL ||
        !oq_budget_allows(&g->budget, oq_cpu_seconds(), oq_budget_limit(&g->budget) / SEARCH))
        return ONQ_OK;
    if (!oq_lifted_needs(g->d))
        return search_set(g, g->d, err);
    onq_code rc = oq_lifted_open(&lifted, g->job, g->d, err);
    if (rc == ONQ_OK)
        rc = search_set(g, &lifted.d, err);
    oq_lifted_release(&lifted);
    return rc;
}

static onq_code diagnose(oq_diagnosing *g, onq_error *err) {
    oq_diagnosis *x = g->out;
    OQ_TRY(oq_remaker_init(&g->maker, g->job, g->run, g->d->flt, oq_debug_floor(g->d), err));
    x->n_samples = g->maker.record.runs.n;
    if (x->n_samples == 0)
        return ONQ_OK;
    g->budget.n_samples = g->d->n_samples;
    g->budget.bare = g->maker.load + g->maker.runs * (double)g->d->n_samples / (double)x->n_samples;
    const double began = oq_cpu_seconds();
    OQ_TRY(oq_remake_measure(&g->maker, g->d->quantized, &x->now, err));
    const double took = oq_cpu_seconds() - began;
    g->budget.kept = fmin(took + clock_cost(g), oq_budget_limit(&g->budget) / 2);
    g->maker.until = oq_budget_until(&g->budget);
    x->done = true;
    g->current = x->now;
    OQ_TRY(find_input(g, err));
    OQ_TRY(blame_constants(g, err));
    if (x->causes.n == 0 && (x->now.sqnr < ENOUGH || isnan(x->now.sqnr)))
        OQ_TRY(make_again(g, err));
    OQ_TRY(blame_runtime(g, err));
    if (g->rescaled && x->now.sqnr >= OQ_GOOD && g->again.sqnr > x->now.sqnr)
        g->current = g->again; /* remedies are measured against what they are put on */
    if (x->causes.n == 0 && x->tries.n > 0 && oq_is_cause(g, &x->tries.v[0]))
        OQ_TRY(take(g, &x->tries.v[0], err));
    OQ_TRY(find_causes(g, err));
    OQ_TRY(hold_out(g, err));
    OQ_TRY(find_misfit(g, err));
    x->healthy = x->causes.n == 0 && x->now.sqnr >= OQ_GOOD && x->half.path == NULL &&
                 !(x->judged.sqnr < OQ_GOOD);
    if (x->healthy)
        OQ_TRY(judge_small_gains(g, err));
    OQ_TRY(judge_remedy(g, err));
    if (is_unexplained(g))
        OQ_TRY(find_set(g, err));
    return clock_remedy(g, err);
}

onq_code oq_debug_causes(oq_job *job, oq_debug *d, const oq_debug_run *run, oq_diagnosis *out,
                         onq_error *err) {
    oq_diagnosing g = {.job = job,
                       .d = d,
                       .run = run,
                       .out = out,
                       .began = oq_seconds(),
                       .budget = {.began = run->began},
                       .same_ranges = true,
                       .cost = {INFINITY, INFINITY},
                       .apart = NAN,
                       .again = OQ_NOT_MADE};
    oq_summary *s = OQ_NEW(&job->arena, oq_summary);
    g.row_gain = OQ_NEW_ARRAY(&job->arena, double, oq_remedy_count);
    g.taken = OQ_NEW_ARRAY(&job->arena, bool, oq_remedy_count);
    for (size_t i = 0; g.row_gain != NULL && i < oq_remedy_count; i++)
        g.row_gain[i] = INFINITY; /* not tried yet */
    *out = (oq_diagnosis){.now = OQ_NOT_MADE,
                          .half = OQ_NOT_MADE,
                          .apart = NAN,
                          .apart_before = NAN,
                          .set = {.made = OQ_NOT_MADE}};
    out->judged = oq_debug_graded(d);
    out->n_judged = d->n_samples;
    out->optimised = d->has_kernel;
    if (s == NULL || g.row_gain == NULL || g.taken == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_summary_make(s, &job->arena, d->quantized, NULL, err));
    OQ_TRY(oq_again_find(job, d, &s->quant, &g.base, err));
    for (size_t i = 0; i < d->weights.n; i++)
        g.rescaled |= !isnan(d->weights.v[i].rescaled);
    OQ_TRY(oq_debug_amplifiers(d, &job->arena, &g.amplifiers, err));
    const onq_code rc = diagnose(&g, err);
    oq_remaker_release(&g.maker);
    out->seconds = oq_seconds() - g.began;
    out->bare = g.budget.bare;
    out->limit = oq_budget_limit(&g.budget);
    out->cpu = oq_cpu_seconds() - run->began;
    return rc;
}
