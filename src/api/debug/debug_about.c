/*
 * debug_about.c — see debug_about.h.
 */
#include "api/debug/debug_about.h"

#include "api/causes/again.h"
#include "api/causes/clock.h"
#include "base/system/cpu.h"
#include "onnx/summary/summary.h"

#include <time.h>

/* ---- options ---- */

static bool is_about_messages(const char *name) {
    static const char *const names[] = {"quiet", "verbose", "json", "threads"};
    return oq_str_is_any(oq_str_of(name), names, OQ_COUNT(names));
}

static onq_code take_options(oq_job *job, oq_debug_about *about, oq_buf *line, onq_error *err) {
    const onq_options *o = job->opts;
    oq_buf_adds(line, "onq debug");
    for (size_t i = 0; i < o->n_values; i++) {
        const oq_opt_value *v = &o->values[i];
        if (!v->is_set || is_about_messages(v->row->name))
            continue;
        oq_buf_addf(line, " --%s", v->row->name);
        for (size_t k = 0;; k++) {
            const char *text = oq_opt_text(&job->arena, v, k);
            if (text == NULL)
                break;
            if (!OQ_PUSH(&job->arena, &about->options, oq_str_of(v->row->name)) ||
                !OQ_PUSH(&job->arena, &about->options, oq_str_of(text)))
                return oq_fail_nomem(err);
            if (v->row->type == ONQ_OPT_FLAG && strcmp(text, "true") == 0)
                continue;
            oq_buf_addc(line, ' ');
            oq_buf_add_word(line, oq_str_of(text));
        }
    }
    return ONQ_OK;
}

/* The first sample, copied: the sizes that work is counted for. */
static onq_code take_sample(oq_job *job, const oq_debug_run *run, oq_debug_about *about,
                            onq_error *err) {
    const oq_sample *s = NULL;
    about->samples = oq_source_names(run->float_source, &about->n_samples);
    OQ_TRY(oq_source_seek(run->float_source, 0, err));
    OQ_TRY(oq_source_next(run->float_source, &s, err));
    if (s == NULL)
        return ONQ_OK;
    oq_sample *copy = OQ_NEW(&job->arena, oq_sample);
    about->sizes.sample = copy;
    return copy != NULL ? oq_sample_copy(&job->arena, s, copy, err) : oq_fail_nomem(err);
}

/* ---- all of it ---- */

static const char *kept(oq_job *job, const oq_buf *b) {
    return b->failed ? NULL : oq_str_copy(&job->arena, (oq_str){b->p, b->n}).p;
}

static onq_code take_models(oq_job *job, const oq_debug *d, oq_debug_about *about, onq_error *err) {
    oq_summary *s = OQ_NEW(&job->arena, oq_summary);
    OQ_TRY_ALLOC(s != NULL, err);
    OQ_TRY(oq_summary_make(s, &job->arena, d->flt, NULL, err));
    about->float_size = d->flt->bytes.n + s->external_bytes;
    OQ_TRY(oq_summary_make(s, &job->arena, d->quantized, NULL, err));
    about->quantized_size = d->quantized->bytes.n + s->external_bytes;
    oq_again again;
    OQ_TRY(oq_again_find(job, d, &s->quant, &again, err));
    OQ_SCRATCH_BUF(text, &job->env->alloc);
    oq_recipe_text(&again.recipe, d->flt->path, "better.onnx", &text);
    oq_buf_addc(&text, '\0');
    about->again = kept(job, &text);
    text.n = 0;
    onq_code rc = take_options(job, about, &text, err);
    oq_buf_addc(&text, '\0');
    about->command = kept(job, &text);
    return rc == ONQ_OK && (about->again == NULL || about->command == NULL) ? oq_fail_nomem(err)
                                                                            : rc;
}

onq_code oq_debug_describe(oq_job *job, const oq_debug *d, const oq_debug_run *run, bool clock,
                           oq_debug_about *about, onq_error *err) {
    char cpu[256], date[32] = "";
    struct tm tm;
    *about = (oq_debug_about){.onq = onq_version(), .float_ms = NAN, .quantized_ms = NAN};
    about->data = oq_opt_str(job->opts, "data");
    oq_cpu_features(cpu, sizeof cpu);
    if (oq_os_utc((int64_t)time(NULL), &tm))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &tm);
    about->cpu = oq_arena_strdup(&job->arena, cpu, strlen(cpu));
    about->date = oq_arena_strdup(&job->arena, date, strlen(date));
    OQ_TRY_ALLOC(about->cpu != NULL && about->date != NULL, err);
    OQ_TRY(take_models(job, d, about, err));
    if (run == NULL)
        return ONQ_OK;
    about->runtime = run->engine->name;
    OQ_TRY(take_sample(job, run, about, err));
    if (!clock || about->sizes.sample == NULL)
        return ONQ_OK;
    oq_model *const both[2] = {d->flt, d->quantized};
    double ms[2];
    OQ_TRY(oq_clock_two(job, run, about->sizes.sample, both, ms, err));
    about->float_ms = ms[0];
    about->quantized_ms = ms[1];
    return ONQ_OK;
}
