/*
 * remake.c — see remake.h.
 */
#include "api/causes/remake.h"

#include "api/quantizing/recipe_run.h"
#include "api/samples.h"
#include "base/system/file.h"
#include "base/system/temp.h"
#include "base/text/json.h"
#include "debug/verify.h"
#include "engine/sweep.h"

#include <math.h>

/* ---- samples ---- */

static onq_code keep_float(oq_remaker *r, oq_model *flt, onq_error *err) {
    oq_session_options o = r->run->session;
    oq_session *s = NULL;
    o.model = flt;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    const double began = oq_cpu_seconds();
    OQ_TRY(oq_session_open(r->run->engine, &o, &s, err));
    const double loaded = oq_cpu_seconds();
    r->load = loaded - began;
    oq_sweep sweep = {.env = r->job->env, .model = {.source = r->run->float_source, .session = s}};
    oq_verify_fill(&sweep, &r->record);
    const onq_code rc = oq_sweep_run(&sweep, err);
    r->runs = oq_cpu_seconds() - loaded;
    oq_session_close(s);
    return rc;
}

/* A model that the caller gave in memory becomes a file for the commands that read it. */
static onq_code find_input(oq_remaker *r, oq_model *flt, onq_error *err) {
    const oq_save_options as_it_is = {0};
    r->input = oq_opt_str(r->job->opts, "float_model");
    if (oq_opt_bytes_of(r->job->opts, r->input) == NULL)
        return ONQ_OK;
    r->input = oq_str_format(&r->job->arena, "%s/float.onnx", r->folder).p;
    return r->input != NULL ? oq_model_save(flt, r->input, &as_it_is, err) : oq_fail_nomem(err);
}

/* Asked while a model is made: nonzero gives it up. The caller is asked first. */
static int stop_late(void *ctx, const char *what, uint64_t done, uint64_t total) {
    oq_remaker *r = ctx;
    const onq_env *env = r->job->env;
    const int stop =
        env->progress_fn != NULL ? env->progress_fn(env->progress_ctx, what, done, total) : 0;
    if (stop == 0 && oq_cpu_seconds() >= r->until)
        r->gave_up = true;
    return r->gave_up ? 1 : stop;
}

onq_code oq_remaker_init(oq_remaker *r, oq_job *job, const oq_debug_run *run, oq_model *flt,
                         double floor, onq_error *err) {
    *r = (oq_remaker){.job = job,
                      .run = run,
                      .quiet = *job->env,
                      .ranges = "ranges.json",
                      .floor = floor,
                      .until = INFINITY};
    r->quiet.silent = true;
    r->quiet.progress_fn = stop_late;
    r->quiet.progress_ctx = r;
    uint64_t bytes = 0;
    oq_record_init(&r->record, &job->env->alloc, OQ_REMAKE_SAMPLES);
    OQ_TRY(oq_model_size(flt, &bytes, err));
    oq_record_fit(&r->record, bytes);
    OQ_TRY(oq_temp_make(&job->arena, &r->folder, err));
    OQ_TRY(find_input(r, flt, err));
    return keep_float(r, flt, err);
}

void oq_remaker_release(oq_remaker *r) {
    oq_temp_remove(r->folder);
    oq_record_release(&r->record);
}

/* ---- measuring ---- */

static onq_code measure(const oq_remaker *r, const oq_record *record, oq_model *m, oq_remade *out,
                        onq_error *err) {
    oq_session_options o = r->run->session;
    oq_verdict v;
    o.model = m;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    *out = OQ_NOT_MADE;
    OQ_TRY(oq_verify(r->run->engine, &o, record, &v, err));
    if (v.end == OQ_VERIFY_NOT_LOADED || v.end == OQ_VERIFY_NOT_RUN || !v.ran)
        return ONQ_OK;
    out->path = m->path;
    if (v.end == OQ_VERIFY_GOOD && v.measured)
        out->sqnr = v.sqnr >= OQ_GRADE_EQUAL ? INFINITY : v.sqnr;
    if (v.rows > 0)
        out->agreement = (double)v.same / (double)v.rows;
    if (v.speaks)
        out->text = v.text;
    const oq_graded graded = oq_verify_graded(&v, r->floor);
    out->grade = v.end == OQ_VERIFY_GOOD ? oq_grade_of(&graded) : OQ_GRADE_POOR;
    return ONQ_OK;
}

onq_code oq_remake_measure(const oq_remaker *r, oq_model *m, oq_remade *out, onq_error *err) {
    return measure(r, &r->record, m, out, err);
}

/* ---- making ---- */

/* What says nothing about the recipe ends the job. */
static bool is_fatal(onq_code rc) {
    return rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL || rc == ONQ_E_INTERNAL || rc == ONQ_E_OPEN ||
           rc == ONQ_E_READ || rc == ONQ_E_WRITE || rc == ONQ_E_MISSING;
}

/* What the result says of its multiply-accumulates. */
static double macs_of(const onq_result *result) {
    json_t *all = NULL;
    if (oq_json_parse("result", oq_str_of(onq_result_json(result)), &all, NULL) != ONQ_OK)
        return NAN;
    const json_t *macs = json_object_get(json_object_get(all, "integer_share"), "macs");
    const double v = json_is_number(macs) ? json_number_value(macs) : (double)NAN;
    json_decref(all);
    return v;
}

static onq_code make(oq_remaker *r, const oq_recipe *recipe, const char *input, bool same_ranges,
                     const char **path, double *macs, onq_error *err) {
    oq_arena *a = &r->job->arena;
    const char *out = oq_str_format(a, "%s/%zu.onnx", r->folder, r->n_files++).p;
    const bool calibrates = strcmp(recipe->command, "static") == 0;
    oq_recipe_run run = {
        .job = r->job, .env = &r->quiet, .shared = {.tape = r->job->tape, .steps = r->job->steps}};
    onq_error why = ONQ_ERROR_INIT;
    *path = NULL;
    r->gave_up = false;
    if (same_ranges && calibrates)
        run.cache = oq_str_format(a, "%s/%s", r->folder, r->ranges).p;
    if (out == NULL || (same_ranges && calibrates && run.cache == NULL))
        return oq_fail_nomem(err);
    const onq_code rc = oq_recipe_do(&run, recipe, input, out, &why);
    if (rc == ONQ_OK && macs != NULL)
        *macs = macs_of(run.result);
    onq_result_free(run.result);
    if (rc == ONQ_OK)
        *path = out;
    else if (is_fatal(rc) && !r->gave_up)
        return oq_fail(err, rc, "%s", why.text);
    else
        oq_log(r->job->env, ONQ_LOG_DEBUG, "not tried: %s", why.text);
    return ONQ_OK;
}

onq_code oq_remake_float(oq_remaker *r, const oq_recipe *recipe, const char **path,
                         onq_error *err) {
    return make(r, recipe, r->input, false, path, NULL, err);
}

/* The model that was measured and has the same bytes; NULL. */
static const oq_remade *same_model(const oq_remaker *r, const char *path) {
    const oq_remade *same = NULL;
    oq_file a, b;
    if (oq_file_open(&a, &r->job->env->alloc, path, NULL) != ONQ_OK)
        return NULL;
    for (size_t i = 0; i < r->made.n && same == NULL; i++) {
        if (oq_file_open(&b, &r->job->env->alloc, r->made.v[i].path, NULL) != ONQ_OK)
            continue;
        if (a.size == b.size && memcmp(a.p, b.p, (size_t)a.size) == 0)
            same = &r->made.v[i];
        oq_file_close(&b);
    }
    oq_file_close(&a);
    return same;
}

static onq_code open_and_measure(const oq_remaker *r, const oq_record *record, const char *path,
                                 oq_remade *out, onq_error *err) {
    const oq_open_options how = {.data_root = oq_opt_str(r->job->opts, "data_root")};
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(r->job->env, path, &how, &m, err));
    const onq_code rc = measure(r, record, m, out, err);
    oq_model_free(m);
    return rc;
}

onq_code oq_remake_measure_file(const oq_remaker *r, const char *path, oq_remade *out,
                                onq_error *err) {
    return open_and_measure(r, &r->record, path, out, err);
}

static onq_code measure_new(oq_remaker *r, const char *path, oq_remade *out, onq_error *err) {
    OQ_TRY(oq_remake_measure_file(r, path, out, err));
    if (out->path == NULL)
        return ONQ_OK;
    out->path = path;
    return OQ_PUSH(&r->job->arena, &r->made, *out) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_remake(oq_remaker *r, const oq_recipe *recipe, const char *input, bool same_ranges,
                   oq_remade *out, onq_error *err) {
    assert(recipe->command != NULL);
    const char *path = NULL;
    double macs = NAN;
    *out = OQ_NOT_MADE;
    OQ_TRY(make(r, recipe, input, same_ranges, &path, &macs, err));
    if (path == NULL)
        return ONQ_OK;
    const oq_remade *same = same_model(r, path);
    if (same != NULL)
        *out = *same;
    else
        OQ_TRY(measure_new(r, path, out, err));
    out->macs = macs;
    return ONQ_OK;
}

/* The runs of the record that every other sample leaves out. */
static onq_code find_apart(const oq_remaker *r, oq_record *out, onq_error *err) {
    *out = r->record;
    out->runs.v = NULL;
    out->runs.n = out->runs.cap = 0;
    for (size_t i = 1; i < r->record.runs.n; i += 2)
        OQ_TRY_ALLOC(OQ_PUSH(&r->job->arena, &out->runs, r->record.runs.v[i]), err);
    return ONQ_OK;
}

onq_code oq_remaker_keep_between(oq_remaker *r, const char *ranges, onq_error *err) {
    assert(r->record.runs.n >= 2);
    oq_record between;
    OQ_TRY(find_apart(r, &between, err));
    r->record = between;
    r->ranges = ranges;
    memset(&r->made, 0, sizeof r->made); /* measured on others */
    return ONQ_OK;
}

void oq_remaker_keep_all(oq_remaker *r, const oq_remaker *before) {
    assert(r->record.runs.n <= before->record.runs.n);
    r->record = before->record;
    r->ranges = before->ranges;
    r->made.v = before->made.v;
    r->made.n = before->made.n;
    r->made.cap = before->made.cap;
}

onq_code oq_remake_apart(oq_remaker *r, const oq_recipe *recipe, const char *input, double *sqnr,
                         onq_error *err) {
    oq_arena *a = &r->job->arena;
    oq_recipe half;
    oq_record apart;
    oq_remade made = OQ_NOT_MADE;
    const char *path = NULL;
    *sqnr = NAN;
    OQ_TRY(find_apart(r, &apart, err));
    if (apart.runs.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_recipe_copy(recipe, a, &half, err));
    OQ_TRY(oq_recipe_add(&half, a, "hold_out", "2", err));
    OQ_TRY(make(r, &half, input, false, &path, NULL, err));
    if (path != NULL)
        OQ_TRY(open_and_measure(r, &apart, path, &made, err));
    *sqnr = made.sqnr;
    return ONQ_OK;
}
