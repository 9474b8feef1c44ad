/*
 * fuzz_half.c — a valid model stays valid when its weights, or all that can be, become float16, or
 * that is refused with a reason. The first byte of the input chooses which, the rest is the model.
 */
#include "prepare/half.h"

#include "model_mutator.h"
#include "quantize_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onq_error err = ONQ_ERROR_INIT;
    oq_model *m = NULL;
    oq_half_report report;
    if (size < 2)
        return 0;
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 1);
    if (oq_model_open_memory(env, data + 1, size - 1, NULL, &m, &err) == ONQ_OK &&
        is_taken(m, &err)) {
        const oq_half how = data[0] % 2 == 0 ? OQ_HALF_ALL : OQ_HALF_WEIGHTS;
        const onq_code rc = oq_half_make(m, how, &report, &err);
        judge(env, m, rc, &err);
    }
    oq_model_free(m);
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 1);
}
