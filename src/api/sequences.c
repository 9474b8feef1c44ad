/*
 * sequences.c — samples as steps of sequences, for every command: see samples.h.
 *
 * For each set of samples of a job there is one entry. It has a model of its own, which is opened
 * when it has to run: that of the command may be gone, or changed, before the samples are read. The
 * steps are on tapes: complete ones, which cost a run of the model each, and raw ones.
 */
#include "api/samples.h"

#include "samples/sequence/steps.h"

typedef struct oq_job_steps oq_job_steps;
struct oq_job_steps {
    oq_job *job;
    oq_job_steps *next;
    const char *spec; /* what the samples are: --data, or a folder */
    oq_tape *base;    /* the tape that they come from, or NULL */
    oq_source_options options;
    oq_model *model;
    oq_walker walker; /* its names are views of the model */
    oq_engine *engine;
    oq_session *session;
    oq_tape *tapes[2]; /* complete, raw */
};

/* ---- how a model walks ---- */

static onq_code find_carry(oq_job *job, const oq_ios *in, const oq_ios *out, oq_carry *c,
                           onq_error *err) {
    size_t n = 0;
    const oq_str *rules = oq_opt_list(job->opts, "carry", &n);
    return n > 0 ? oq_carry_read(&job->arena, rules, n, in, out, c, err)
                 : oq_carry_find(&job->arena, in, out, c, err);
}

static void tell_found(oq_job *job, const oq_walker *w) {
    const oq_carry *c = &w->roles.carry;
    if (job->told_of_carry || c->n == 0 || oq_opt_is_set(job->opts, "carry"))
        return;
    job->told_of_carry = true;
    oq_note(job->env,
            "states: %zu output%s go%s back into the model at the next step, '%.*s' to '%.*s'%s "
            "(--carry says otherwise, --no_carry turns it off)",
            c->n, OQ_NOUN_S(c->n), c->n == 1 ? "es" : "", OQ_STR(w->out.v[c->v[0].out].name),
            OQ_STR(w->in.v[c->v[0].in].name), c->n > 1 ? " and so on" : "");
}

static onq_code check_options(const oq_job *job, const oq_walker *w, onq_error *err) {
    const onq_options *o = job->opts;
    if (oq_opt_is_set(o, "generate") && !(w->roles.language.is && w->roles.carry.n > 0))
        return oq_fail(err, ONQ_E_OPTION,
                       "--generate is for decoders with states: tokens (input_ids) and a past in, "
                       "logits out (--carry names states that are not found)");
    return ONQ_OK;
}

/* What the model is made of; names stay views of it. */
static onq_code make_walker(oq_job *job, const oq_model *m, oq_walker *w, onq_error *err) {
    oq_carry carry;
    OQ_TRY(oq_model_inputs(m, &job->arena, &w->in, err));
    OQ_TRY(oq_model_outputs(m, &job->arena, &w->out, err));
    OQ_TRY(find_carry(job, &w->in, &w->out, &carry, err));
    OQ_TRY(oq_roles_of(&job->arena, &w->in, &w->out, &carry, &w->roles, err));
    return check_options(job, w, err);
}

onq_code oq_job_walker(oq_job *job, const oq_model *m, const oq_walker **out, onq_error *err) {
    const onq_options *o = job->opts;
    *out = NULL;
    if (!oq_opt_has(o, "carry") || oq_opt_flag(o, "no_carry")) {
        if (oq_opt_has(o, "carry") && (oq_opt_is_set(o, "carry") || oq_opt_is_set(o, "generate")))
            return oq_fail(err, ONQ_E_OPTION, "--no_carry and --%s cannot be combined",
                           oq_opt_is_set(o, "carry") ? "carry" : "generate");
        return ONQ_OK;
    }
    oq_walker *w = OQ_NEW(&job->arena, oq_walker);
    OQ_TRY_ALLOC(w != NULL, err);
    OQ_TRY(make_walker(job, m, w, err));
    if (w->roles.carry.n > 0 || oq_opt_is_set(o, "steps_axis"))
        *out = w;
    return ONQ_OK;
}

/* ---- running the model ---- */

/* The model of the command, once more. */
static onq_code open_model(oq_job *job, const oq_model *m, oq_model **out, onq_error *err) {
    static const char *const options[] = {"input", "float_model"};
    const char *path = m->path; /* a model in memory is known by the address of its label */
    const char *operand = oq_opt_operand_count(job->opts) > 0 ? oq_opt_operand(job->opts, 0) : NULL;
    for (size_t i = 0; i < OQ_COUNT(options); i++) {
        const char *given =
            oq_opt_has(job->opts, options[i]) ? oq_opt_str(job->opts, options[i]) : NULL;
        if (given != NULL && strcmp(given, m->path) == 0)
            path = given;
    }
    if (operand != NULL && strcmp(operand, m->path) == 0)
        path = operand;
    return oq_job_open(job, path, out, err);
}

/* As a calibration runs it, so that both give the same bits. */
static onq_code open_session(oq_job_steps *s, onq_error *err) {
    oq_session_options so;
    if (s->session != NULL)
        return ONQ_OK;
    OQ_TRY(oq_job_engine(s->job, &s->engine, err));
    OQ_TRY(oq_job_session(s->job, &so, err));
    so.model = s->model;
    so.level = OQ_OPT_NONE;
    so.n_threads = OQ_THREADS_RUNTIME;
    so.no_spinning = true;
    return oq_session_open(s->engine, &so, &s->session, err);
}

static onq_code run_step(void *ctx, const oq_sample *step, const oq_datum **outputs, size_t *n,
                         onq_error *err) {
    oq_job_steps *s = ctx;
    oq_outputs out = {0};
    OQ_TRY(open_session(s, err));
    OQ_TRY(oq_session_run(s->session, step->inputs, step->n_inputs, &out, err));
    *outputs = out.v;
    *n = out.n;
    return ONQ_OK;
}

/* ---- entries ---- */

static onq_code open_tape(oq_job_steps *s, bool raw, onq_error *err) {
    const onq_options *opts = s->job->opts;
    oq_feed *feed = NULL;
    oq_steps_options o = {
        .source = &s->options,
        .walker = &s->walker,
        .generate = oq_opt_is_set(opts, "generate") ? (uint64_t)oq_opt_int(opts, "generate") : 0,
        .run = raw ? NULL : run_step,
        .ctx = s};
    if (s->tapes[raw] != NULL)
        return ONQ_OK;
    OQ_TRY(oq_feed_open_steps(s->job->env, &o, &feed, err));
    const bool said = oq_opt_has(opts, "memory") && oq_opt_is_set(opts, "memory");
    return oq_tape_new(s->job->env, feed, said ? oq_opt_size(opts, "memory") : oq_memory_share(),
                       &s->tapes[raw], err);
}

static const char *spec_of(oq_job *job, const oq_source_options *o) {
    if (o->spec != NULL || o->tape != NULL)
        return o->spec != NULL ? o->spec : "";
    return oq_str_cstr(&job->arena,
                       o->beside != NULL ? oq_str_of(o->beside) : oq_path_folder(o->model->path));
}

static onq_code add_entry(oq_job *job, const char *spec, const oq_source_options *o,
                          oq_job_steps **out, onq_error *err) {
    oq_job_steps *s = OQ_NEW(&job->arena, oq_job_steps);
    OQ_TRY_ALLOC(s != NULL, err);
    *s = (oq_job_steps){.job = job, .next = job->steps, .base = o->tape, .options = *o};
    job->steps = s;
    s->spec = oq_arena_strdup(&job->arena, spec, strlen(spec));
    OQ_TRY_ALLOC(s->spec != NULL, err);
    OQ_TRY(open_model(job, o->model, &s->model, err));
    OQ_TRY(make_walker(job, s->model, &s->walker, err));
    s->options.model = s->model;
    s->options.watch = false;
    *out = s;
    return ONQ_OK;
}

onq_code oq_job_steps_options(oq_job *job, bool raw, oq_source_options *o, onq_error *err) {
    const oq_walker *walker = NULL;
    OQ_TRY(oq_job_walker(job, o->model, &walker, err));
    if (walker == NULL)
        return ONQ_OK;
    const char *spec = spec_of(job, o);
    OQ_TRY_ALLOC(spec != NULL, err);
    oq_job_steps *s = job->opts->shared.steps != NULL ? job->opts->shared.steps : job->steps;
    while (s != NULL && (strcmp(s->spec, spec) != 0 || s->base != o->tape))
        s = s->next;
    if (s == NULL)
        OQ_TRY(add_entry(job, spec, o, &s, err));
    OQ_TRY(open_tape(s, raw, err));
    if (!oq_tape_feed(s->tapes[raw])->random)
        tell_found(job, walker);
    o->tape = s->tapes[raw];
    o->may_lack = NULL;
    o->has_steps_axis = false;
    o->watch = false; /* steps of a sequence are alike, and few of them may be many */
    if (!raw)
        return ONQ_OK;
    bool *may_lack = OQ_NEW_ARRAY(&job->arena, bool, walker->in.n + 1);
    OQ_TRY_ALLOC(may_lack != NULL, err);
    for (size_t i = 0; i < walker->in.n; i++)
        may_lack[i] = true; /* generated steps have no inputs yet */
    o->may_lack = may_lack;
    return ONQ_OK;
}

/* ---- texts without their beginning ---- */

static void count_texts(const oq_job_steps *s, uint64_t *begun, uint64_t *late) {
    for (size_t i = 0; s->walker.roles.language.is && i < OQ_COUNT(s->tapes); i++) {
        const oq_feed *f = s->tapes[i] != NULL ? oq_tape_feed(s->tapes[i]) : NULL;
        *begun += f != NULL && !f->random ? f->begun : 0;
        *late += f != NULL && !f->random ? f->late : 0;
    }
}

void oq_job_tell_steps(const oq_job *job) {
    uint64_t begun = job->begun, late = job->late;
    for (const oq_job_steps *s = job->steps; s != NULL; s = s->next)
        count_texts(s, &begun, &late);
    if (begun > 0 && late == begun)
        oq_warn(job->env,
                "all samples begin with a past, and no run shows the first tokens of a text, whose "
                "activations are the largest: verdicts and what samples teach say nothing of them; "
                "give whole texts and leave the states out, and the model makes them itself");
}

void oq_job_close_steps(oq_job *job) {
    for (oq_job_steps *s = job->steps; s != NULL; s = s->next) {
        count_texts(s, &job->begun, &job->late);
        for (size_t i = 0; i < OQ_COUNT(s->tapes); i++)
            oq_tape_free(s->tapes[i]);
        oq_session_close(s->session);
        oq_engine_close(s->engine);
        oq_model_free(s->model);
    }
    job->steps = NULL;
}
