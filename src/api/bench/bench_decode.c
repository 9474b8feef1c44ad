/*
 * bench_decode.c — see bench_decode.h. Of several runs the fastest counts: a busy moment of the
 * machine is no property of the model.
 */
#include "api/bench/bench_decode.h"

#include "samples/sequence/seq_text.h"

#define ROUNDS 3 /* of a text at once */
#define STEPS  8 /* of one token each, after it */

const uint64_t decode_lengths[OQ_DECODE_LENGTHS] = {1, 128, 1024};

/* One step, and the seconds that its run took. */
static onq_code run_step(oq_session *s, oq_walk *walk, const oq_sample *step, double *seconds,
                         onq_error *err) {
    oq_outputs out = {0};
    oq_sample full;
    OQ_SCRATCH(arena, walk->alloc);
    OQ_TRY(oq_walk_fill(walk, step, &arena, &full, err));
    const double begin = oq_seconds();
    OQ_TRY(oq_session_run(s, full.inputs, full.n_inputs, &out, err));
    *seconds = oq_seconds() - begin;
    return oq_walk_take(walk, &full, out.v, out.n, err);
}

static onq_code run_text(oq_session *s, oq_walk *walk, const oq_sample *text, double best[2],
                         onq_error *err) {
    oq_sample next = *text;
    double seconds = 0;
    OQ_TRY(run_step(s, walk, text, &seconds, err));
    best[0] = best[0] == 0 || seconds < best[0] ? seconds : best[0];
    next.generated = true;
    for (next.step = 1; next.step <= STEPS; next.step++) {
        OQ_TRY(run_step(s, walk, &next, &seconds, err));
        best[1] = best[1] == 0 || seconds < best[1] ? seconds : best[1];
    }
    return ONQ_OK;
}

onq_code oq_bench_decode_run(oq_bench_decode *d, oq_session *session, const oq_walker *walker,
                             const oq_sample *sample, onq_error *err) {
    const onq_allocator *alloc = &session->engine->env->alloc;
    if (!oq_walk_has_text(walker, sample))
        return ONQ_OK;
    d->measured = true;
    for (size_t i = 0; i < OQ_DECODE_LENGTHS; i++) {
        double best[2] = {0};
        oq_sample text;
        onq_error why = ONQ_ERROR_INIT;
        OQ_SCRATCH(arena, alloc);
        oq_walk walk;
        OQ_TRY(oq_walk_text(walker, sample, decode_lengths[i], &arena, &text, err));
        oq_walk_init(&walk, walker, alloc);
        onq_code rc = ONQ_OK;
        for (unsigned k = 0; k < ROUNDS && rc == ONQ_OK; k++)
            rc = run_text(session, &walk, &text, best, &why);
        oq_walk_release(&walk);
        if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
            return oq_error_give(err, rc, &why);
        if (rc != ONQ_OK) { /* it does not take texts of that length */
            oq_info(session->engine->env, "texts of %llu tokens: %s",
                    (unsigned long long)decode_lengths[i], why.text);
            continue;
        }
        d->prefill[i] = (double)decode_lengths[i] / best[0];
        d->decode[i] = 1 / best[1];
    }
    return ONQ_OK;
}

/* ---- showing ---- */

void oq_bench_decode_json(const oq_bench_decode *d, oq_jw *w) {
    oq_jw_begin_array(w, "decode");
    for (size_t i = 0; i < OQ_DECODE_LENGTHS; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_uint(w, "length", decode_lengths[i]);
        if (d->prefill[i] > 0) {
            oq_jw_real(w, "prefill_tokens_per_second", d->prefill[i]);
            oq_jw_real(w, "decode_tokens_per_second", d->decode[i]);
        }
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

void oq_bench_decode_head(oq_buf *out) {
    for (size_t i = 0; i < OQ_DECODE_LENGTHS; i++)
        oq_buf_addf(out, "  prefill %4llu  then each", (unsigned long long)decode_lengths[i]);
    oq_buf_addc(out, '\n');
}

void oq_bench_decode_text(const oq_bench_decode *d, oq_buf *out) {
    for (size_t i = 0; i < OQ_DECODE_LENGTHS; i++)
        if (d->prefill[i] > 0)
            oq_buf_addf(out, " %13.1f %10.1f", d->prefill[i], d->decode[i]);
        else
            oq_buf_addf(out, " %13s %10s", "-", "-");
    oq_buf_addc(out, '\n');
}
