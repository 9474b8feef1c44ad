/* test_null_error.c — `err` may be NULL: every command of the table fails in each way it can, once
 * with an error to fill and once without, and ends with the same code. */
#include "build_model.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <unistd.h>

/* The command with pairs of name and value. MODEL, QUANTIZED and OUT stand for files; the first
 * MODEL is the one that is replaced by a bad one. */
typedef struct job {
    const char *command;
    bool runtime; /* it needs one */
    bool timed;   /* what it does depends on the clock */
    const char *options[14];
} job;

#define MODEL     "MODEL"
#define QUANTIZED "QUANTIZED"
#define GROUPED   "<grouped>"
#define OUT       "OUT"

static const job jobs[] = {
    {"auto", true, true, {"input", MODEL, "output", OUT, "data", "random:2", "time_limit", "1"}},
    {"preprocess", true, false, {"input", MODEL, "output", OUT}},
    {"static",
     true,
     false,
     {"input", MODEL, "output", OUT, "data", "random:2", "bias_correction", "true", "verify",
      "true"}},
    {"static",
     true,
     false,
     {"input", MODEL, "output", OUT, "data", "random:2", "op_set", "pays", "verify", "true"}},
    {"dynamic", true, false, {"input", MODEL, "output", OUT, "verify", "true"}},
    {"nbits", true, false, {"input", MODEL, "output", OUT, "verify", "true"}},
    {"nbits",
     true,
     false,
     {"input", MODEL, "output", OUT, "quant_method", "gptq", "data", "random:2"}},
    {"bnb4", true, false, {"input", MODEL, "output", OUT, "verify", "true"}},
    {"kvcache", true, false, {"input", GROUPED, "output", OUT, "data", "random:2"}},
    {"qat", false, false, {"input", QUANTIZED, "output", OUT}},
    {"legacy", true, false, {"input", MODEL, "output", OUT, "verify", "true"}},
    {"convert", false, false, {"input", QUANTIZED, "output", OUT, "to", "float"}},
    {"dequantize", false, false, {"input", QUANTIZED, "output", OUT}},
    {"calibrate", true, false, {"input", MODEL, "output", OUT, "data", "random:2"}},
    {"debug",
     true,
     false,
     {"float_model", MODEL, "qdq_model", QUANTIZED, "data", "random:2", "sensitivity", "true"}},
    {"bench", true, true, {"operand", MODEL, "data", "random:2", "runs", "1"}},
    {"bench", true, true, {"operand", MODEL, "data", "random:2", "units", "true", "runs", "1"}},
    {"run", true, false, {"operand", MODEL, "data", "random:2"}},
    {"verify", true, false, {"operand", MODEL, "data", "random:2"}},
    {"inspect", false, false, {"operand", MODEL}},
    {"diff", false, false, {"operand", MODEL, "operand", QUANTIZED}},
    {"ops", false, false, {NULL}},
};

static scratch folder;
static const char *model, *quantized, *grouped, *out, *garbage;
static bool has_runtime;

/* How a job is to fail. */
typedef struct way {
    const char *name;
    const char *model;      /* in place of MODEL, or NULL */
    const char *option;     /* set besides, if the command has it */
    const char *value;      /* of it */
    const onq_allocator *a; /* or NULL */
    long cancel_at;         /* the call of progress that cancels, from 0; below: none */
} way;

static int stop(void *ctx, const char *what, uint64_t done, uint64_t total) {
    long *left = ctx;
    (void)what;
    (void)done;
    (void)total;
    return (*left)-- == 0;
}

static const char *path_of(const char *value, const way *w) {
    if (strcmp(value, MODEL) == 0)
        return w->model != NULL ? w->model : model;
    if (strcmp(value, GROUPED) == 0)
        return w->model != NULL ? w->model : grouped;
    return strcmp(value, QUANTIZED) == 0 ? quantized : strcmp(value, OUT) == 0 ? out : value;
}

/* *cancelled becomes true if progress was told to stop. */
static onq_code run(const job *j, const way *w, bool *cancelled, onq_error *err) {
    long left = w->cancel_at;
    onq_options *o = NULL;
    onq_result *r = NULL;
    onq_env *env = onq_env_new(w->a);
    if (env == NULL)
        return ONQ_E_NOMEM;
    onq_env_set_threads(env, 1);
    onq_env_set_progress(env, stop, &left);
    onq_code rc = onq_options_new(env, j->command, &o, err);
    for (size_t i = 0; rc == ONQ_OK && j->options[i] != NULL; i += 2)
        rc = onq_options_set(o, j->options[i], path_of(j->options[i + 1], w), err);
    if (rc == ONQ_OK && w->option != NULL && onq_options_find(o, w->option) != NULL) {
        rc = onq_options_clear(o, w->option, err);
        if (rc == ONQ_OK)
            rc = onq_options_set(o, w->option, w->value, err);
    }
    if (rc == ONQ_OK)
        rc = onq_run(env, o, &r, err);
    if (cancelled != NULL)
        *cancelled = w->cancel_at >= 0 && left < 0;
    onq_result_free(r);
    onq_options_free(o);
    onq_env_free(env);
    return rc;
}

/* The same code with and without an error. */
static void run_both(const job *j, const way *w, bool works) {
    onq_error err = ONQ_ERROR_INIT;
    const onq_code with = run(j, w, NULL, &err), without = run(j, w, NULL, NULL);
    if (with != without)
        fail_msg("%s: %s: %d with an error, %d without: %s", j->command, w->name, (int)with,
                 (int)without, err.text);
    if (with != ONQ_OK && (err.code != with || err.text[0] == '\0'))
        fail_msg("%s: %s: code %d and no message", j->command, w->name, (int)with);
    if (works && with != ONQ_OK)
        fail_msg("%s: %s: %s", j->command, w->name, err.text);
}

static bool runs(const job *j) {
    return has_runtime || !j->runtime;
}

static void bad_files(void **state) {
    (void)state;
    const way ways[] = {
        {.name = "no such model", .model = "/nowhere/model.onnx", .cancel_at = -1},
        {.name = "not a model", .model = garbage, .cancel_at = -1},
        {.name = "isolated",
         .model = garbage,
         .option = "isolate",
         .value = "true",
         .cancel_at = -1},
        {.name = "no samples", .option = "data", .value = "/nowhere/data", .cancel_at = -1},
        {.name = "no plan", .option = "from_plan", .value = "/nowhere/plan.json", .cancel_at = -1},
        {.name = "no folder", .option = "output", .value = "/nowhere/o.onnx", .cancel_at = -1},
        {.name = "bad settings", .option = "resume", .value = garbage, .cancel_at = -1},
        {.name = "bad cache", .option = "calibration_cache", .value = garbage, .cancel_at = -1},
        {.name = "bad costs", .option = "unit_costs", .value = garbage, .cancel_at = -1},
        {.name = "bad labels", .option = "labels", .value = garbage, .cancel_at = -1},
    };
    for (size_t i = 0; i < OQ_COUNT(jobs); i++)
        for (size_t k = 0; k < OQ_COUNT(ways); k++)
            if (runs(&jobs[i]) || k < 2)
                run_both(&jobs[i], &ways[k], false);
}

static void no_runtime(void **state) {
    (void)state;
    const way w = {.name = "no runtime",
                   .option = "onnxruntime",
                   .value = "/nowhere/libonnxruntime.so",
                   .cancel_at = -1};
    for (size_t i = 0; i < OQ_COUNT(jobs); i++)
        run_both(&jobs[i], &w, false);
}

/* Values that no option takes, and overlong ones; each option of each command. */
static void bad_options(void **state) {
    (void)state;
    static const char *const values[] = {"", "\001", "-1e999", "[1, {", "@/nowhere/list", "a=b,=c"};
    onq_env *env = onq_env_new(NULL);
    onq_options *o = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_int_equal(onq_options_new(env, "nothing", &o, NULL), ONQ_E_OPTION);
    for (size_t c = 0; c < onq_command_count(); c++) {
        const char *command = onq_command_at(c)->name;
        assert_ok(onq_options_new(env, command, &o, NULL), err);
        assert_int_equal(onq_options_set(o, "nothing", "x", NULL), ONQ_E_OPTION);
        for (size_t i = 0; i < onq_option_count(command); i++)
            for (size_t v = 0; v < OQ_COUNT(values); v++) {
                const char *name = onq_option_at(command, i)->name;
                onq_options_clear(o, name, NULL);
                const onq_code with = onq_options_set(o, name, values[v], &err);
                onq_options_clear(o, name, NULL);
                if (onq_options_set(o, name, values[v], NULL) != with)
                    fail_msg("%s --%s '%s'", command, name, values[v]);
            }
        onq_options_free(o);
    }
    onq_env_free(env);
}

static void cancelled(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(jobs); i++) {
        bool more = runs(&jobs[i]);
        for (long n = 0; more; n += 1 + n / 2) {
            const way w = {.cancel_at = n};
            const onq_code rc = run(&jobs[i], &w, &more, NULL);
            if (more && rc != ONQ_E_CANCEL)
                fail_msg("%s: cancelled at %ld: code %d", jobs[i].command, n, (int)rc);
        }
    }
}

static void out_of_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(jobs); i++) {
        bool more = runs(&jobs[i]);
        for (long n = 0; more; n += 1 + (jobs[i].timed ? n : n / 3)) {
            flaky f;
            flaky_init(&f, n);
            f.stays = true;
            const way w = {.a = &f.alloc, .cancel_at = -1};
            const onq_code rc = run(&jobs[i], &w, NULL, NULL);
            more = atomic_load(&f.failed);
            if (more && rc != ONQ_E_NOMEM && rc != ONQ_OK)
                fail_msg("%s: allocation %ld: code %d", jobs[i].command, n, (int)rc);
            assert_int_equal(atomic_load(&f.live), 0);
        }
    }
}

/* A command without a row here would not be tried. */
static void every_command(void **state) {
    (void)state;
    for (size_t c = 0; c < onq_command_count(); c++) {
        bool found = false;
        for (size_t i = 0; i < OQ_COUNT(jobs); i++)
            found |= strcmp(jobs[i].command, onq_command_at(c)->name) == 0;
        if (!found)
            fail_msg("no job for '%s'", onq_command_at(c)->name);
    }
    for (size_t i = 0; i < OQ_COUNT(jobs); i++)
        if (runs(&jobs[i]))
            run_both(&jobs[i], &(way){.name = "no fault", .cancel_at = -1}, true);
}

static int make_files(void **state) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    const float scale = 0.02f;
    const uint8_t zero = 128;
    (void)state;
    scratch_init(&folder);
    model = scratch_path(&folder, "m.onnx");
    quantized = scratch_path(&folder, "q.onnx");
    grouped = scratch_path(&folder, "k.onnx");
    out = scratch_path(&folder, "o.onnx");
    garbage = scratch_file(&folder, "g.onnx", "{\"no\": model", 12);
    for (int i = 0; i < 2; i++) { /* float, then with pairs as fake quantization leaves them */
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "1,32");
        bm_weight(&b, "w", "32,32", 1);
        if (i == 1) {
            bm_f32(&b, "s", "", &scale);
            bm_raw(&b, "z", OQ_UINT8, "", &zero, 1);
            bm_node(&b, "QuantizeLinear", "q0", "x s z", "xq", "");
            bm_node(&b, "DequantizeLinear", "d0", "xq s z", "xd", "");
            bm_node(&b, "QuantizeLinear", "q1", "w s z", "wq", "");
            bm_node(&b, "DequantizeLinear", "d1", "wq s z", "wd", "");
        }
        bm_node(&b, "MatMul", "mm", i == 1 ? "xd wd" : "x w", "t", "");
        if (i == 1) {
            bm_node(&b, "QuantizeLinear", "q2", "t s z", "tq", "");
            bm_node(&b, "DequantizeLinear", "d2", "tq s z", "td", "");
        }
        bm_node(&b, "Relu", "relu", i == 1 ? "td" : "t", "y", "");
        bm_output(&b, "y", OQ_FLOAT, "1,32");
        assert_ok(oq_model_save(b.m, i == 1 ? quantized : model, NULL, &err), err);
        bm_end(&b);
    }
    bm_begin(&b, NULL, 17);
    bm_grouped(&b);
    assert_ok(oq_model_save(b.m, grouped, NULL, &err), err);
    bm_end(&b);
    onq_env *env = onq_env_new(NULL);
    onq_runtime_info info;
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
        cmocka_unit_test(every_command), cmocka_unit_test(bad_files),
        cmocka_unit_test(no_runtime),    cmocka_unit_test(bad_options),
        cmocka_unit_test(cancelled),     cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
