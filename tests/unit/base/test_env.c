/*
 * test_env.c — the environment handle, the version and the names of codes.
 */
#include "base/env.h"

#include "flaky_alloc.h"
#include "testing.h"

#include <stdio.h>
#include <string.h>

static void version_and_names(void **state) {
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", ONQ_VERSION_MAJOR, ONQ_VERSION_MINOR,
             ONQ_VERSION_PATCH);
    assert_string_equal(onq_version(), version);
    static const onq_code codes[] = {
        ONQ_OK,          ONQ_E_NOMEM,   ONQ_E_LIMIT,       ONQ_E_CANCEL,
        ONQ_E_OPEN,      ONQ_E_READ,    ONQ_E_WRITE,       ONQ_E_PATH,
        ONQ_E_MALFORMED, ONQ_E_INVALID, ONQ_E_UNSUPPORTED, ONQ_E_OPTION,
        ONQ_E_CONFIG,    ONQ_E_RUNTIME, ONQ_E_INTERNAL,    ONQ_E_MISSING,
    };
    for (size_t i = 0; i < OQ_COUNT(codes); i++) {
        assert_string_not_equal(onq_code_name(codes[i]), "unknown");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(onq_code_name(codes[i]), onq_code_name(codes[k]));
    }
    assert_string_equal(onq_code_name(ONQ_E_MALFORMED), "malformed");
    assert_string_equal(onq_code_name((onq_code)99), "unknown");
}

struct seen {
    int calls;
    onq_log_level level;
    char text[10000];
};

static void see(void *ctx, onq_log_level level, const char *text) {
    struct seen *s = ctx;
    s->calls++;
    s->level = level;
    snprintf(s->text, sizeof s->text, "%s", text);
}

static void messages(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    struct seen seen = {0};
    oq_warn(env, "nobody listens");
    oq_warn((const onq_env *)NULL, "no environment");
    onq_env_set_log(env, see, &seen);
    oq_warn(env, "tensor '%s'", "a\x1b[0m");
    assert_int_equal(seen.calls, 1);
    assert_int_equal(seen.level, ONQ_LOG_WARNING);
    assert_string_equal(seen.text, "tensor 'a\\x1b[0m'");
    oq_info(env, "%d", 5);
    assert_int_equal(seen.level, ONQ_LOG_INFO);
    for (int n = 7980; n < 8100; n++) {
        oq_log(env, ONQ_LOG_DEBUG, "%*d", n, 7);
        if (n <= 8000)
            assert_int_equal(strlen(seen.text), n);
        else
            assert_int_equal(strlen(seen.text), 8000);
        assert_int_equal(strcmp(seen.text + strlen(seen.text) - 3, "...") == 0, n > 8000);
    }
    onq_env_free(env);
    onq_env_free(NULL);
}

static int stop_at_3(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    assert_int_equal(total, 5);
    ++*(int *)ctx;
    return done == 3;
}

static void progress(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_progress(env, "reading", 1, 5, &err), err);
    int calls = 0;
    onq_env_set_progress(env, stop_at_3, &calls);
    assert_ok(oq_progress(env, "reading", 2, 5, &err), err);
    assert_fails(oq_progress(env, "reading", 3, 5, &err), ONQ_E_CANCEL, err, "reading");
    assert_int_equal(calls, 2);
    onq_env_free(env);
}

static void threads(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    assert_true(oq_env_threads(env) >= 1);
    assert_true(oq_env_threads(NULL) >= 1);
    onq_env_set_threads(env, 7);
    assert_int_equal(oq_env_threads(env), 7);
    onq_env_set_threads(env, 4000000000u);
    assert_true(oq_env_threads(env) <= 1024);
    onq_env_set_threads(env, 0);
    assert_true(oq_env_threads(env) >= 1);
    onq_env_free(env);
}

static onq_code make_env(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    onq_env *env = onq_env_new(a);
    if (env == NULL)
        return oq_fail_nomem(err);
    onq_env_free(env);
    return ONQ_OK;
}

static void sweep(void **state) {
    (void)state;
    assert_int_equal(flaky_sweep(make_env, NULL), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_and_names), cmocka_unit_test(messages), cmocka_unit_test(progress),
        cmocka_unit_test(threads),           cmocka_unit_test(sweep),
    };
    return cmocka_run_group_tests_name("env", tests, NULL, NULL);
}
