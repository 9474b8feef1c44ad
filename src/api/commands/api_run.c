/*
 * api_run.c — `onq run MODEL --data S [-o DIR]`: runs a model over samples and shows or keeps its
 * outputs.
 *
 * With -o each sample gets a folder test_data_set_K (the source's own number, or the sample's) with
 * output_0.pb, output_1.pb ... or outputs.npz. All files wait under temporary names and are renamed
 * together when the last sample has run. Several samples or sequences run at once (sweep.h); what
 * they give is shown in their order.
 */
#include "api/options/shared_rows.h"
#include "api/samples.h"

#include "engine/sweep.h"
#include "onnx/check/check.h"
#include "onnx/tensor.h"
#include "samples/agreement.h"
#include "samples/files/npz_write.h"

#include <pthread.h>

#define SHOWN 8 /* samples shown as text, unless --all */

enum { FORMAT_PB, FORMAT_NPZ };
#define FORMATS(ROW) ROW("pb", FORMAT_PB) ROW("npz", FORMAT_NPZ)

static const onq_option_info rows[] = {
    OQ_ROW_OUTPUT(
        "", "DIR",
        "Write the outputs to DIR/test_data_set_K; without this option they are only summarised."),
    OQ_ENUM(
        "format", 0, "", "pb", OQ_CHOICES(FORMATS), "FORMAT",
        "Format of the outputs: output_N.pb (TensorProto), or outputs.npz with arrays by name."),
    OQ_ROW_OPTIMIZATION,
    OQ_FLAG("all", 0, "", "Show every sample."),
};
static const oq_opt_group own = OQ_GROUP("Running", rows);

/* What is shown of a sequence, until those before it are shown. */
typedef struct showing {
    oq_buf text, bytes;
    oq_jw json; /* into `bytes` */
    uint64_t n_steps;
    bool in_tokens;
} showing;

typedef struct running {
    oq_job *job;
    oq_model *model;
    oq_session *session;
    oq_source *source;
    const oq_walker *walker; /* of a model with states */
    bool generates;
    const char *folder; /* NULL: nothing is written */
    bool npz, all;
    OQ_VEC(oq_out *) outs;     /* waiting for the commit */
    OQ_VEC(const char *) made; /* folders that were not there before */
    uint64_t n_samples;
    showing slots[OQ_SWEEP_SLOTS];
    oq_jw part;           /* how the JSON of a sequence begins */
    pthread_mutex_t lock; /* for what is written */
} running;

/* ---- writing ---- */

static onq_code make_folder(running *r, const char *path, onq_error *err) {
    if (oq_os_make_folder(path))
        return OQ_PUSH(&r->job->arena, &r->made, path) ? ONQ_OK : oq_fail_nomem(err);
    if (errno == EEXIST && oq_os_is_folder(path))
        return ONQ_OK;
    return oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: the folder cannot be made", path);
}

static onq_code write_file(running *r, const char *path, const oq_buf *bytes, onq_error *err) {
    oq_out *out = OQ_NEW(&r->job->arena, oq_out);
    OQ_TRY_ALLOC(out != NULL, err);
    OQ_TRY(oq_out_open(out, &r->job->env->alloc, path, err));
    if (!OQ_PUSH(&r->job->arena, &r->outs, out)) {
        oq_out_abort(out);
        return oq_fail_nomem(err);
    }
    OQ_TRY(oq_out_write(out, bytes->p, bytes->n, err));
    return oq_out_seal(out, err);
}

static onq_code write_outputs(running *r, const char *folder, const oq_outputs *o, onq_error *err) {
    OQ_SCRATCH_BUF(bytes, &r->job->env->alloc);
    const oq_io *names = r->session->outputs.v;
    if (r->npz) {
        const char *path = oq_str_format(&r->job->arena, "%s/outputs.npz", folder).p;
        OQ_TRY_ALLOC(path != NULL, err);
        OQ_TRY(oq_npz_write(&bytes, o->v, names, o->n, err));
        return write_file(r, path, &bytes, err);
    }
    for (size_t i = 0; i < o->n; i++) {
        const char *path = oq_str_format(&r->job->arena, "%s/output_%zu.pb", folder, i).p;
        bytes.n = 0;
        OQ_TRY_ALLOC(path != NULL, err);
        OQ_TRY(oq_datum_to_pb(&o->v[i], &names[i], &bytes, err));
        OQ_TRY(write_file(r, path, &bytes, err));
    }
    return ONQ_OK;
}

static onq_code write_sample(running *r, const oq_sample *s, const oq_outputs *o, onq_error *err) {
    const char *folder = NULL;
    if (strncmp(s->name, "test_data_set_", 14) == 0)
        folder = oq_str_format(&r->job->arena, "%s/%s", r->folder, s->name).p;
    else
        folder = oq_str_format(&r->job->arena, "%s/test_data_set_%" PRIu64, r->folder, s->number).p;
    OQ_TRY_ALLOC(folder != NULL, err);
    OQ_TRY(make_folder(r, folder, err));
    return write_outputs(r, folder, o, err);
}

/* Removes what a failed job left: temporary files, then the folders it made, innermost first. */
static void undo(running *r) {
    for (size_t i = 0; i < r->outs.n; i++)
        oq_out_abort(r->outs.v[i]);
    while (r->made.n > 0)
        (void)oq_os_remove_folder(r->made.v[--r->made.n]);
}

/* ---- showing ---- */

typedef struct numbers {
    double least, most, mean;
    bool any;
} numbers;

static numbers summarise(const oq_datum *d) {
    numbers n = {INFINITY, -INFINITY, 0, false};
    const oq_dtype_info *info = oq_dtype_find(d->dtype);
    if (d->kind != OQ_DATUM_TENSOR || info == NULL || d->count == 0 ||
        info->cls == OQ_CLASS_STRING || info->cls == OQ_CLASS_COMPLEX)
        return n;
    const bool real = info->cls == OQ_CLASS_REAL;
    double sum = 0;
    for (uint64_t i = 0; i < d->count; i++) {
        const double v = real ? oq_datum_real(d, i) : (double)oq_raw_get_int(d->dtype, d->data, i);
        n.least = v < n.least ? v : n.least;
        n.most = v > n.most ? v : n.most;
        sum += v;
    }
    n.mean = sum / (double)d->count;
    n.any = true;
    return n;
}

static void show_output(showing *v, const oq_io *io, const oq_datum *d, bool text) {
    const numbers n = summarise(d);
    oq_jw *w = &v->json;
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, "name", io->name);
    oq_jw_cstr(w, "type", d->kind == OQ_DATUM_TENSOR ? oq_dtype_name(d->dtype) : "");
    oq_jw_begin_array(w, "dims");
    for (size_t i = 0; i < d->rank; i++)
        oq_jw_int(w, NULL, d->dims[i]);
    oq_jw_end_array(w);
    if (n.any) {
        oq_jw_real(w, "min", n.least);
        oq_jw_real(w, "max", n.most);
        oq_jw_real(w, "mean", n.mean);
    }
    oq_jw_end_object(w);
    if (!text)
        return;
    oq_buf *b = &v->text;
    oq_buf_adds(b, "  ");
    oq_buf_add_safe(b, io->name);
    oq_buf_adds(b, ": ");
    oq_datum_describe(d, b);
    if (n.any)
        oq_buf_addf(b, ", min %.6g, max %.6g, mean %.6g", n.least, n.most, n.mean);
    oq_buf_addc(b, '\n');
}

/* The tokens that the model prefers after this step, one for each text of the batch. Those of a
 * sequence are on one line. */
static void show_tokens(const running *r, showing *v, const oq_sample *s, const oq_outputs *o) {
    assert(r->walker != NULL); /* --generate is refused without states */
    const oq_datum *d = &o->v[r->walker->roles.language.logits];
    oq_jw *w = &v->json;
    oq_buf *b = &v->text;
    if (s->step == 0 || !v->in_tokens) {
        oq_buf_add_safe(b, oq_str_of(s->name));
        oq_buf_addc(b, ':');
    }
    v->in_tokens = !s->last;
    oq_jw_begin_array(w, "tokens");
    if (d->kind == OQ_DATUM_TENSOR && d->rank >= 2 && d->count > 0) {
        const uint64_t n = (uint64_t)d->dims[d->rank - 1], batch = (uint64_t)d->dims[0],
                       length = d->count / n / batch;
        for (uint64_t i = 0; i < batch && length > 0; i++) {
            const uint64_t id = oq_datum_top(d, (i * length + length - 1) * n, n);
            oq_jw_uint(w, NULL, id);
            oq_buf_addf(b, i == 0 ? " %" PRIu64 : "/%" PRIu64, id);
        }
    }
    oq_jw_end_array(w);
    if (s->last)
        oq_buf_addc(b, '\n');
}

/* States are written with the other outputs, and not shown. */
static bool is_state(const running *r, size_t i) {
    return r->walker != NULL && i < r->walker->out.n && r->walker->roles.states[i] &&
           r->walker->roles.n_states < r->walker->out.n;
}

static void show_sample(const running *r, showing *v, const oq_turn *t) {
    const oq_sample *s = &t->samples[0];
    const oq_outputs *o = &t->outputs[0];
    const bool text = r->folder == NULL && !r->generates && (r->all || t->at < SHOWN);
    oq_jw *w = &v->json;
    oq_jw_begin_object(w, NULL);
    oq_jw_uint(w, "number", s->number);
    oq_jw_cstr(w, "name", s->name);
    if (r->walker != NULL) {
        oq_jw_uint(w, "sequence", s->sequence);
        oq_jw_uint(w, "step", s->step);
    }
    if (r->generates)
        show_tokens(r, v, s, o);
    oq_jw_begin_array(w, "outputs");
    if (text) {
        oq_buf_add_safe(&v->text, oq_str_of(s->name));
        oq_buf_addc(&v->text, '\n');
    }
    for (size_t i = 0; i < o->n; i++)
        if (!is_state(r, i))
            show_output(v, &r->session->outputs.v[i], &o->v[i], text);
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}

/* ---- the job ---- */

static onq_code take_sample(void *ctx, const oq_turn *t, onq_error *err) {
    running *r = ctx;
    showing *v = &r->slots[t->slot];
    if (r->folder != NULL) {
        pthread_mutex_lock(&r->lock);
        const onq_code rc = write_sample(r, &t->samples[0], &t->outputs[0], err);
        pthread_mutex_unlock(&r->lock);
        OQ_TRY(rc);
    }
    if (v->n_steps++ == 0) {
        oq_buf_init(&v->text, &r->job->env->alloc);
        oq_buf_init(&v->bytes, &r->job->env->alloc);
        v->json = r->part;
        v->json.out = &v->bytes;
    }
    show_sample(r, v, t);
    return ONQ_OK;
}

static void drop(showing *v) {
    if (v->n_steps > 0) {
        oq_buf_release(&v->text);
        oq_buf_release(&v->bytes);
    }
    *v = (showing){0};
}

static onq_code show_sequence(void *ctx, unsigned slot, onq_error *err) {
    assert(slot < OQ_SWEEP_SLOTS);
    running *r = ctx;
    showing *v = &r->slots[slot];
    (void)err; /* a text that had no memory fails where it is used */
    r->job->text.failed |= v->text.failed;
    oq_buf_add(&r->job->text, v->text.p, v->text.n);
    oq_jw_join(&r->job->json, &v->json);
    r->n_samples += v->n_steps;
    drop(v);
    return ONQ_OK;
}

static onq_code run_samples(running *r, onq_error *err) {
    const onq_options *o = r->job->opts;
    const oq_sweep sweep = {.env = r->job->env,
                            .model = {.source = r->source,
                                      .session = r->session,
                                      .path = oq_job_input(r->job),
                                      .walker = r->walker},
                            .ctx = r,
                            .take = take_sample,
                            .end = show_sequence,
                            .whole_sequences = true,
                            .wide = {.model = r->model,
                                     .jobs = (unsigned)oq_opt_int(o, "jobs"),
                                     .memory = oq_opt_size(o, "memory")},
                            .what = "run"};
    oq_source_read_once(r->source);
    r->part = oq_jw_fork(&r->job->json, NULL);
    pthread_mutex_init(&r->lock, NULL);
    const onq_code rc = oq_sweep_run(&sweep, err);
    pthread_mutex_destroy(&r->lock);
    for (size_t i = 0; i < OQ_SWEEP_SLOTS; i++)
        drop(&r->slots[i]);
    return rc;
}

static onq_code run_all(running *r, oq_engine *engine, onq_error *err) {
    oq_session_options o;
    OQ_TRY(oq_job_session(r->job, &o, err));
    o.model = r->model;
    o.level = OQ_CHOSEN(r->job->opts, "optimization", oq_opt_level, OQ_LEVEL_CHOICES);
    /* Samples that run at once want the cores on which the runtime's threads would wait busily. */
    o.no_spinning = oq_opt_int(r->job->opts, "jobs") != 1 && oq_source_count(r->source) != 1;
    OQ_TRY(oq_session_open(engine, &o, &r->session, err));
    if (r->folder != NULL)
        OQ_TRY(make_folder(r, r->folder, err));
    oq_jw_begin_array(&r->job->json, "samples");
    OQ_TRY(run_samples(r, err));
    oq_jw_end_array(&r->job->json);
    return ONQ_OK;
}

static void show_end(running *r, const char *model) {
    oq_buf *b = &r->job->text;
    oq_jw_cstr(&r->job->json, "model", model);
    oq_jw_uint(&r->job->json, "count", r->n_samples);
    if (r->folder != NULL) {
        oq_jw_cstr(&r->job->json, "output", r->folder);
        oq_buf_addf(b, "%" PRIu64 " samples run, %zu files in %s\n", r->n_samples, r->outs.n,
                    r->folder);
    } else if (!r->all && !r->generates && r->n_samples > SHOWN) {
        oq_buf_addf(b, "... %" PRIu64 " more samples (--all shows them, -o keeps the outputs)\n",
                    r->n_samples - SHOWN);
    }
}

static onq_code run_run(oq_job *job, onq_error *err) {
    running r = {.job = job,
                 .folder = oq_opt_str(job->opts, "output"),
                 .npz = OQ_CHOSEN(job->opts, "format", int, FORMATS) == FORMAT_NPZ,
                 .all = oq_opt_flag(job->opts, "all")};
    const char *path = oq_job_input(job);
    oq_engine *engine = NULL;
    onq_code rc = oq_job_open(job, path, &r.model, err);
    if (rc == ONQ_OK)
        rc = oq_model_check(r.model, err);
    if (rc == ONQ_OK)
        rc = oq_job_raw_source(job, r.model, &r.source, &r.walker, err);
    r.generates = oq_opt_is_set(job->opts, "generate");
    if (rc == ONQ_OK)
        rc = oq_job_engine(job, &engine, err);
    if (rc == ONQ_OK)
        rc = run_all(&r, engine, err);
    if (rc == ONQ_OK)
        rc = oq_job_tell_samples(job, r.model, r.source, false, err);
    if (rc == ONQ_OK)
        rc = oq_out_commit_all(r.outs.v, r.outs.n, err);
    if (rc == ONQ_OK)
        show_end(&r, path);
    else
        undo(&r);
    oq_session_close(r.session);
    oq_engine_close(engine);
    oq_source_close(r.source);
    oq_model_free(r.model);
    return rc;
}

const oq_command oq_command_run = {
    .info = {"run", "MODEL", "run a model over samples and write its outputs",
             "Runs MODEL in ONNX Runtime over the samples of --data. With -o DIR the outputs of "
             "sample K are written to DIR/test_data_set_K, all of them or none; without it a line "
             "for each output is shown."},
    .groups = {&own, &oq_group_input, &oq_group_data, &oq_group_jobs, &oq_group_runtime,
               &oq_group_general, &oq_group_verify_idle},
    .run = run_run,
};
