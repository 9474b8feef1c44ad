/*
 * fuzz_debug.c — two models that claim to be one before and after quantization, debugged as far as
 * that goes without a runtime: matching, weights in every layout, ranking, text, JSON, page; the
 * groups of a search; and the quantized model augmented.
 *
 * The first two bytes are the length of the float model, the rest is the quantized one. Beyond "no
 * crash": a refusal says why, what is shown on a terminal has no control bytes, and no name can end
 * the page's script.
 */
#include "debug/augment.h"
#include "debug/search/search.h"
#include "debug/weights/weights.h"

#include "fuzz.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count(const oq_buf *b, const char *part) {
    const size_t n = strlen(part);
    size_t found = 0;
    for (size_t i = 0; i + n <= b->n; i++)
        found += memcmp(b->p + i, part, n) == 0;
    return found;
}

static void show(const oq_debug *d) {
    onq_error err = ONQ_ERROR_INIT;
    oq_buf out;
    oq_jw w;
    oq_buf_init(&out, &d->env->alloc);
    oq_debug_text(d, 0, &out);
    for (size_t i = 0; i < out.n; i++)
        MUST((unsigned char)out.p[i] >= ' ' || out.p[i] == '\n');
    out.n = 0;
    oq_jw_init(&w, &out, true);
    oq_jw_begin_object(&w, NULL);
    oq_debug_json(d, &w);
    oq_jw_end_object(&w);
    out.n = 0;
    const onq_code rc = oq_debug_report(d, &out, &err);
    MUST_EXPLAIN(rc, err);
    MUST(rc != ONQ_OK || (count(&out, "<script") == 2 && count(&out, "</script>") == 2));
    oq_buf_release(&out);
}

/* Every weight as arrays, as a binding asks for them: each byte is read. */
static void values(oq_debug *d) {
    uint64_t sum = 0;
    for (size_t i = 0; i < d->weights.n; i++) {
        onq_error err = ONQ_ERROR_INIT;
        oq_arena a;
        oq_debug_values v;
        oq_arena_init(&a, &d->env->alloc);
        oq_debug_weight *w = &d->weights.v[i];
        const onq_code rc = oq_debug_weight_values(d, w, oq_debug_is_reference(d, w), &a, &v, &err);
        MUST_EXPLAIN(rc, err);
        for (size_t k = 0; rc == ONQ_OK && k < v.float_bytes; k++)
            sum += ((const uint8_t *)v.flt)[k];
        for (size_t k = 0; rc == ONQ_OK && k < v.quantized_bytes; k++)
            sum += ((const uint8_t *)v.quantized)[k];
        oq_arena_release(&a);
    }
    volatile uint64_t keep = sum;
    (void)keep;
}

static void groups(const oq_debug *d) {
    for (size_t i = 0; i < d->quantized_index.graph->node.n; i++) {
        const oq_str name = d->quantized_index.graph->node.v[i]->name;
        const oq_str block = oq_debug_block_of(name);
        MUST(block.n <= name.n);
        MUST(name.n == 0 || block.n > 0 || name.p[0] == '/' || name.p[0] == '.');
    }
}

static void debug(onq_env *env, oq_model *flt, oq_model *quantized) {
    onq_error err = ONQ_ERROR_INIT;
    oq_debug d;
    oq_debug_init(&d, env, flt, quantized);
    d.histograms = true;
    d.cpu_saturates = d.has_kernel = true;
    onq_code rc = oq_debug_match(&d, &err);
    if (rc == ONQ_OK) {
        groups(&d);
        values(&d);
        rc = oq_debug_weights(&d, &err);
    }
    if (rc == ONQ_OK)
        rc = oq_debug_rank(&d, &err);
    MUST_EXPLAIN(rc, err);
    if (rc == ONQ_OK)
        show(&d);
    oq_debug_release(&d);
    oq_error_clear(&err);
    rc = oq_debug_augment(quantized, NULL, 0, &err);
    MUST_EXPLAIN(rc, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_two(data, size, debug);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_second(data, size, max, seed);
}
