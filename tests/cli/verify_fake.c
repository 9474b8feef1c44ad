/*
 * verify_fake.c — a library that calls itself a version of ONNX Runtime ($VERSION when it is compiled)
 * and has no functions to give, for verify.sh.
 */
#include <stddef.h>
#include <stdint.h>

struct base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

static const void *get_api(uint32_t version) {
    (void)version;
    return NULL;
}

static const char *get_version(void) {
    return VERSION;
}

const struct base *OrtGetApiBase(void);
const struct base *OrtGetApiBase(void) {
    static const struct base base = {get_api, get_version};
    return &base;
}
