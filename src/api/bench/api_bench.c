/*
 * api_bench.c — `onq bench MODEL [MODEL...] --data S`: how fast models run, and whether they agree.
 *
 * First all models run each sample side by side: that warms them up and compares their outputs with
 * the first one's. Then they run in turns, round by round, so that a busy moment of the machine
 * hits all of them; only the run itself is timed, not the reading of samples. With --throughput
 * they run once more, several samples at once (bench_flight.h).
 */
#include "api/bench/bench_show.h"
#include "api/bench/bench_units.h"
#include "api/options/shared_rows.h"
#include "api/samples.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"

/* Without --runs: at least so many runs and so many seconds for each model, but no more than
 * that. */
#define MIN_RUNS    20
#define MAX_RUNS    2000
#define MIN_SECONDS 1.0
/* Rounds of --throughput, and how long a part of one takes without --runs. */
#define FLIGHT_ROUNDS  3
#define FLIGHT_SECONDS 0.3

static const onq_option_info rows[] = {
    OQ_INT("runs", 'n', "repeat iterations", "0", "0..1000000", "N",
           "Timed runs of each model; 0 means enough runs for a stable median."),
    OQ_ROW_OPTIMIZATION,
    OQ_ROW_LABELS(". Shows the share of right answers of each model."),
    OQ_ROW_TARGET("How near to the first model the others must be, as a gate for scripts: "
                  "agreement=PERCENT (the same class), sample_agreement=PERCENT (in all rows of a "
                  "sample or sequence), sqnr=DB, cosine=X or, with --labels, "
                  "accuracy_drop=PERCENT. The status is 1 if one of them misses a target."),
    OQ_FLAG("throughput", 0, "",
            "Also run several samples at once in a session that shares its threads among them, "
            "and compare runs per second with one sample at a time. With --threads 1 each run has "
            "one thread."),
    OQ_FLAG("decode", 0, "",
            "Also measure tokens a second of decoders with states: a text of 1, 128 and 1,024 "
            "tokens at once, and each token after it with the cache."),
    /* Own sense: what is measured depends on it. */
    OQ_INT("jobs", 'j', "", "0", "0..16", "N",
           "With --throughput: number of samples that run at once; 0 means one for each core."),
    OQ_FLAG("units", 0, "",
            "Time the products of one MODEL instead (Conv, Gemm, MatMul with their Relu or Clip), "
            "each shape in float and in integers, with one thread unless --threads is given. "
            "Sizes are those of the first sample of --data. --json prints the file for onq static "
            "--unit_costs."),
};
static const oq_opt_group own = OQ_GROUP("Timing", rows);

typedef oq_bench_contender contender;
typedef oq_bench bench;

/* ---- opening ---- */

/* Without --data, the samples next to the first model serve all models. */
static onq_code source_options(bench *b, const contender *c, oq_source_options *o, onq_error *err) {
    OQ_TRY(oq_job_source_options(b->job, c->model, o, err));
    if (o->spec == NULL && o->tape == NULL && c != b->v) {
        o->spec = oq_str_cstr(&b->job->arena, oq_path_folder(b->v[0].path));
        OQ_TRY_ALLOC(o->spec != NULL, err);
    }
    return ONQ_OK;
}

static onq_code open_source(bench *b, contender *c, onq_error *err) {
    oq_source_options o;
    OQ_TRY(source_options(b, c, &o, err));
    return oq_job_open_raw_source(b->job, &o, &c->source, &c->walker, err);
}

static onq_code session_options(bench *b, const contender *c, oq_session_options *o,
                                onq_error *err) {
    OQ_TRY(oq_job_session(b->job, o, err));
    o->model = c->model;
    o->level = OQ_CHOSEN(b->job->opts, "optimization", oq_opt_level, OQ_LEVEL_CHOICES);
    return ONQ_OK;
}

static onq_code open_contender(bench *b, contender *c, onq_error *err) {
    OQ_TRY(oq_job_open(b->job, c->path, &c->model, err));
    OQ_TRY(oq_model_check(c->model, err));
    OQ_TRY(oq_model_size(c->model, &c->size_bytes, err));
    OQ_TRY_IN(open_source(b, c, err), err, "%s", c->path);
    if (b->engine == NULL)
        OQ_TRY(oq_job_engine(b->job, &b->engine, err));
    oq_session_options o;
    OQ_TRY(session_options(b, c, &o, err));
    const double start = oq_seconds();
    OQ_TRY(oq_session_open(b->engine, &o, &c->session, err));
    c->load_seconds = oq_seconds() - start;
    if (c == b->v && c->walker != NULL)
        b->roles = c->walker->roles;
    else if (c == b->v)
        OQ_TRY(oq_roles_find(&b->job->arena, &c->session->inputs, &c->session->outputs, &b->roles,
                             err));
    return oq_bench_find_why(&c->why, &b->job->arena, c->model, err);
}

/* ---- timing ---- */

static bool has_enough(const contender *c, uint64_t wanted) {
    if (wanted != 0)
        return c->times.n >= wanted;
    return c->times.n >= MAX_RUNS || (c->times.n >= MIN_RUNS && c->total >= MIN_SECONDS);
}

typedef struct timing {
    bench *b;
    contender *c;
    uint64_t wanted;
} timing;

static bool wants_more(void *ctx, uint64_t at) {
    const timing *t = ctx;
    (void)at;
    return !has_enough(t->c, t->wanted);
}

static onq_code time_sample(void *ctx, const oq_turn *turn, onq_error *err) {
    const timing *t = ctx;
    OQ_TRY(oq_turn_run(turn, err));
    const double taken = turn->seconds[0];
    t->c->total += taken;
    return OQ_PUSH(&t->b->job->arena, &t->c->times, taken) ? ONQ_OK : oq_fail_nomem(err);
}

/* One pass over the samples, or what is left of the runs. */
static onq_code time_round(bench *b, contender *c, uint64_t wanted, onq_error *err) {
    timing t = {b, c, wanted};
    const oq_sweep sweep = {.env = b->job->env,
                            .model = oq_bench_model(c),
                            .ctx = &t,
                            .more = wants_more,
                            .run = time_sample};
    return oq_sweep_run(&sweep, err);
}

static onq_code time_all(bench *b, onq_error *err) {
    const uint64_t wanted = (uint64_t)oq_opt_int(b->job->opts, "runs");
    for (bool more = true; more;) {
        more = false;
        uint64_t done = 0;
        for (size_t i = 0; i < b->n; i++) {
            OQ_TRY(time_round(b, &b->v[i], wanted, err));
            more = more || !has_enough(&b->v[i], wanted);
            done += b->v[i].times.n;
        }
        OQ_TRY(oq_progress(b->job->env, "time", done, wanted * b->n, err));
    }
    return ONQ_OK;
}

/* Samples with all their inputs: those of a model with states it would give itself. */
static onq_code open_complete(bench *b, contender *c, onq_error *err) {
    oq_source_options o;
    if (c->walker == NULL || c->complete != NULL)
        return ONQ_OK;
    OQ_TRY(source_options(b, c, &o, err));
    return oq_job_open_source(b->job, &o, &c->complete, err);
}

/* Runs in rounds, for the same reason as above. */
static onq_code time_flights(bench *b, onq_error *err) {
    const onq_options *opts = b->job->opts;
    const uint64_t wanted = (uint64_t)oq_opt_int(opts, "runs");
    for (unsigned round = 0; round < FLIGHT_ROUNDS; round++) {
        for (size_t i = 0; i < b->n; i++) {
            contender *c = &b->v[i];
            if (c->flight.session == NULL) {
                oq_session_options o;
                OQ_TRY(session_options(b, c, &o, err));
                OQ_TRY(oq_bench_flight_open(&c->flight, b->engine, &o,
                                            (unsigned)oq_opt_int(opts, "jobs"), err));
                OQ_TRY_IN(open_complete(b, c, err), err, "%s", c->path);
            }
            const double each = c->total / (double)c->times.n;
            const onq_code rc = oq_bench_flight_round(
                &c->flight, c->complete != NULL ? c->complete : c->source,
                wanted > 0 ? wanted : (uint64_t)(FLIGHT_SECONDS / each) + 1, err);
            if (rc != ONQ_OK)
                return oq_error_in(err, rc, "%s", c->path);
            OQ_TRY(oq_progress(b->job->env, "throughput", round * b->n + i + 1,
                               FLIGHT_ROUNDS * b->n, err));
        }
    }
    return ONQ_OK;
}

/* Texts of other lengths, with the cache. */
static onq_code time_decoding(bench *b, onq_error *err) {
    for (size_t i = 0; i < b->n; i++) {
        contender *c = &b->v[i];
        if (c->walker == NULL || !c->walker->roles.language.is || c->walker->roles.carry.n == 0)
            return oq_fail(err, ONQ_E_OPTION,
                           "--decode is for decoders with states, and %s is none", c->path);
        const oq_sample *s = oq_source_peek(c->source, 0);
        if (s != NULL)
            OQ_TRY_IN(oq_bench_decode_run(&c->decode, c->session, c->walker, s, err), err, "%s",
                      c->path);
        OQ_TRY(oq_progress(b->job->env, "decode", i + 1, b->n, err));
    }
    return ONQ_OK;
}

/* ---- the job ---- */

static onq_code run_contenders(bench *b, onq_error *err) {
    OQ_TRY(oq_gate_read(b->job, oq_opt_is_set(b->job->opts, "labels"), &b->targets, err));
    if (b->targets.n > 0 && b->n < 2)
        return oq_fail(err, ONQ_E_OPTION,
                       "--target compares models with the first one, and there is only one");
    if (oq_opt_is_set(b->job->opts, "labels"))
        OQ_TRY(oq_labels_read(&b->labels, &b->job->arena, &b->job->env->alloc,
                              oq_opt_str(b->job->opts, "labels"), err));
    for (size_t i = 0; i < b->n; i++)
        OQ_TRY(open_contender(b, &b->v[i], err));
    OQ_TRY(oq_bench_compare(b, err));
    OQ_TRY(oq_job_tell_samples(b->job, b->v[0].model, b->v[0].source, false, err));
    for (size_t i = 0; i < b->n; i++) {
        b->v[i].order = oq_bench_worst_first(b, &b->v[i]);
        OQ_TRY_ALLOC(b->v[i].order != NULL, err);
        if (b->labels.v != NULL && !oq_opt_is_set(b->job->opts, "limit"))
            OQ_TRY(oq_labels_end(&b->labels, b->v[i].rows, err));
    }
    OQ_TRY(oq_bench_check_targets(b, err));
    OQ_TRY(time_all(b, err));
    if (oq_opt_flag(b->job->opts, "throughput"))
        OQ_TRY(time_flights(b, err));
    if (oq_opt_flag(b->job->opts, "decode"))
        OQ_TRY(time_decoding(b, err));
    oq_bench_show(b);
    return ONQ_OK;
}

static onq_code run_bench(oq_job *job, onq_error *err) {
    const char *input = oq_opt_str(job->opts, "input");
    const size_t operands = oq_opt_operand_count(job->opts);
    bench b = {.job = job, .n = operands + (input != NULL)};
    b.v = OQ_NEW_ARRAY(&job->arena, contender, b.n);
    OQ_TRY_ALLOC(b.v != NULL, err);
    if (oq_opt_flag(job->opts, "units") && b.n != 1)
        return oq_fail(err, ONQ_E_OPTION, "--units is for one model, not for %zu", b.n);
    if (oq_opt_is_set(job->opts, "jobs") && !oq_opt_flag(job->opts, "throughput"))
        return oq_fail(err, ONQ_E_OPTION, "--jobs needs --throughput");
    if (oq_opt_flag(job->opts, "units") && oq_opt_flag(job->opts, "throughput"))
        return oq_fail(err, ONQ_E_OPTION, "--units and --throughput cannot be combined");
    if (oq_opt_flag(job->opts, "units"))
        return oq_bench_units(job, input != NULL ? input : oq_opt_operand(job->opts, 0), err);
    size_t n = 0;
    if (input != NULL)
        b.v[n++].path = input;
    for (size_t i = 0; i < operands; i++)
        b.v[n++].path = oq_opt_operand(job->opts, i);
    onq_code rc = run_contenders(&b, err);
    for (size_t i = 0; i < b.n; i++) {
        oq_bench_flight_close(&b.v[i].flight);
        oq_bench_compare_close(&b.v[i]);
        oq_session_close(b.v[i].session);
        oq_source_close(b.v[i].source);
        oq_source_close(b.v[i].complete);
    }
    oq_engine_close(b.engine);
    for (size_t i = 0; i < b.n; i++)
        oq_model_free(b.v[i].model);
    return rc;
}

const oq_command oq_command_bench = {
    .info =
        {"bench", "MODEL [MODEL...]", "time models side by side and compare their outputs",
         "Runs each MODEL in ONNX Runtime over the samples of --data and shows size, latency "
         "(fastest, median and 90th percentile), throughput, and how well the outputs agree "
         "with the first "
         "model's: cosine, signal to quantization noise in dB, and how often the largest value "
         "along the last axis is the same one. Of several outputs the table shows the one that "
         "agrees worst; all of them follow below it. States (caches, hidden states) are shown "
         "apart, and models with them step by step: with their own states, and with those of the "
         "first model. Language models also get their perplexity on the texts of --data and their "
         "divergence (KL) from the first model."},
    .groups = {&own, &oq_group_input, &oq_group_data, &oq_group_runtime, &oq_group_general,
               &oq_group_verify_idle},
    .run = run_bench,
};
