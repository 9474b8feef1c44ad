/*
 * samples.c — from options to a source, an engine and a session. See samples.h.
 */
#include "api/samples.h"
#include "api/options/choices.h"

#include "base/text/number_text.h"
#include "engine/ort.h"

static onq_code bad_value(const char *name, oq_str v, const char *wanted, onq_error *err) {
    return oq_fail(err, ONQ_E_OPTION, "--%s: '%.*s' is not %s", name, OQ_STR(v), wanted);
}

/* "224x192", or one number for both. */
static onq_code image_size(oq_job *job, oq_image_options *o, onq_error *err) {
    const char *text = oq_opt_str(job->opts, "image_size");
    if (text == NULL)
        return ONQ_OK;
    const oq_str v = oq_str_of(text);
    const size_t at = strcspn(text, "xX");
    const bool two = at < v.n;
    const oq_str h = {v.p, at}, w = two ? (oq_str){v.p + at + 1, v.n - at - 1} : h;
    if (!oq_str_to_i64(h, &o->height) || !oq_str_to_i64(w, &o->width) || o->height < 1 ||
        o->width < 1)
        return bad_value("image_size", v, "HxW, as in 224x224", err);
    return ONQ_OK;
}

static onq_code image_numbers(oq_job *job, const char *name, double out[3], size_t *n,
                              onq_error *err) {
    const oq_str *list = oq_opt_list(job->opts, name, n);
    if (*n == 2 || *n > 3)
        return oq_fail(err, ONQ_E_OPTION, "--%s: %zu values, expected 1 or 3", name, *n);
    for (size_t i = 0; i < *n; i++)
        if (!oq_real_read(list[i].p, &out[i]))
            return bad_value(name, list[i], "a number", err);
    return ONQ_OK;
}

static onq_code image_options(oq_job *job, oq_image_options *o, onq_error *err) {
    if (oq_opt_is_set(job->opts, "image_layout"))
        o->layout = OQ_CHOSEN(job->opts, "image_layout", oq_image_layout, OQ_LAYOUT_CHOICES);
    o->color = OQ_CHOSEN(job->opts, "image_color", oq_image_color, OQ_COLOR_CHOICES);
    o->resize = OQ_CHOSEN(job->opts, "image_resize", oq_image_resize, OQ_RESIZE_CHOICES);
    if (oq_opt_is_set(job->opts, "image_scale")) {
        o->scale = oq_opt_real(job->opts, "image_scale");
        o->has_scale = true;
    }
    OQ_TRY(image_size(job, o, err));
    OQ_TRY(image_numbers(job, "image_mean", o->mean, &o->n_mean, err));
    return image_numbers(job, "image_std", o->std, &o->n_std, err);
}

onq_code oq_job_dims(oq_job *job, const oq_dim_fix **out, size_t *count, onq_error *err) {
    size_t n = 0;
    const oq_str *list = oq_opt_list(job->opts, "dim", &n);
    oq_dim_fix *dims = OQ_NEW_ARRAY(&job->arena, oq_dim_fix, n > 0 ? n : 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    for (size_t i = 0; i < n; i++) {
        oq_str value;
        if (!oq_opt_split(list[i], &dims[i].name, &value) ||
            !oq_str_to_i64(value, &dims[i].value) || dims[i].value < 0)
            return bad_value("dim", list[i], "NAME=VALUE with a whole number", err);
    }
    *out = dims;
    *count = n;
    return ONQ_OK;
}

/* Takes the feed, also when it fails. */
static onq_code make_tape(oq_job *job, oq_feed *feed, onq_error *err) {
    const onq_options *o = job->opts;
    const bool said = oq_opt_has(o, "memory") && oq_opt_is_set(o, "memory");
    return oq_tape_new(job->env, feed, said ? oq_opt_size(o, "memory") : oq_memory_share(),
                       &job->tape, err);
}

onq_code oq_job_read(oq_job *job, const onq_reader *reader, onq_error *err) {
    oq_feed *feed = NULL;
    OQ_TRY(oq_feed_open_reader(job->env, reader, &feed, err));
    return make_tape(job, feed, err);
}

/* Samples that come one after another go through one tape, whatever the number of sources. */
static onq_code find_tape(oq_job *job, oq_source_options *o, onq_error *err) {
    const onq_reader *reader = oq_opt_reader(job->opts);
    oq_feed *feed = NULL;
    o->tape = job->opts->shared.tape;
    if (o->tape != NULL)
        return ONQ_OK;
    if (job->tape == NULL && reader != NULL)
        OQ_TRY(oq_job_read(job, reader, err));
    if (job->tape == NULL && o->spec != NULL && oq_feed_is_stream(o->spec)) {
        OQ_TRY(oq_feed_open_stream(job->env, o->spec, o->model, o, &feed, err));
        OQ_TRY(make_tape(job, feed, err));
    }
    o->tape = job->tape;
    return ONQ_OK;
}

/* A model from memory has samples next to it only where it has a folder. */
static void find_folder(const oq_job *job, oq_source_options *o) {
    const char *input = oq_job_input(job);
    const onq_bytes *bytes = input != NULL ? oq_opt_bytes_of(job->opts, input) : NULL;
    o->beside = bytes != NULL ? bytes->folder : NULL;
    o->nowhere = bytes != NULL && bytes->folder == NULL;
}

onq_code oq_job_source_options(oq_job *job, const oq_model *m, oq_source_options *o,
                               onq_error *err) {
    const oq_walker *walker = NULL;
    *o = (oq_source_options){.spec = oq_opt_str(job->opts, "data"), .model = m};
    if (oq_opt_is_set(job->opts, "steps_axis")) {
        o->has_steps_axis = true;
        o->steps_axis = (size_t)oq_opt_int(job->opts, "steps_axis");
    }
    OQ_TRY(oq_job_walker(job, m, &walker, err));
    if (walker != NULL) {
        bool *may_lack = OQ_NEW_ARRAY(&job->arena, bool, walker->in.n + 1);
        OQ_TRY_ALLOC(may_lack != NULL, err);
        oq_walker_may_lack(walker, may_lack);
        o->may_lack = may_lack;
    }
    OQ_TRY(find_tape(job, o, err));
    find_folder(job, o);
    if (oq_opt_is_set(job->opts, "limit"))
        o->limit = (uint64_t)oq_opt_int(job->opts, "limit");
    if (oq_opt_is_set(job->opts, "hold_out"))
        o->hold_out = (uint64_t)oq_opt_int(job->opts, "hold_out");
    o->watch = oq_listens(job->env) && !job->told_of_samples; /* only a message says it */
    o->numbers = job->opts->shared.numbers;
    o->n_numbers = job->opts->shared.n_numbers;
    OQ_TRY(oq_job_dims(job, &o->dims, &o->n_dims, err));
    return image_options(job, &o->image, err);
}

/* Options for images that were given for samples of another kind; said once. */
static void warn_of_images(oq_job *job, const oq_source *s) {
    for (size_t i = 0; i < oq_group_data.n && !job->told_of_images; i++) {
        const char *name = oq_group_data.rows[i].name;
        if (!oq_str_starts(oq_str_of(name), OQ_S("image_")) || !oq_opt_is_set(job->opts, name))
            continue;
        oq_warn(job->env, "--%s has no effect: the samples are no images but %s", name,
                oq_source_text(s));
        job->told_of_images = true;
    }
}

static onq_code open_source(oq_job *job, const oq_source_options *o, oq_source **out,
                            onq_error *err) {
    OQ_TRY(oq_source_open(job->env, o, out, err));
    if (!oq_listens(job->env)) /* a warning that nobody gets now can still be made later */
        return ONQ_OK;
    if (!oq_source_has_images(*out))
        warn_of_images(job, *out);
    if (oq_source_is_random(*out) && !job->told_of_random)
        oq_warn(job->env, "%s: for smoke runs; accuracy needs real data", oq_source_text(*out));
    job->told_of_random |= oq_source_is_random(*out);
    return ONQ_OK;
}

onq_code oq_job_open_source(oq_job *job, const oq_source_options *o, oq_source **out,
                            onq_error *err) {
    assert(o->model != NULL);
    oq_source_options so = *o;
    OQ_TRY(oq_job_steps_options(job, false, &so, err));
    return open_source(job, &so, out, err);
}

onq_code oq_job_open_raw_source(oq_job *job, const oq_source_options *o, oq_source **out,
                                const oq_walker **walker, onq_error *err) {
    oq_source_options so = *o;
    OQ_TRY(oq_job_walker(job, o->model, walker, err));
    OQ_TRY(oq_job_steps_options(job, true, &so, err));
    return open_source(job, &so, out, err);
}

onq_code oq_job_raw_source(oq_job *job, const oq_model *m, oq_source **out,
                           const oq_walker **walker, onq_error *err) {
    oq_source_options o;
    OQ_TRY(oq_job_source_options(job, m, &o, err));
    return oq_job_open_raw_source(job, &o, out, walker, err);
}

onq_code oq_job_source(oq_job *job, const oq_model *m, oq_source **out, onq_error *err) {
    oq_source_options o;
    OQ_TRY(oq_job_source_options(job, m, &o, err));
    return oq_job_open_source(job, &o, out, err);
}

onq_code oq_job_engine(oq_job *job, oq_engine **out, onq_error *err) {
    const oq_opt_value *v = oq_opt_get(job->opts, "onnxruntime");
    const bool several = v->row->type == ONQ_OPT_LIST; /* the first of them */
    const char *path = several ? (v->list.n > 0 ? v->list.v[0].p : NULL) : v->text.p;
    return oq_ort_open(job->env, path, out, err);
}

void oq_job_resources(const oq_job *job, oq_cal_options *o) {
    if (oq_opt_is_set(job->opts, "memory"))
        o->memory = oq_opt_size(job->opts, "memory");
    o->jobs = (uint64_t)oq_opt_int(job->opts, "jobs");
    o->fast = oq_opt_flag(job->opts, "fast");
}

onq_code oq_job_session(oq_job *job, oq_session_options *o, onq_error *err) {
    size_t n = 0;
    const oq_str *list = oq_opt_list(job->opts, "custom_ops", &n);
    const char **paths = OQ_NEW_ARRAY(&job->arena, const char *, n > 0 ? n : 1);
    OQ_TRY_ALLOC(paths != NULL, err);
    for (size_t i = 0; i < n; i++)
        paths[i] = list[i].p; /* lists are NUL-terminated */
    *o = (oq_session_options){.n_threads = oq_env_threads(job->env),
                              .provider = oq_opt_str(job->opts, "provider"),
                              .custom_ops = paths,
                              .n_custom_ops = n};
    return ONQ_OK;
}
