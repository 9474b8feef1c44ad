/* test_threads.c — several models over one environment, and environments in threads of their own:
 * the same bytes as one after another. With the thread sanitizer it shows that nothing is
 * shared. */
#include "build_model.h"
#include "testing.h"

#include <pthread.h>

static onq_error err;

#define MODELS  3
#define THREADS 4

typedef struct given {
    oq_buf bytes[MODELS];
    oq_buf want[MODELS];
} given;

static void make_models(given *g) {
    static const char *const ops[MODELS] = {"Relu", "Sigmoid", "Tanh"};
    for (size_t i = 0; i < MODELS; i++) {
        bm b;
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "N,32");
        bm_weight(&b, "w", "32,64", (unsigned)i + 1);
        bm_node(&b, "MatMul", "mm", "x w", "t", "");
        bm_node(&b, ops[i], "act", "t", "y", "");
        bm_output(&b, "y", OQ_FLOAT, "N,64");
        oq_buf_init(&g->bytes[i], oq_alloc_default());
        oq_buf_init(&g->want[i], oq_alloc_default());
        assert_ok(oq_model_encode(b.m, &g->bytes[i], &err), err);
        bm_end(&b);
    }
}

static void free_models(given *g) {
    for (size_t i = 0; i < MODELS; i++) {
        oq_buf_release(&g->bytes[i]);
        oq_buf_release(&g->want[i]);
    }
}

static onq_code quantize(onq_env *env, const oq_buf *model, onq_result **out, onq_error *e) {
    onq_options *o = NULL;
    onq_code rc = ONQ_OK;
    const onq_bytes bytes = {.data = model->p, .size = model->n};
    OQ_GO(onq_options_new(env, "dynamic", &o, e));
    OQ_GO(onq_options_set_bytes(o, "input", &bytes, e));
    OQ_GO(onq_options_want_bytes(o, "output", NULL, e));
    OQ_GO(onq_options_set(o, "no_verify", "true", e));
    OQ_GO(onq_run(env, o, out, e));
done:
    onq_options_free(o);
    return rc;
}

/* All models over one environment; the first time what they give is kept, then compared. */
static bool all_are_right(given *g, bool first) {
    onq_env *env = onq_env_new(NULL);
    bool right = env != NULL;
    for (size_t i = 0; right && i < MODELS; i++) {
        onq_error e = ONQ_ERROR_INIT;
        onq_result *r = NULL;
        right = quantize(env, &g->bytes[i], &r, &e) == ONQ_OK;
        const onq_file *f = right ? onq_result_file(r, 0) : NULL;
        if (right && first)
            oq_buf_add(&g->want[i], f->data, f->size);
        right = right && f->size == g->want[i].n && memcmp(f->data, g->want[i].p, f->size) == 0;
        onq_result_free(r);
    }
    onq_env_free(env);
    return right;
}

static void *work(void *ctx) {
    bool right = true;
    for (int i = 0; right && i < 4; i++)
        right = all_are_right(ctx, false);
    return right ? ctx : NULL;
}

static void environments_are_independent(void **state) {
    (void)state;
    given g;
    pthread_t threads[THREADS];
    make_models(&g);
    assert_true(all_are_right(&g, true));
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &g), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *right = NULL;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
    free_models(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(environments_are_independent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
