/*
 * faults.c — every command with every fault: the Nth allocation, open, stat, read, map, write,
 * copy, sync, rename, removal or thread fails, for every N until a run needs no more.
 *
 * However it ends, nothing is lost: all memory and every descriptor come back, nothing lies beside
 * the output, and the output is what was there before or the whole result. A run that ends well
 * made the same files and said the same as one without a fault.
 *
 *     hostile_faults [all]
 *
 * Prints a table of commands and faults with the number of runs. Without `all` (or $ONQ_FAULTS=all)
 * N grows in steps, so that the start of a job is tried call by call and the rest in samples.
 */
#include "onq/onq.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "flaky_io.h"
#include "no_threads.h"
#include "scratch.h"
#include "testing.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *folder;
static char model_path[600], trained_path[600], half_path[600], cache_path[600], over_path[600],
    quantized_path[600];
static char weights_path[sizeof half_path];
static char large_path[sizeof half_path];
static char layers_path[sizeof half_path];
static char out_dir[600], out_path[700], data_path[710];
static bool everything;

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A fake-quantized MatMul: a pair on its input, a pair on its weight. */
static void make_trained(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    const float scale = 0.02f;
    const uint8_t zero = 128;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,4");
    bm_weight(&b, "w", "4,3", 1);
    bm_f32(&b, "s", "", &scale);
    bm_raw(&b, "z", OQ_UINT8, "", &zero, 1);
    bm_node(&b, "QuantizeLinear", "q0", "x s z", "xq", "");
    bm_node(&b, "DequantizeLinear", "d0", "xq s z", "xd", "");
    bm_node(&b, "QuantizeLinear", "q1", "w s z", "wq", "");
    bm_node(&b, "DequantizeLinear", "d1", "wq s z", "wd", "");
    bm_node(&b, "MatMul", "mm", "xd wd", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,3");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

/* float16: a Conv whose bias and output are cast, then a MatMul. */
static void make_half(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    uint16_t ones[12];
    for (size_t i = 0; i < OQ_COUNT(ones); i++)
        ones[i] = (uint16_t)(0x3c00 + i);
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT16, "1,3,4,4");
    bm_raw(&b, "w", OQ_FLOAT16, "2,3,1,1", ones, 12);
    bm_raw(&b, "c", OQ_FLOAT16, "2", ones, 4);
    bm_raw(&b, "v", OQ_FLOAT16, "4,3", ones, 24);
    bm_node(&b, "Conv", "conv", "x w c", "t", "");
    bm_node(&b, "Relu", "relu", "t", "u", "");
    bm_node(&b, "MatMul", "mm", "u v", "y", "");
    bm_output(&b, "y", OQ_FLOAT16, "1,2,4,3");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

/* Everything that weight-only quantization knows: a table that is the last layer too, a weight of
 * rank 3 with a unit dimension, a batch, a Gemm. */
static void make_weights(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "ids", OQ_INT64, "n");
    bm_weight(&b, "table", "5,32", 1);
    bm_weight(&b, "unit", "1,32,7", 2);
    bm_weight(&b, "batch", "2,5,3", 3);
    bm_weight(&b, "last", "3,4", 4);
    bm_weight(&b, "bias", "4", 5);
    bm_node(&b, "Gather", "embed", "table ids", "x", "");
    bm_node(&b, "MatMul", "unit", "x unit", "u", "");
    bm_node(&b, "Transpose", "turn", "table", "t", "perm=[1,0]");
    bm_node(&b, "MatMul", "head", "x t", "h", "");
    bm_node(&b, "MatMul", "experts", "h batch", "e", "");
    bm_node(&b, "Flatten", "flat", "e", "f", "axis=2");
    bm_node(&b, "Gemm", "gemm", "f last bias", "y", "");
    bm_output(&b, "u", OQ_FLOAT, NULL);
    bm_output(&b, "y", OQ_FLOAT, NULL);
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

/* Two layers, each with inputs of its own. */
static void make_layers(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "16,32");
    bm_weight(&b, "v", "32,16", 1);
    bm_weight(&b, "w", "16,8", 2);
    bm_node(&b, "MatMul", "one", "x v", "t", "");
    bm_node(&b, "MatMul", "two", "t w", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "16,8");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

/* A weight that is copied from file to file, beside one that is quantized. */
static void make_large(const char *path) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "320,256");
    bm_weight(&b, "w", "256,3", 1);
    bm_weight(&b, "large", "320,256", 2);
    bm_node(&b, "Add", "add", "x large", "s", "");
    bm_node(&b, "MatMul", "mm", "s w", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "320,3");
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

static void make_files(void) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    snprintf(trained_path, sizeof trained_path, "%s/t.onnx", folder);
    make_trained(trained_path);
    snprintf(half_path, sizeof half_path, "%s/h.onnx", folder);
    make_half(half_path);
    snprintf(weights_path, sizeof weights_path, "%s/w.onnx", folder);
    make_weights(weights_path);
    snprintf(large_path, sizeof large_path, "%s/l.onnx", folder);
    make_large(large_path);
    snprintf(layers_path, sizeof layers_path, "%s/y.onnx", folder);
    make_layers(layers_path);
    snprintf(model_path, sizeof model_path, "%s/m.onnx", folder);
    snprintf(cache_path, sizeof cache_path, "%s/c.json", folder);
    snprintf(out_dir, sizeof out_dir, "%s/out", folder);
    snprintf(out_path, sizeof out_path, "%s/o.onnx", out_dir);
    snprintf(data_path, sizeof data_path, "%s.data", out_path);
    snprintf(quantized_path, sizeof quantized_path, "%s/q.onnx", folder);
    snprintf(over_path, sizeof over_path, "%s/v.json", folder);
    bm_begin(&b, NULL, 11);
    bm_input(&b, "x", OQ_FLOAT, "1,3,4,4");
    bm_weight(&b, "w", "2,3,1,1", 1);
    bm_weight(&b, "c", "2", 2);
    bm_node(&b, "Conv", "conv", "x w c", "t", "");
    bm_node(&b, "Relu", "relu", "t", "u", "");
    bm_node(&b, "Flatten", "flat", "u", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,32");
    assert_ok(oq_model_save(b.m, model_path, NULL, &err), err);
    bm_end(&b);
    write_text(over_path, "{\"w\": [{\"quant_type\": \"quint8\"}]}");
    char text[2000];
    int n = snprintf(text, sizeof text, "{\"CLS\": \"TensorsData\", \"data\": {");
    static const char *const names[] = {"x", "t", "u", "y"};
    for (size_t i = 0; i < 4; i++)
        n += snprintf(
            text + n, sizeof text - (size_t)n,
            "%s\"%s\": {\"lowest\": {\"data\": [-1.0], \"dtype\": \"float32\", \"CLS\": "
            "\"numpy.array\"}, \"highest\": {\"data\": [2.0], \"dtype\": \"float32\", \"CLS\": "
            "\"numpy.array\"}, \"CLS\": \"TensorData\"}",
            i > 0 ? ", " : "", names[i]);
    snprintf(text + n, sizeof text - (size_t)n,
             "}, \"calibration_method\": {\"CLS\": \"CalibrationMethod\", \"value\": "
             "\"CalibrationMethod.MinMax\"}, \"smooth_quant\": false}");
    write_text(cache_path, text);
}

/* ---- one run ---- */

/* The command, its model, and pairs of name and value; "operand" is one of them. */
typedef struct job {
    const char *name;
    const char *command;
    bool runtime;            /* it needs one */
    int writes;              /* files: out_path, which is what `output` is set to, and its data */
    int jump;                /* how far apart samples are: slow ones have more */
    const char *options[15]; /* NULL at the end */
} job;

/* This job runs as on a file system without files that have no name. */
static const char named_files[] = "dynamic, named files";

static const char old_text[] = "what was there before";

/* What a run left behind: bytes of its two files, then what its result says. */
typedef struct left {
    char *bytes[3];
    size_t n[3];
} left;
enum { MODEL, DATA, SAID };

static left wanted; /* of a run without faults */

static void left_release(left *l) {
    for (size_t i = 0; i < OQ_COUNT(l->bytes); i++)
        free(l->bytes[i]);
    *l = (left){0};
}

static bool left_same(const left *a, const left *b, size_t part) {
    return a->n[part] == b->n[part] &&
           (a->n[part] == 0 || memcmp(a->bytes[part], b->bytes[part], a->n[part]) == 0);
}

/* What auto takes, and what bench says, depends on times. */
static bool depends_on_time(const job *j) {
    return strcmp(j->command, "auto") == 0 || strcmp(j->command, "bench") == 0;
}

/* "0.01 s", "3 ms", and what a key of JSON calls seconds or ms. `before` are the n bytes of the line
 * in front of a number, `after` follows it. */
static bool is_time(const char *before, size_t n, const char *after) {
    if (memmem(before, n, "seconds", strlen("seconds")) != NULL ||
        memmem(before, n, "ms\"", strlen("ms\"")) != NULL)
        return true;
    after += *after == ' ';
    after += *after == 'm';
    return *after == 's' && !isalpha((unsigned char)after[1]);
}

/* Times differ from run to run: a '#' stands for each. */
static void hide_times(char *text) {
    char *line = text, *to = text;
    for (const char *p = text; *p != '\0';) {
        if (!isdigit((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1]))) {
            *to++ = *p;
            line = *p++ == '\n' ? to : line;
            continue;
        }
        const size_t n = strspn(p, "0123456789.e+-");
        const bool hide = is_time(line, (size_t)(to - line), p + n);
        memmove(to, hide ? "#" : p, hide ? 1 : n);
        to += hide ? 1 : n;
        p += n;
    }
    *to = '\0';
}

/* Takes out `what` wherever it is, with all from the last `from` before it. */
static void cut(char *text, char from, const char *what) {
    for (char *at; (at = strstr(text, what)) != NULL;) {
        char *begin = at;
        while (begin > text && *begin != from)
            begin--;
        const char *rest = at + strlen(what);
        memmove(begin, rest, strlen(rest) + 1);
    }
}

/* debug gives times only where they are clear. */
static void cut_times_of_debug(char *text) {
    cut(text, ';', "one run takes # ms instead of # ms");
    cut(text, ',', "\"ms\": #");
    cut(text, ',', "\"ms\":#");
}

static void keep_said(const onq_result *result, left *l) {
    const int n = asprintf(&l->bytes[SAID], "%s\n%s\n%d", onq_result_text(result),
                           onq_result_json(result), onq_result_status(result));
    assert_true(n > 0);
    hide_times(l->bytes[SAID]);
    cut_times_of_debug(l->bytes[SAID]);
    l->n[SAID] = strlen(l->bytes[SAID]);
}

static onq_code run(const onq_allocator *a, const job *j, unsigned n_threads, left *out,
                    onq_error *err) {
    onq_env *env = onq_env_new(a);
    onq_options *o = NULL;
    onq_result *result = NULL;
    if (env == NULL) {
        snprintf(err->text, sizeof err->text, "out of memory");
        return err->code = ONQ_E_NOMEM;
    }
    onq_env_set_threads(env, n_threads);
    onq_code rc = onq_options_new(env, j->command, &o, err);
    if (rc == ONQ_OK && j->writes)
        rc = onq_options_set(o, "output", out_path, err);
    for (size_t i = 0; rc == ONQ_OK && j->options[i] != NULL; i += 2)
        rc = onq_options_set(o, j->options[i], j->options[i + 1], err);
    if (rc == ONQ_OK)
        rc = onq_run(env, o, &result, err);
    if (rc == ONQ_OK)
        keep_said(result, out);
    onq_result_free(result);
    onq_options_free(o);
    onq_env_free(env);
    return rc;
}

static void read_file(const char *path, size_t part, left *l) {
    FILE *f = fopen(path, "rb");
    l->bytes[part] = malloc(1 << 20);
    assert_non_null(f);
    assert_non_null(l->bytes[part]);
    l->n[part] = fread(l->bytes[part], 1, 1 << 20, f);
    assert_true(feof(f));
    fclose(f);
}

static void read_files(const job *j, left *l) {
    read_file(out_path, MODEL, l);
    if (j->writes > 1 && access(data_path, F_OK) == 0)
        read_file(data_path, DATA, l);
}

static size_t n_descriptors(void) {
    return entry_count("/proc/self/fd");
}

/* ---- faults ---- */

typedef struct fault {
    const char *name;
    unsigned io; /* of io_call; 0: not one of these */
    int errnum;
} fault;

static const fault faults[] = {
    {"allocation", 0, 0},        {"thread", 0, EAGAIN},        {"open", IO_OPEN, EMFILE},
    {"stat", IO_STAT, EIO},      {"read", IO_READ, EIO},       {"map", IO_MAP, ENOMEM},
    {"write", IO_WRITE, ENOSPC}, {"copy", IO_COPY, EIO},       {"sync", IO_SYNC, EIO},
    {"place", IO_PLACE, EACCES}, {"remove", IO_REMOVE, EBUSY},
};
enum { ALLOCATION, THREAD, OPEN };

/* One run in which call `n` fails. True if one did. */
static bool run_with(const job *j, size_t kind, long n, bool stays) {
    flaky f;
    onq_error err = ONQ_ERROR_INIT;
    const fault *what = &faults[kind];
    flaky_init(&f, kind == ALLOCATION ? n : -1);
    f.stays = stays;
    if (j->writes)
        write_text(out_path, old_text);
    if (j->writes > 1)
        unlink(data_path);
    const size_t open_before = n_descriptors();
    if (kind == THREAD)
        no_threads_after(n, stays);
    if (what->io != 0)
        flaky_io_arm(what->io, n, what->errnum, stays);
    flaky_io_no_tmpfile(j->name == named_files);
    left now = {0};
    const onq_code rc = run(&f.alloc, j, kind == THREAD ? 4 : 1, &now, &err);
    flaky_io_no_tmpfile(false);
    const bool io_failed = what->io != 0 && flaky_io_disarm();
    const bool thread_failed = kind == THREAD && no_threads_refused();
    no_threads(false);
    const bool failed = io_failed || thread_failed || atomic_load(&f.failed);
    const char *const how = stays ? " and all after it" : "";
    if (rc != ONQ_OK && !failed)
        fail_msg("%s: without a fault: %s", j->name, err.text);
    if (rc != ONQ_OK && (err.code != rc || err.text[0] == '\0'))
        fail_msg("%s: %s %ld%s: code %d without a message", j->name, what->name, n, how, (int)rc);
    if (kind == ALLOCATION && rc != ONQ_OK && rc != ONQ_E_NOMEM)
        fail_msg("%s: allocation %ld%s: not out of memory but '%s'", j->name, n, how, err.text);
    if (atomic_load(&f.live) != 0)
        fail_msg("%s: %s %ld%s: %zu bytes leaked", j->name, what->name, n, how,
                 atomic_load(&f.live));
    if (n_descriptors() != open_before)
        fail_msg("%s: %s %ld%s: descriptors leaked", j->name, what->name, n, how);
    size_t n_left = 0;
    if (j->writes) {
        read_files(j, &now);
        const bool old = now.n[MODEL] == strlen(old_text) &&
                         memcmp(now.bytes[MODEL], old_text, now.n[MODEL]) == 0;
        const bool made = depends_on_time(j)
                              ? !old
                              : left_same(&now, &wanted, MODEL) && left_same(&now, &wanted, DATA);
        /* The new one, whole, although the job failed: memory for the result ran out after it, or
         * nothing but the sync of the folder was left to do. */
        const bool late = kind == ALLOCATION || what->io == IO_SYNC;
        if (rc == ONQ_OK ? !made : !old && !(made && late))
            fail_msg("%s: %s %ld%s: status %d, and the output is %s", j->name, what->name, n, how,
                     (int)rc,
                     old    ? "the old one"
                     : made ? "the new one"
                            : "something else");
        n_left = old ? 1 : (size_t)j->writes;
    }
    if (rc == ONQ_OK && !depends_on_time(j) && !left_same(&now, &wanted, SAID))
        fail_msg("%s: %s %ld%s: a result that says something else:\n%s", j->name, what->name, n,
                 how, now.bytes[SAID]);
    left_release(&now);
    /* A temporary file that cannot be removed stays. */
    if (entry_count(out_dir) != n_left && what->io != IO_REMOVE)
        fail_msg("%s: %s %ld%s: something was left behind (%s)", j->name, what->name, n, how,
                 err.text);
    return failed;
}

static void clean_out(void) {
    char command[2 * sizeof out_dir + 40];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", out_dir, out_dir);
    assert_int_equal(system(command), 0);
}

/* All N, or samples of them; returns the number of runs. */
static size_t sweep(const job *j, size_t kind) {
    size_t n_runs = 0;
    for (int stays = 0; stays < 2; stays++) {
        clean_out();
        for (long n = stays && !everything ? 1 : 0; run_with(j, kind, n, stays != 0);) {
            n_runs++;
            if (faults[kind].io == IO_REMOVE)
                clean_out();
            n += everything ? 1 : kind == ALLOCATION ? 1 + stays + n / 4 * j->jump : j->jump;
        }
    }
    return n_runs;
}

/* ---- the table ---- */

static void prepare(const job *j) {
    onq_error err = ONQ_ERROR_INIT;
    clean_out();
    left_release(&wanted);
    if (run(NULL, j, 1, &wanted, &err) != ONQ_OK)
        fail_msg("%s: %s", j->name, err.text);
    if (j->writes)
        read_files(j, &wanted);
}

static bool has_runtime(void) {
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    onq_runtime_info info;
    const onq_code rc = onq_runtime_query(env, NULL, &info, &err);
    onq_env_free(env);
    if (rc != ONQ_OK)
        printf("without a runtime: %s\n", err.text);
    return rc == ONQ_OK;
}

static void table(void **state) {
    (void)state;
    const char *const cache = "calibration_cache";
    const job jobs[] = {
        {"inspect", "inspect", false, false, 1, {"operand", model_path}},
        {"diff", "diff", false, false, 1, {"operand", model_path, "operand", trained_path}},
        {"ops", "ops", false, false, 1, {NULL}},
        {"static, cache", "static", false, true, 1, {"input", model_path, cache, cache_path}},
        {"static, overrides",
         "static",
         false,
         true,
         1,
         {"input", model_path, cache, cache_path, "per_channel", "true", "nodes_to_exclude",
          "re:^flat", "tensor_quant_overrides", over_path}},
        {"static, qnn",
         "static",
         false,
         true,
         2,
         {"input", model_path, cache, cache_path, "preset", "qnn", "activation_type", "quint16"}},
        {"static, qoperator",
         "static",
         false,
         true,
         2,
         {"input", model_path, cache, cache_path, "quant_format", "qoperator"}},
        {"static, samples", "static", true, true, 6, {"input", model_path, "data", "random:2"}},
        {"static, entropy",
         "static",
         true,
         true,
         8,
         {"input", model_path, "data", "random:2", "calibration_method", "entropy"}},
        {"dynamic",
         "dynamic",
         false,
         true,
         2,
         {"input", model_path, "per_channel", "true", "no_verify", "true"}},
        {"dynamic, verified", "dynamic", true, true, 6, {"input", model_path, "verify", "true"}},
        {"dynamic, large", "dynamic", false, 1, 2, {"input", large_path, "no_verify", "true"}},
        {named_files,
         "dynamic",
         false,
         2,
         2,
         {"input", large_path, "use_external_data_format", "true", "no_verify", "true"}},
        {"dynamic, external data",
         "dynamic",
         false,
         2,
         2,
         {"input", large_path, "use_external_data_format", "true", "no_verify", "true"}},
        {"dynamic, float16", "dynamic", false, true, 2, {"input", half_path, "no_verify", "true"}},
        {"nbits",
         "nbits",
         false,
         true,
         2,
         {"input", weights_path, "op_types_to_quantize", "all", "symmetric", "false", "no_verify",
          "true"}},
        {"nbits, QDQ",
         "nbits",
         false,
         true,
         2,
         {"input", weights_path, "quant_format", "QDQ", "op_types_to_quantize", "MatMul,Gemm",
          "no_verify", "true"}},
        {"nbits, k_quant",
         "nbits",
         false,
         true,
         3,
         {"input", weights_path, "quant_method", "k_quant", "all_weights", "true", "no_verify",
          "true"}},
        {"nbits, all weights",
         "nbits",
         false,
         true,
         3,
         {"input", weights_path, "op_types_to_quantize", "all", "all_weights", "true", "no_verify",
          "true"}},
        {"nbits, hqq",
         "nbits",
         false,
         true,
         3,
         {"input", weights_path, "quant_method", "hqq", "no_verify", "true"}},
        {"nbits, gptq",
         "nbits",
         true,
         true,
         8,
         {"input", layers_path, "quant_method", "gptq", "data", "random:2", "no_verify", "true"}},
        {"nbits, target_bits",
         "nbits",
         false,
         true,
         3,
         {"input", weights_path, "target_bits", "16", "no_verify", "true"}},
        {"nbits, mixed",
         "nbits",
         false,
         true,
         3,
         {"input", weights_path, "mixed", "last", "no_verify", "true"}},
        {"bnb4", "bnb4", false, true, 2, {"input", weights_path, "no_verify", "true"}},
        {"legacy", "legacy", false, true, 2, {"input", model_path, "no_verify", "true"}},
        {"preprocess, builtin",
         "preprocess",
         false,
         true,
         2,
         {"input", model_path, "optimizer", "builtin", "opset", "17", "no_verify", "true"}},
        {"preprocess", "preprocess", true, true, 6, {"input", model_path}},
        {"qat", "qat", false, true, 2, {"input", trained_path, "no_verify", "true"}},
        {"qat, qdq",
         "qat",
         false,
         true,
         2,
         {"input", trained_path, "quant_format", "qdq", "no_verify", "true"}},
        {"qat, qoperator",
         "qat",
         false,
         true,
         2,
         {"input", trained_path, "quant_format", "qoperator", "no_verify", "true"}},
        {"calibrate",
         "calibrate",
         true,
         true,
         6,
         {"input", model_path, "data", "random:2", "method", "percentile"}},
        {"debug",
         "debug",
         true,
         false,
         8,
         {"float_model", model_path, "qdq_model", quantized_path, "data", "random:1"}},
        {"run", "run", true, false, 6, {"operand", model_path, "data", "random:1"}},
        {"bench",
         "bench",
         true,
         false,
         10,
         {"operand", model_path, "data", "random:1", "runs", "1"}},
        {"auto",
         "auto",
         true,
         true,
         60,
         {"input", model_path, "data", "random:4", "max_float_units", "0", "allow", "dynamic",
          "time_limit", "1"}},
    };
    scratch s;
    scratch_init(&s);
    folder = s.dir;
    make_files();
    clean_out();
    const bool runtime = has_runtime();
    {
        const job make = {"q", "static", false, true, 1, {"input", model_path, cache, cache_path}};
        prepare(&make);
        FILE *f = fopen(quantized_path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(wanted.bytes[MODEL], 1, wanted.n[MODEL], f), wanted.n[MODEL]);
        fclose(f);
    }
    const char *const only = getenv("ONQ_FAULTS_IN"); /* commands to try; NULL: all */
    size_t total = 0;
    printf("%-22s", "");
    for (size_t k = 0; k < OQ_COUNT(faults); k++)
        printf(" %10s", faults[k].name);
    printf("\n");
    for (size_t i = 0; i < OQ_COUNT(jobs); i++) {
        if ((jobs[i].runtime && !runtime) || (only != NULL && strstr(jobs[i].name, only) == NULL))
            continue;
        prepare(&jobs[i]);
        printf("%-22s", jobs[i].name);
        for (size_t k = 0; k < OQ_COUNT(faults); k++) {
            const size_t n = sweep(&jobs[i], k);
            printf(" %10zu", n);
            fflush(stdout);
            total += n;
        }
        printf("\n");
    }
    printf("%zu runs with a fault\n", total);
    left_release(&wanted);
    scratch_remove(&s);
}

int main(int argc, char **argv) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0); /* or the runtime opens files of its own at any time */
    const char *const wish = argc > 1 ? argv[1] : getenv("ONQ_FAULTS");
    everything = wish != NULL && strcmp(wish, "all") == 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
