/*
 * fuzz_inspect.c — any bytes as a model: counting it, measuring it, and comparing it with itself
 * with and without names.
 *
 * Beyond "no crash": a model that can be compared with itself has no difference. The check is not
 * run first, so that counting and comparing meet what it would refuse.
 */
#include "onnx/check/check.h"
#include "onnx/compare/compare.h"
#include "onnx/summary/summary.h"
#include "quantize/cost/profile.h"

#include "fuzz.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned all_modes(void *ctx, const oq_node *n) {
    (void)ctx;
    (void)n;
    return ~0u;
}

static onq_code on_found(void *ctx, const oq_difference *d, onq_error *err) {
    (void)ctx;
    (void)err;
    fprintf(stderr, "%s '%.*s': %.*s\n", oq_diff_name(d->kind), OQ_STR(d->name), OQ_STR(d->text));
    abort();
}

static void compare(oq_model *a, oq_model *b, bool rename) {
    const oq_compare how = {.rename = rename, .found = on_found};
    onq_error err = ONQ_ERROR_INIT;
    oq_arena scratch;
    oq_arena_init(&scratch, &a->env->alloc);
    (void)oq_compare_models(&how, &scratch, a, b, &err);
    oq_arena_release(&scratch);
}

/* What inspect does with a valid model. */
static void measure(oq_model *m) {
    oq_profile p;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena scratch;
    oq_arena_init(&scratch, &m->env->alloc);
    const onq_code rc = oq_profile_make(&p, &scratch, m, NULL, &err);
    MUST_EXPLAIN(rc, err);
    oq_arena_release(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    oq_model *a = NULL, *b = NULL;
    if (oq_model_open_memory(env, data, size, NULL, &a, &err) == ONQ_OK &&
        oq_model_open_memory(env, data, size, NULL, &b, &err) == ONQ_OK) {
        oq_summary s;
        const oq_modes modes = {all_modes, NULL};
        oq_arena scratch;
        oq_arena_init(&scratch, &env->alloc);
        const onq_code rc = oq_summary_make(&s, &scratch, a, &modes, &err);
        MUST_EXPLAIN(rc, err);
        oq_arena_release(&scratch);
        compare(a, b, false);
        compare(a, b, true);
        if (oq_model_check(a, &err) == ONQ_OK)
            measure(a);
    }
    oq_model_free(a);
    oq_model_free(b);
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 0);
}
