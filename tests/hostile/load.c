/*
 * load.c — many models in one process from many threads at once, through the public interface:
 * every result equals the one that a thread alone got, no memory is lost, and with the thread
 * sanitizer no race is seen.
 *
 *     hostile_load [MODELS [SECONDS]]
 *
 * Each of MODELS (200) small networks is quantized, prepared, calibrated or looked at, one after
 * the other and then by 8 threads. With SECONDS it goes on for so long, and what the process holds
 * at the end must be what it held after its first tenth: a soak. $ONQ_LOAD_SECONDS says the same.
 */
#include "onq/onq.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_THREADS = 8, N_MOST = 2000 };

typedef struct way {
    const char *command;
    bool runtime;
    const char *options[9]; /* NULL at the end */
} way;

static const way ways[] = {
    {"dynamic", false, {"per_channel", "true", "no_verify", "true"}},
    {"static", true, {"data", "random:2"}},
    {"nbits", false, {"op_types_to_quantize", "all", "no_verify", "true"}},
    {"inspect", false, {NULL}},
    {"preprocess", false, {"optimizer", "builtin", "no_verify", "true"}},
    {"calibrate", true, {"data", "random:2", "method", "entropy"}},
    {"bnb4", false, {"no_verify", "true"}},
    {"static", true, {"data", "random:2", "quant_format", "qoperator", "per_channel", "true"}},
    {"legacy", false, {"no_verify", "true"}},
    {"dynamic", true, {"verify", "true"}},
};

static struct {
    size_t n;
    char *paths[N_MOST];
    char *results[N_MOST]; /* what a thread alone got */
    size_t sizes[N_MOST];
    bool runtime;
    flaky memory; /* counts only */
    atomic_size_t next, done;
    size_t stop_at;
} load;

/* A network of its own for each number. */
static void make_model(const char *path, size_t number) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    const unsigned channels = 2 + (unsigned)(number % 5), classes = 3 + (unsigned)(number % 7);
    char shape[64];
    bm_begin(&b, NULL, number % 3 == 0 ? 13 : 17);
    bm_input(&b, "x", OQ_FLOAT, "1,3,6,6");
    snprintf(shape, sizeof shape, "%u,3,3,3", channels);
    bm_weight(&b, "w", shape, (unsigned)number + 1);
    snprintf(shape, sizeof shape, "%u", channels);
    bm_weight(&b, "c", shape, (unsigned)number + 2);
    bm_node(&b, "Conv", "conv", "x w c", "t", "");
    bm_node(&b, number % 2 ? "Relu" : "Sigmoid", "act", "t", "u", "");
    bm_node(&b, "Flatten", "flat", "u", "f", "");
    snprintf(shape, sizeof shape, "%u,%u", channels * 16, classes);
    bm_weight(&b, "m", shape, (unsigned)number + 3);
    bm_node(&b, "MatMul", "mm", "f m", "y", "");
    snprintf(shape, sizeof shape, "1,%u", classes);
    bm_output(&b, "y", OQ_FLOAT, shape);
    assert_ok(oq_model_save(b.m, path, NULL, &err), err);
    bm_end(&b);
}

static const way *way_of(size_t i) {
    const way *w = &ways[i % OQ_COUNT(ways)];
    return w->runtime && !load.runtime ? &ways[0] : w;
}

/* The job of number i: its bytes, which the caller frees; NULL and a message when it failed. */
static char *run(size_t i, size_t *size, onq_error *err) {
    const way *w = way_of(i);
    const bool writes = strcmp(w->command, "inspect") != 0;
    onq_env *env = onq_env_new(&load.memory.alloc);
    onq_options *o = NULL;
    onq_result *result = NULL;
    char *made = NULL;
    onq_env_set_threads(env, 1 + (unsigned)(i % 2));
    onq_code rc = onq_options_new(env, w->command, &o, err);
    if (rc == ONQ_OK)
        rc = onq_options_set(o, writes ? "input" : "operand", load.paths[i], err);
    /* A cache is written to a file; the model of the others stays in memory. */
    char cache[700];
    snprintf(cache, sizeof cache, "%s.%zu.json", load.paths[i], (size_t)pthread_self());
    const bool is_cache = strcmp(w->command, "calibrate") == 0;
    if (rc == ONQ_OK && writes)
        rc = is_cache ? onq_options_set(o, "output", cache, err)
                      : onq_options_want_bytes(o, "output", "q.onnx", err);
    for (size_t k = 0; rc == ONQ_OK && w->options[k] != NULL; k += 2)
        rc = onq_options_set(o, w->options[k], w->options[k + 1], err);
    if (rc == ONQ_OK)
        rc = onq_run(env, o, &result, err);
    if (rc == ONQ_OK) {
        const onq_file *f = writes && !is_cache ? onq_result_file(result, 0) : NULL;
        if (is_cache) {
            FILE *c = fopen(cache, "rb");
            made = malloc(1 << 18);
            if (c != NULL && made != NULL)
                *size = fread(made, 1, 1 << 18, c);
            if (c != NULL)
                fclose(c);
        } else {
            const char *text = onq_result_text(result);
            *size = f != NULL ? f->size : strlen(text);
            made = malloc(*size + 1);
            if (made != NULL)
                memcpy(made, f != NULL ? f->data : (const void *)text, *size);
        }
    }
    if (is_cache)
        (void)unlink(cache);
    onq_result_free(result);
    onq_options_free(o);
    onq_env_free(env);
    return made;
}

static atomic_bool failed;

static void *work(void *ctx) {
    (void)ctx;
    for (size_t k; !atomic_load(&failed) && (k = atomic_fetch_add(&load.next, 1)) < load.stop_at;) {
        const size_t i = k % load.n;
        onq_error err = ONQ_ERROR_INIT;
        size_t size = 0;
        char *made = run(i, &size, &err);
        if (made == NULL || size != load.sizes[i] || memcmp(made, load.results[i], size) != 0) {
            fprintf(stderr, "model %zu (%s): %s\n", i, way_of(i)->command,
                    made == NULL ? err.text : "another result than alone");
            atomic_store(&failed, true);
        }
        free(made);
        atomic_fetch_add(&load.done, 1);
    }
    return NULL;
}

static void run_threads(size_t n_jobs) {
    pthread_t threads[N_THREADS];
    atomic_store(&load.next, 0);
    load.stop_at = n_jobs;
    for (size_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (size_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_false(atomic_load(&failed));
}

static long resident_kib(void) {
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &all, &pages), 2);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Goes on for so long. What is held may not grow after the first tenth: a quarter more and 16 MB
 * are for the allocator, whose heaps of several threads fill up in no order. */
static void soak(double seconds) {
    const double begin = now();
    long settled = 0, last = 0;
    size_t rounds = 0;
    while (now() - begin < seconds) {
        run_threads(load.n);
        rounds++;
        last = resident_kib();
        if (settled == 0 && now() - begin > seconds / 10) {
            settled = last;
            printf("after %.0f s: %ld KiB\n", now() - begin, settled);
            fflush(stdout);
        }
    }
    printf("soak: %zu rounds of %zu models in %.0f s; %ld KiB settled, %ld KiB at the end\n",
           rounds, load.n, now() - begin, settled, last);
    if (settled != 0 && last > settled + settled / 4 + (16 << 10))
        fail_msg("memory grew from %ld to %ld KiB", settled, last);
}

static double wanted_seconds;

static void many_at_once(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    flaky_init(&load.memory, -1);
    onq_error err = ONQ_ERROR_INIT;
    onq_runtime_info info;
    onq_env *env = onq_env_new(NULL);
    load.runtime = onq_runtime_query(env, NULL, &info, &err) == ONQ_OK;
    onq_env_free(env);
    for (size_t i = 0; i < load.n; i++) {
        char name[32];
        snprintf(name, sizeof name, "m%zu.onnx", i);
        load.paths[i] = strdup(scratch_path(&s, name));
        assert_non_null(load.paths[i]);
        make_model(load.paths[i], i);
        err = (onq_error)ONQ_ERROR_INIT;
        load.results[i] = run(i, &load.sizes[i], &err);
        if (load.results[i] == NULL)
            fail_msg("model %zu (%s): %s", i, way_of(i)->command, err.text);
    }
    run_threads(load.n);
    printf("%zu models by %d threads%s: as by one\n", load.n, N_THREADS,
           load.runtime ? "" : ", without a runtime");
    if (wanted_seconds > 0)
        soak(wanted_seconds);
    assert_int_equal(atomic_load(&load.memory.live), 0);
    for (size_t i = 0; i < load.n; i++) {
        free(load.paths[i]);
        free(load.results[i]);
    }
    scratch_remove(&s);
}

int main(int argc, char **argv) {
    setenv("ORT_DISABLE_TELEMETRY", "1", 0); /* or the runtime opens files of its own at any time */
    const char *const seconds = argc > 2 ? argv[2] : getenv("ONQ_LOAD_SECONDS");
    load.n = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 200;
    if (load.n == 0 || load.n > N_MOST)
        load.n = 200;
    wanted_seconds = seconds != NULL ? strtod(seconds, NULL) : 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
