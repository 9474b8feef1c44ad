/*
 * fuzz_upgrade.c — a valid model stays valid when its opset is raised, or the upgrade is refused
 * with a reason.
 */
#include "onnx/check/check.h"
#include "onnx/upgrade/upgrade.h"

#include <stdio.h>

#include "fuzz.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_be_valid(oq_model *m) {
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = oq_model_check(m, &err);
    if (rc != ONQ_OK)
        fprintf(stderr, "%s\n", err.text);
    MUST(rc == ONQ_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int64_t targets[] = {11, 13, 21, OQ_OPSET_NEWEST};
    onq_env *env = onq_env_new(NULL);
    for (size_t i = 0; i < OQ_COUNT(targets); i++) {
        oq_model *m = NULL;
        onq_error err = ONQ_ERROR_INIT;
        if (oq_model_open_memory(env, data, size, NULL, &m, &err) != ONQ_OK)
            break;
        const bool valid = oq_model_check(m, &err) == ONQ_OK;
        const onq_code rc = oq_model_upgrade(m, targets[i], &err);
        if (rc != ONQ_OK)
            MUST(err.code == rc && err.text[0] != '\0');
        else if (valid)
            must_be_valid(m);
        oq_model_free(m);
    }
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 0);
}
