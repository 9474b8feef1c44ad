/* test_process.c — a job leaves the process as it was: variables, signals, umask, locale, working
 * folder, threads of OpenBLAS. And it computes nothing for messages that nobody gets. */
#include "base/env.h"
#include "build_model.h"
#include "scratch.h"
#include "testing.h"

#include <dlfcn.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIGNALS = 32, VARIABLES = 500, BLAS_THREADS = 2 };

static scratch folder;
static const char *model, *out;
static bool has_runtime;

/* ---- what the process shares ---- */

typedef struct shared {
    char *variables[VARIABLES];
    size_t n_variables;
    void (*handlers[SIGNALS])(int);
    mode_t mask;
    char locale[100], cwd[4096];
    int blas_threads; /* 0: there is no OpenBLAS */
} shared;

static int (*get_threads)(void);
static void (*set_threads)(int);

static void look(shared *s) {
    struct sigaction sa;
    s->n_variables = 0;
    for (char **p = environ; *p != NULL; p++) {
        assert_true(s->n_variables < VARIABLES);
        s->variables[s->n_variables++] = strdup(*p);
    }
    for (int i = 1; i < SIGNALS; i++) {
        assert_int_equal(sigaction(i, NULL, &sa), 0);
        s->handlers[i] = sa.sa_handler;
    }
    s->mask = umask(0);
    umask(s->mask);
    snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
    assert_non_null(getcwd(s->cwd, sizeof s->cwd));
    s->blas_threads = get_threads != NULL ? get_threads() : 0;
}

static void is_as_before(shared *before, const char *command) {
    shared now;
    look(&now);
    if (now.n_variables != before->n_variables)
        fail_msg("%s: %zu variables, %zu before; the last is %s", command, now.n_variables,
                 before->n_variables, now.variables[now.n_variables - 1]);
    for (size_t i = 0; i < now.n_variables; i++) {
        assert_string_equal(now.variables[i], before->variables[i]);
        free(now.variables[i]);
        free(before->variables[i]);
    }
    for (int i = 1; i < SIGNALS; i++)
        assert_ptr_equal(now.handlers[i], before->handlers[i]);
    assert_int_equal(now.mask, before->mask);
    assert_string_equal(now.locale, before->locale);
    assert_string_equal(now.cwd, before->cwd);
    if (now.blas_threads != before->blas_threads)
        fail_msg("%s: OpenBLAS has %d threads, %d before", command, now.blas_threads,
                 before->blas_threads);
}

/* ---- jobs ---- */

static void run(onq_env *env, const char *command, const char *const *options) {
    onq_error err = ONQ_ERROR_INIT;
    onq_options *o = NULL;
    onq_result *r = NULL;
    assert_ok(onq_options_new(env, command, &o, &err), err);
    assert_ok(onq_options_set(o, "input", model, &err), err);
    assert_ok(onq_options_set(o, "output", out, &err), err);
    for (; *options != NULL; options += 2)
        assert_ok(onq_options_set(o, options[0], options[1], &err), err);
    assert_ok(onq_run(env, o, &r, &err), err);
    onq_result_free(r);
    onq_options_free(o);
}

static void nothing_changes(void **state) {
    (void)state;
    static const struct {
        const char *command;
        const char *options[9];
    } jobs[] = {
        {"dynamic", {"verify", "true"}},
        {"static",
         {"data", "random:4", "bias_correction", "true", "learned_rounding", "true", "verify",
          "true"}},
        {"nbits", {"quant_method", "gptq", "data", "random:4"}},
        {"auto", {"data", "random:4", "time_limit", "1", "evaluate", "echo 1; : {model}"}},
    };
    void *blas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (blas != NULL) {
        *(void **)&get_threads = dlsym(blas, "openblas_get_num_threads");
        *(void **)&set_threads = dlsym(blas, "openblas_set_num_threads");
        set_threads(BLAS_THREADS);
        assert_int_equal(get_threads(), BLAS_THREADS);
    }
    if (!has_runtime)
        skip();
    onq_env *env = onq_env_new(NULL);
    for (size_t i = 0; i < OQ_COUNT(jobs); i++) {
        shared before;
        look(&before);
        run(env, jobs[i].command, jobs[i].options);
        is_as_before(&before, jobs[i].command);
    }
    onq_env_free(env);
}

/* ---- messages ---- */

static int count_comparing(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    *(size_t *)ctx += strstr(what, "comparing") != NULL;
    return 0;
}

/* Only a message says what a correction gains: two sessions and all samples twice. */
static void nothing_is_computed_for_nobody(void **state) {
    (void)state;
    static const char *const options[] = {
        "data", "random:4", "bias_correction", "true", "no_verify", "true", NULL};
    if (!has_runtime)
        skip();
    size_t n_loud = 0, n_silent = 0;
    onq_env *env = onq_env_new(NULL);
    onq_env_set_progress(env, count_comparing, &n_loud);
    run(env, "static", options);
    assert_true(n_loud > 0);
    onq_env_set_progress(env, count_comparing, &n_silent);
    assert_false(oq_env_silence(env, true));
    run(env, "static", options);
    assert_true(oq_env_silence(env, false));
    assert_int_equal(n_silent, 0);
    onq_env_free(env);
}

static int n_messages;

static void count(void *ctx, onq_log_level level, const char *text) {
    (void)ctx;
    (void)level;
    (void)text;
    n_messages++;
}

static void silence(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    assert_false(oq_listens(env));
    assert_false(oq_listens(NULL));
    onq_env_set_log(env, count, NULL);
    assert_true(oq_listens(env));
    oq_warn(env, "one");
    assert_int_equal(n_messages, 1);
    assert_false(oq_env_silence(env, true));
    assert_false(oq_listens(env));
    oq_warn(env, "none");
    assert_true(oq_env_silence(env, false));
    oq_warn(env, "two");
    assert_int_equal(n_messages, 2);
    onq_env_free(env);
}

static int make_files(void **state) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    scratch_init(&folder);
    model = scratch_path(&folder, "m.onnx");
    out = scratch_path(&folder, "o.onnx");
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "4,32");
    bm_weight(&b, "w", "32,32", 1);
    bm_node(&b, "MatMul", "mm", "x w", "t", "");
    bm_node(&b, "Relu", "relu", "t", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "4,32");
    assert_ok(oq_model_save(b.m, model, NULL, &err), err);
    bm_end(&b);
    /* A library that is not the runtime: the real one, without the variable, would collect events. */
    unsetenv("ORT_DISABLE_TELEMETRY");
    shared before;
    look(&before);
    onq_env *env = onq_env_new(NULL);
    onq_runtime_info info;
    assert_fails(onq_runtime_query(env, "libm.so.6", &info, &err), ONQ_E_RUNTIME, err,
                 "is not ONNX Runtime");
    is_as_before(&before, "loading the runtime");
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    has_runtime = onq_runtime_query(env, NULL, &info, &err) == ONQ_OK;
    if (!has_runtime)
        printf("without a runtime: %s\n", err.text);
    onq_env_free(env);
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    scratch_remove(&folder);
    return 0;
}

/* A sanitizer's build finds the runtime where set-up puts it for the usual one. */
static void find_runtime(void) {
    const char *root = getenv("ONQ_ROOT");
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/build/runtime", root != NULL ? root : ".");
    if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0)
        setenv("ONQ_ONNXRUNTIME", path, 0);
}

int main(void) {
    find_runtime();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_changes),
        cmocka_unit_test(nothing_is_computed_for_nobody),
        cmocka_unit_test(silence),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
