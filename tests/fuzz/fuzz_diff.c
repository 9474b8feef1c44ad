/*
 * fuzz_diff.c — two models compared, with names and without. Beyond "no crash": a model does not
 * differ from itself, and two models that do not differ one way do not differ the other.
 *
 * The first two bytes are the length of the first model, the rest is the second one.
 */
#include "onnx/compare/compare.h"

#include "fuzz.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct tally {
    size_t hard, soft;
} tally;

static onq_code count(void *ctx, const oq_difference *d, onq_error *err) {
    tally *t = ctx;
    (void)err;
    MUST(d->kind < OQ_DIFF_COUNT && oq_diff_name(d->kind)[0] != '\0');
    if (d->kind < OQ_DIFF_FIRST_SOFT)
        t->hard++;
    else
        t->soft++;
    return ONQ_OK;
}

static bool compare(onq_env *env, oq_model *a, oq_model *b, bool rename, tally *t) {
    onq_error err = ONQ_ERROR_INIT;
    oq_arena scratch;
    *t = (tally){0, 0};
    const oq_compare how = {.rename = rename, .found = count, .ctx = t};
    oq_arena_init(&scratch, &env->alloc);
    const onq_code rc = oq_compare_models(&how, &scratch, a, b, &err);
    MUST_EXPLAIN(rc, err);
    oq_arena_release(&scratch);
    return rc == ONQ_OK;
}

static void judge(onq_env *env, oq_model *a, oq_model *b) {
    onq_error err = ONQ_ERROR_INIT;
    const bool valid = oq_model_check(a, &err) == ONQ_OK && oq_model_check(b, &err) == ONQ_OK;
    for (int rename = 0; rename < 2; rename++) {
        tally there, back, self;
        const bool ok =
            compare(env, a, b, rename != 0, &there) && compare(env, b, a, rename != 0, &back);
        if (ok && valid)
            MUST((there.hard == 0) == (back.hard == 0));
        if (valid && compare(env, a, a, rename != 0, &self))
            MUST(self.hard == 0 && self.soft == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_two(data, size, judge);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_second(data, size, max, seed);
}
