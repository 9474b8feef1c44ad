/*
 * nbits_tell.c — what `nbits` and `bnb4` say: warnings of too few bits and of names that meet
 * nothing, and what was done with samples, bits and the weights of a file.
 */
#include "api/nbits/nbits_job.h"

#include "api/quantizing/quant_config.h"

#define MAX_NOISE 0.02 /* that rounding may put into weights */
#define MAX_MIXED                                                                                  \
    0.0125 /* the same where some weights have more of it than others, by no samples */
#define MAX_LEARNED 0.08 /* the same where samples make up for some of it */
#define MAX_REST    0.08 /* that gptq may leave in what the last layer reads */

/* ---- too few bits ---- */

/* Said before the work begins, which may take an hour: what it writes is of little use. gptq makes up
 * for much of this noise, and says itself what it could not. */
onq_code oq_nbits_warn_of_noise(oq_nbits *r, onq_error *err) {
    const oq_nb_job job = {.model = r->q.model, .config = &r->config};
    double noise = 0;
    if (r->config.bnb4 || r->import.exact)
        return ONQ_OK;
    const bool blind = r->config.spends && !oq_opt_is_set(r->q.job->opts, "data");
    const bool learned = r->config.how.method->by_hessian;
    const double most = learned ? MAX_LEARNED : blind ? MAX_MIXED : MAX_NOISE;
    OQ_TRY(oq_nb_foresee(&job, &noise, err));
    if (noise > most)
        oq_warn(
            r->q.job->env,
            "with so few bits, rounding adds %.1f %% of noise to the weights: most models are of "
            "little use with more than %g %%, language models above all (%s)",
            100 * noise, 100 * most,
            learned ? "samples make up for a part of it only; more bits or smaller blocks lose less"
            : blind ? "--data makes more of so few bits, --quant_method gptq still more"
                    : "--quant_method gptq --data loses less");
    return ONQ_OK;
}

/* Said before anything is written. */
void oq_nbits_warn_of_rest_noise(const oq_nbits *r, const oq_nb_learn_job *job) {
    if (job->noise > MAX_REST)
        oq_warn(
            r->q.job->env,
            "the inputs of the last layer have %.0f %% of noise, although %s made up for what it "
            "could: the result is of little use (a language model with 13 %% had three times "
            "float's perplexity; more bits, smaller blocks or --rotate lose less)",
            100 * job->noise, r->config.how.method->name);
}

/* How much was looked at, and where the time went. */
void oq_nbits_tell_learned(oq_nbits *r, const oq_nb_learn_job *job) {
    const oq_nb_times *t = &job->times;
    oq_jw *w = &r->q.job->json;
    oq_info(
        r->q.job->env,
        "gptq: %zu layers with %zu samples, one after another; the last one reads %.1f %% noise",
        job->n_layers, job->n_samples, 100 * job->noise);
    oq_info(r->q.job->env,
            "gptq: %.1f s of processor time for runs of both models, %.1f s for Hessians, %.1f s "
            "for rounding",
            t->runs, t->sums, t->solving);
    oq_jw_begin_object(w, "gptq");
    oq_jw_uint(w, "layers", job->n_layers);
    oq_jw_uint(w, "samples", job->n_samples);
    oq_jw_real(w, "noise", job->noise);
    oq_jw_real(w, "runs_cpu_seconds", t->runs);
    oq_jw_real(w, "hessians_cpu_seconds", t->sums);
    oq_jw_real(w, "rounding_cpu_seconds", t->solving);
    oq_jw_end_object(w);
}

void oq_nbits_tell_spent(const oq_nbits *r, const oq_nb_budget *b, size_t runs) {
    oq_job *job = r->q.job;
    oq_buf_addf(
        &job->text,
        "%.2f bits a weight, by %s: %zu weights with 2, %zu with 3, %zu with 4, %zu with 8, "
        "%zu float",
        b->got, b->weigh != NULL ? "what reaches the outputs" : "the noise of weights", b->count[2],
        b->count[3], b->count[4], b->count[8], b->count[0]);
    if (b->n_fixed > 0)
        oq_buf_addf(&job->text, " (%zu of them fixed by --node_config)", b->n_fixed);
    oq_buf_addf(&job->text, "\n");
    oq_jw_begin_object(&job->json, "bits");
    oq_jw_real(&job->json, "target", b->target);
    oq_jw_real(&job->json, "got", b->got);
    oq_jw_bool(&job->json, "measured", b->weigh != NULL);
    oq_jw_uint(&job->json, "runs", runs);
    oq_jw_uint(&job->json, "fixed", b->n_fixed);
    oq_jw_begin_object(&job->json, "weights");
    for (size_t i = 0; i < r->config.shares.n; i++) {
        oq_jw_key(&job->json, r->config.shares.v[i].weight);
        oq_jw_uint(&job->json, NULL, r->config.shares.v[i].bits);
    }
    oq_jw_end_object(&job->json);
    oq_jw_end_object(&job->json);
}

onq_code oq_nbits_report_names(oq_nbits *r, onq_error *err) {
    oq_quant *q = &r->q;
    oq_graph *g = q->model->proto->graph;
    oq_pick names;
    onq_code rc = ONQ_OK;
    OQ_TRY(oq_quant_report_names(q->job, &q->config, g, err));
    OQ_TRY(oq_pick_report(&r->config.include, q->job->env, g, "--nodes_to_include",
                          q->config.strict, err));
    oq_pick_init(&names, &q->job->arena);
    for (size_t i = 0; i < r->config.nodes.n && rc == ONQ_OK; i++)
        rc = oq_pick_add_name(&names, r->config.nodes.v[i].name, err);
    if (rc == ONQ_OK)
        rc = oq_pick_report(&names, q->job->env, g, "--node_config", q->config.strict, err);
    return rc;
}

void oq_nbits_warn_of_rest(const oq_nbits *r) {
    static const char *const reasons[] = {OQ_NB_WHY_DOUBLE, OQ_NB_WHY_CONSTANT, OQ_NB_WHY_TURNED,
                                          OQ_NB_WHY_BATCH, OQ_NB_WHY_INNER};
    const onq_env *env = r->q.job->env;
    for (size_t i = 0; i < (r->config.bnb4 ? 1 : OQ_COUNT(reasons)); i++) {
        const oq_plan_node *first = NULL;
        const size_t n = oq_plan_count_why(&r->q.plan, reasons[i], &first);
        if (n > 0)
            oq_warn(env, "%zu node%s stay%s float, the first is '%.*s' (%.*s): %s", n, OQ_NOUN_S(n),
                    OQ_VERB_S(n), OQ_STR(first->name), OQ_STR(first->op_type), reasons[i]);
    }
    for (size_t i = 0; i < r->config.ratios.n; i++)
        if (!r->config.ratios.v[i].used)
            oq_warn(env, "--ratios: no weight that is quantized is called '%.*s'",
                    OQ_STR(r->config.ratios.v[i].weight));
}

onq_code oq_nbits_tell_import(oq_nbits *r, onq_error *err) {
    oq_job *job = r->q.job;
    if (r->config.import == NULL)
        return ONQ_OK;
    OQ_TRY(oq_file_check(&r->import.file.file, err));
    oq_str first = {0};
    const size_t unused = oq_nb_import_unused(&r->import, &first);
    if (unused > 0)
        oq_warn(job->env,
                "--weights: no initializer takes %zu tensor%s of the file, the first is '%.*s': "
                "what the model has in %s place stays (--weights_map names initializers)",
                unused, OQ_NOUN_S(unused), OQ_STR(first), unused == 1 ? "its" : "their");
    oq_buf_addf(&job->text,
                "weights: %zu initializers from the file, %zu of them in its blocks, %zu quantized "
                "anew%s\n",
                r->import.n_taken, r->import.n_exact, r->import.n_anew,
                r->import.n_anew > 0 ? " (which loses accuracy a second time)" : "");
    if (r->import.n_wider > 0)
        oq_buf_addf(
            &job->text,
            "weights: %zu of 5 or 6 bits take%s 8, which keeps them as they are or nearly so "
            "(--bits 4 takes half the room, and rounds all weights anew)\n",
            r->import.n_wider, r->import.n_wider == 1 ? "s" : "");
    oq_jw_begin_object(&job->json, "weights");
    oq_jw_uint(&job->json, "taken", r->import.n_taken);
    oq_jw_uint(&job->json, "exact", r->import.n_exact);
    oq_jw_uint(&job->json, "anew", r->import.n_anew);
    oq_jw_uint(&job->json, "wider", r->import.n_wider);
    oq_jw_uint(&job->json, "unused", unused);
    oq_jw_end_object(&job->json);
    return ONQ_OK;
}
