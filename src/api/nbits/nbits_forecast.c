/*
 * nbits_forecast.c — see nbits_forecast.h.
 */
#include "api/nbits/nbits_forecast.h"

#include "api/samples.h"
#include "quantize/cost/nbits_time.h"

#define SIZES 3                   /* that are timed */
#define CACHE ((uint64_t)8 << 20) /* weights: float ones of fewer may stay in the caches */
#define SLOW  1.1                 /* times as long as float */

typedef struct size {
    uint64_t k, n, weights; /* of all matrices of that size */
} size;

typedef struct sizes {
    size *v;
    size_t n, cap;
    uint64_t weights;
    uint64_t others; /* weights of 2 or 8 bits */
} sizes;

static onq_code find_sizes(oq_arena *a, const oq_nb_made *made, sizes *out, onq_error *err) {
    for (size_t i = 0; i < made->all.n; i++) {
        const oq_nb_task *t = oq_nb_lazy_task(made->all.v[i]);
        size_t at = 0;
        if (t->rule == OQ_NB_GATHER)
            continue;
        while (at < out->n && (out->v[at].k != t->k || out->v[at].n != t->n))
            at++;
        if (at == out->n && !OQ_PUSH(a, out, (size){.k = t->k, .n = t->n}))
            return oq_fail_nomem(err);
        out->v[at].weights += t->batch * t->k * t->n;
        out->weights += t->batch * t->k * t->n;
        out->others += t->wide != 4 ? t->batch * t->k * t->n : 0;
    }
    return ONQ_OK;
}

/* Takes out the one with most weights that can be timed; false: there is none. */
static bool take_largest(sizes *s, size *out) {
    size_t best = s->n;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].k * s->v[i].n <= OQ_NB_MAX_TIMED &&
            (best == s->n || s->v[i].weights > s->v[best].weights))
            best = i;
    if (best == s->n)
        return false;
    *out = s->v[best];
    OQ_REMOVE_AT(s, best);
    return true;
}

static bool has_slow_zeros(const oq_nb_config *c) {
    return c->how.method->real_zero && !oq_nb_takes_sums(c, &c->how);
}

static const char *advice(const oq_nb_config *c) {
    if (c->bnb4 || c->qdq)
        return "";
    if (has_slow_zeros(c))
        return "; --form sums --accuracy_level 4 writes them for a fast kernel";
    return c->how.accuracy_level != 4 ? "; --accuracy_level 4 computes in int8, which is faster"
                                      : "";
}

/* ---- measured ---- */

static void tell_json(oq_job *job, const oq_nb_speed *s) {
    oq_jw_begin_object(&job->json, NULL);
    oq_jw_uint(&job->json, "K", s->k);
    oq_jw_uint(&job->json, "N", s->n);
    oq_jw_real(&job->json, "one_row", s->nbits[0]);
    oq_jw_real(&job->json, "many_rows", s->nbits[1]);
    oq_jw_real(&job->json, "int8_one_row", s->int8[0]);
    oq_jw_real(&job->json, "int8_many_rows", s->int8[1]);
    oq_jw_end_object(&job->json);
}

static double worst_of(const oq_nb_speed *s) {
    return s->nbits[0] > s->nbits[1] ? s->nbits[0] : s->nbits[1];
}

static onq_code measure(oq_quant *q, const oq_nb_config *c, sizes *all, onq_error *err) {
    oq_job *job = q->job;
    oq_session_options like = {0};
    oq_nb_speed worst = {0};
    size one;
    OQ_TRY(oq_job_session(job, &like, err));
    oq_jw_begin_array(&job->json, "forecast");
    for (size_t i = 0; i < SIZES && take_largest(all, &one); i++) {
        oq_nb_speed s = {.k = one.k, .n = one.n};
        OQ_TRY(oq_progress(job->env, "timing", i, SIZES, err));
        OQ_TRY(oq_nb_time(q->engine, &like, c, &s, err));
        tell_json(job, &s);
        if (worst_of(&s) > worst_of(&worst))
            worst = s;
    }
    oq_jw_end_array(&job->json);
    if (worst.k == 0)
        return ONQ_OK;
    oq_buf_addf(&job->text,
                "speed: a product with %llu x %llu weights takes %.2g times as long as float when "
                "decoding (1 row), %.2g in a prefill (%d rows); int8 by onq dynamic: %.2g and "
                "%.2g%s\n",
                (unsigned long long)worst.k, (unsigned long long)worst.n, worst.nbits[0],
                worst.nbits[1], OQ_NB_ROWS_MANY, worst.int8[0], worst.int8[1],
                worst_of(&worst) > SLOW ? advice(c) : "");
    return ONQ_OK;
}

/* ---- from a table ---- */

/* True if what there is to say is about weights of 2 and 8 bits. */
static bool is_of_others(const oq_nb_config *c, const sizes *all) {
    return !has_slow_zeros(c) && all->others > 0 && c->how.accuracy_level != 4;
}

/* Measured with onnxruntime 1.31.1 on x86 processors with AVX-512 VNNI, one thread, blocks of 32:
 * single products from 384 x 384 to 4096 x 4096 that stay in the caches, and a decoder of 135
 * million weights, whose decoding reads all of them for each token. */
static const char *known(const oq_nb_config *c, const sizes *all) {
    const bool cached = all->weights < CACHE, fast = c->how.accuracy_level == 4;
    if (all->n == 0 || c->qdq || c->bnb4)
        return NULL;
    if (has_slow_zeros(c))
        return cached ? "MatMulNBits unpacks weights whose zero points are not integers on every "
                        "run, which took 20 to 200 times as long as float with 1 row"
                      : "MatMulNBits unpacks weights whose zero points are not integers on every "
                        "run: a decoder took 8 times as long as float to decode, 1.8 times for "
                        "the prefill";
    if (is_of_others(c, all))
        return cached ? "MatMulNBits unpacks weights of 2 and 8 bits on every run, which took 20 "
                        "to 200 times as long as float with 1 row and 2 to 7 times with 128"
                      : "MatMulNBits unpacks weights of 2 and 8 bits on every run: a decoder took "
                        "8 times as long as float to decode, 1.9 times for the prefill";
    if (!fast && cached)
        return "matrices as small as these took 1.3 to 2.1 times as long as float with 1 to 8 rows";
    if (!fast)
        return "a decoder with such weights took half the time of float to decode, and as long as "
               "float for the prefill";
    return NULL;
}

onq_code oq_nb_forecast(oq_quant *q, const oq_nb_config *c, const oq_nb_made *made,
                        onq_error *err) {
    sizes all = {0};
    OQ_TRY(find_sizes(&q->job->arena, made, &all, err));
    if (oq_opt_flag(q->job->opts, "verify") && q->engine != NULL)
        return measure(q, c, &all, err);
    const char *text = known(c, &all);
    if (text == NULL)
        return ONQ_OK;
    oq_buf_addf(&q->job->text, "speed: %s", text);
    if (is_of_others(c, &all) && all.others < all.weights)
        oq_buf_addf(&q->job->text, "; here %.0f %% of the weights are such",
                    100 * (double)all.others / (double)all.weights);
    oq_buf_addf(&q->job->text, "%s (--verify times it here)\n", advice(c));
    return ONQ_OK;
}
