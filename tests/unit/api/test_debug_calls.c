/* test_debug_calls.c — the calls for debugging, by hand-made models: what they give, what they
 * refuse, and what happens when memory ends. Collecting needs a runtime and is tested in
 * tests/parity. */
#include "build_model.h"
#include "flaky_alloc.h"
#include "onnx/model.h"
#include "scratch.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>

static onq_error err;

typedef struct files {
    scratch s;
    const char *flt, *quantized, *out;
} files;

#define ROWS 3
#define COLS 2
static const float weight[ROWS * COLS] = {1.0f, -2.0f, 0.5f, 4.0f, -0.25f, 3.0f};
static const uint8_t numbers[ROWS * COLS] = {138, 108, 133, 168, 125, 158}; /* x 10 + 128 */

static void write_files(files *f) {
    bm b;
    scratch_init(&f->s);
    f->flt = scratch_path(&f->s, "float.onnx");
    f->quantized = scratch_path(&f->s, "made.onnx");
    f->out = scratch_path(&f->s, "out.onnx");
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,3");
    bm_f32(&b, "w", "3,2", weight);
    bm_node(&b, "MatMul", "mm", "x w", "t", "");
    bm_node(&b, "Relu", "relu", "t", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "N,2");
    assert_ok(oq_model_save(b.m, f->flt, NULL, &err), err);
    bm_end(&b);
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "N,3");
    bm_raw(&b, "w_quantized", OQ_UINT8, "3,2", numbers, sizeof numbers);
    bm_f32(&b, "w_scale", "", (const float[]){0.1f});
    bm_raw(&b, "w_zero_point", OQ_UINT8, "", (const uint8_t[]){128}, 1);
    bm_node(&b, "DequantizeLinear", "dq", "w_quantized w_scale w_zero_point",
            "w_DequantizeLinear_Output", "");
    bm_node(&b, "MatMul", "mm", "x w_DequantizeLinear_Output", "t", "");
    bm_node(&b, "Relu", "relu", "t", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "N,2");
    assert_ok(oq_model_save(b.m, f->quantized, NULL, &err), err);
    bm_end(&b);
}

/* ---- weights ---- */

static void weights_are_given(void **state) {
    (void)state;
    files f;
    write_files(&f);
    onq_env *env = onq_env_new(NULL);
    for (int extended = 0; extended < 2; extended++) {
        onq_weight_match *m = NULL;
        const onq_weight_row *r = NULL, *again = NULL;
        double sqnr = 0, want = 0;
        assert_ok(onq_weight_match_new(env, f.flt, f.quantized, extended, &m, &err), err);
        assert_int_equal(onq_weight_match_count(m), 1);
        assert_string_equal(onq_weight_match_name(m, 0), "w");
        assert_null(onq_weight_match_name(m, 1));
        assert_ok(onq_weight_match_at(m, 0, &r, &err), err);
        assert_ok(onq_weight_match_at(m, 0, &again, &err), err);
        assert_ptr_equal(r, again);
        assert_int_equal(r->flt.dtype, OQ_FLOAT);
        assert_int_equal(r->dequantized.dtype, OQ_FLOAT);
        assert_int_equal(r->dequantized.rank, 2);
        assert_int_equal(r->dequantized.dims[0], ROWS);
        assert_memory_equal(r->flt.data, weight, sizeof weight);
        const float *y = r->dequantized.data;
        for (int i = 0; i < ROWS * COLS; i++) {
            /* The reference subtracts in uint8, where what is below the zero point wraps around. */
            const int q = numbers[i] - 128;
            const float v = (float)(extended == 0 && q < 0 ? q + 256 : q) * 0.1f;
            assert_true(y[i] == v);
        }
        assert_ok(onq_weight_match_error(m, 0, &sqnr, &err), err);
        assert_ok(onq_sqnr(&r->flt, 1, &r->dequantized, 1, &want, &err), err);
        assert_true(sqnr == want && (extended != 0) == (sqnr > 20));
        assert_fails(onq_weight_match_at(m, 1, &r, &err), ONQ_E_INVALID, err, "only 1");
        assert_null(r);
        assert_fails(onq_weight_match_error(m, 7, &sqnr, &err), ONQ_E_INVALID, err, "no weight 7");
        onq_weight_match_free(m);
    }
    onq_weight_match *none = NULL;
    assert_int_equal(onq_weight_match_new(env, f.flt, f.out, 0, &none, &err), ONQ_E_MISSING);
    assert_null(none);
    onq_weight_match_free(NULL);
    onq_env_free(env);
    scratch_remove(&f.s);
}

/* ---- models ---- */

static void models_give_out_their_tensors(void **state) {
    (void)state;
    files f;
    write_files(&f);
    onq_env *env = onq_env_new(NULL);
    const char *ops[] = {"Relu"};
    for (size_t n = 0; n < 2; n++) {
        oq_model *m = NULL;
        assert_ok(onq_debug_modify_model(env, f.flt, f.out, ops, n, 0, &err), err);
        assert_ok(oq_model_open(env, f.out, NULL, &m, &err), err);
        const oq_graph *g = m->proto->graph;
        assert_int_equal(g->output.n, n == 0 ? 4 : 3); /* y; x, t, y or t, y */
        assert_true(oq_str_is(g->output.v[1]->name,
                              n == 0 ? "x_ReshapedSavedOutput" : "t_ReshapedSavedOutput"));
        oq_model_free(m);
    }
    assert_fails(onq_debug_modify_model(env, f.out, f.quantized, NULL, 0, 0, &err), ONQ_E_INVALID,
                 err, "already");
    onq_env_free(env);
    scratch_remove(&f.s);
}

/* ---- activations ---- */

static onq_tensor tensor(const float *v, const int64_t *n) {
    return (onq_tensor){
        .dtype = OQ_FLOAT, .rank = 1, .dims = n, .data = v, .size = (size_t)*n * sizeof *v};
}

static const float before[4] = {1, 2, 3, 4}, after[4] = {1, 2, 3, 4.5f};

static onq_code fill(onq_env *env, onq_activations **qdq, onq_activations **flt, onq_error *e) {
    const int64_t n = 4;
    const onq_tensor pre = tensor(before, &n), post = tensor(after, &n);
    onq_code rc = onq_activations_new(env, qdq, e);
    if (rc == ONQ_OK)
        rc = onq_activations_new(env, flt, e);
    for (int i = 0; i < 3 && rc == ONQ_OK; i++) { /* three samples */
        rc = onq_activations_add(*qdq, "a", &pre, e);
        if (rc == ONQ_OK)
            rc = onq_activations_add(*qdq, "a_DequantizeLinear_Output", &post, e);
        if (rc == ONQ_OK)
            rc = onq_activations_add(*qdq, "b_QuantizeLinear_Input", &pre, e);
        if (rc == ONQ_OK)
            rc = onq_activations_add(*qdq, "b", &post, e);
        if (rc == ONQ_OK)
            rc = onq_activations_add(*flt, "a", &pre, e);
    }
    return rc;
}

static void activations_are_matched(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    onq_activations *qdq = NULL, *flt = NULL;
    onq_activation_match *m = NULL;
    double e = 0, x = 0;
    size_t n = 0;
    assert_ok(fill(env, &qdq, &flt, &err), err);
    assert_int_equal(onq_activations_count(qdq), 4);
    assert_string_equal(onq_activations_name(qdq, 2), "b_QuantizeLinear_Input");
    assert_null(onq_activations_name(qdq, 4));
    assert_ptr_equal(onq_activations_at(qdq, 1, &n)[2].data, after); /* lent, not copied */
    assert_int_equal(n, 3);
    assert_null(onq_activations_at(qdq, 4, &n));
    assert_int_equal(n, 0);
    assert_ok(onq_activation_match_new(qdq, flt, &m, &err), err);
    assert_int_equal(onq_activation_match_count(m), 2);
    const onq_activation_row *a = onq_activation_match_at(m, 0), *b = onq_activation_match_at(m, 1);
    assert_string_equal(a->name, "a");
    assert_true(a->pre_qdq == 0 && a->post_qdq == 1 && a->flt == 0);
    assert_string_equal(b->name, "b");
    assert_true(b->pre_qdq == 2 && b->post_qdq == 3 && b->flt == ONQ_NONE);
    const double want = 10 * log10(30 / 0.25);
    assert_ok(onq_activation_match_error(m, 0, &e, &x, &err), err);
    assert_true(fabs(e - want) < 1e-5 && fabs(x - want) < 1e-5);
    assert_ok(onq_activation_match_error(m, 1, &e, &x, &err), err);
    assert_true(fabs(e - want) < 1e-5 && isnan(x));
    assert_null(onq_activation_match_at(m, 2));
    assert_fails(onq_activation_match_error(m, 2, &e, &x, &err), ONQ_E_INVALID, err, "only 2");
    onq_activation_match_free(m);
    /* A sample more on one side. */
    const int64_t four = 4;
    const onq_tensor t = tensor(before, &four);
    assert_ok(onq_activations_add(qdq, "a", &t, &err), err);
    assert_ok(onq_activation_match_new(qdq, NULL, &m, &err), err);
    assert_fails(onq_activation_match_error(m, 0, &e, &x, &err), ONQ_E_INVALID, err,
                 "activation 'a'");
    onq_activation_match_free(m);
    onq_activations_free(qdq);
    onq_activations_free(flt);
    onq_activations_free(NULL);
    onq_activation_match_free(NULL);
    onq_env_free(env);
}

static void bad_tensors_are_refused(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    onq_activations *set = NULL;
    double out = 0;
    const int64_t four = 4, minus = -1, huge[2] = {INT64_MAX, INT64_MAX};
    onq_tensor t = tensor(before, &four), u = t;
    assert_ok(onq_activations_new(env, &set, &err), err);
    t.size = 12;
    assert_fails(onq_activations_add(set, "a", &t, &err), ONQ_E_INVALID, err, "its dims need 16");
    assert_fails(onq_sqnr(&t, 1, &u, 1, &out, &err), ONQ_E_INVALID, err, "its dims need 16");
    t.size = 16;
    t.dims = &minus;
    assert_fails(onq_sqnr(&u, 1, &t, 1, &out, &err), ONQ_E_INVALID, err, "dimension 0 is -1");
    t.dims = huge;
    t.rank = 2;
    assert_fails(onq_sqnr(&t, 1, &u, 1, &out, &err), ONQ_E_INVALID, err, "dimension 1");
    u.dtype = OQ_INT32;
    assert_fails(onq_sqnr(&u, 1, &u, 1, &out, &err), ONQ_E_UNSUPPORTED, err, "INT32");
    u.dtype = 999;
    assert_fails(onq_activations_add(set, "a", &u, &err), ONQ_E_INVALID, err, "type");
    assert_int_equal(onq_activations_count(set), 0);
    onq_activations_free(set);
    onq_env_free(env);
}

/* ---- memory ---- */

static onq_code new_env(const onq_allocator *a, onq_env **env, onq_error *e) {
    *env = onq_env_new(a);
    if (*env != NULL)
        return ONQ_OK;
    e->code = ONQ_E_NOMEM;
    snprintf(e->text, sizeof e->text, "out of memory");
    return ONQ_E_NOMEM;
}

static onq_code sweep_weights(const onq_allocator *a, void *ctx, onq_error *e) {
    const files *f = ctx;
    onq_env *env = NULL;
    onq_weight_match *m = NULL;
    const onq_weight_row *r = NULL;
    double sqnr = 0;
    onq_code rc = new_env(a, &env, e);
    if (rc == ONQ_OK)
        rc = onq_weight_match_new(env, f->flt, f->quantized, 1, &m, e);
    if (rc == ONQ_OK)
        rc = onq_weight_match_at(m, 0, &r, e);
    if (rc == ONQ_OK)
        rc = onq_weight_match_error(m, 0, &sqnr, e);
    onq_weight_match_free(m);
    onq_env_free(env);
    return rc;
}

static onq_code sweep_models(const onq_allocator *a, void *ctx, onq_error *e) {
    const files *f = ctx;
    onq_env *env = NULL;
    onq_code rc = new_env(a, &env, e);
    if (rc == ONQ_OK)
        rc = onq_debug_modify_model(env, f->quantized, f->out, NULL, 0, 0, e);
    onq_env_free(env);
    if (rc != ONQ_OK)
        assert_int_equal(entry_count(f->s.dir), 2); /* no output, no litter */
    else
        assert_int_equal(remove(f->out), 0);
    return rc;
}

static onq_code sweep_activations(const onq_allocator *a, void *ctx, onq_error *e) {
    onq_env *env = NULL;
    onq_activations *qdq = NULL, *flt = NULL;
    onq_activation_match *m = NULL;
    double x = 0, y = 0;
    (void)ctx;
    onq_code rc = new_env(a, &env, e);
    if (rc == ONQ_OK)
        rc = fill(env, &qdq, &flt, e);
    if (rc == ONQ_OK)
        rc = onq_activation_match_new(qdq, flt, &m, e);
    if (rc == ONQ_OK)
        rc = onq_activation_match_error(m, 0, &x, &y, e);
    onq_activation_match_free(m);
    onq_activations_free(qdq);
    onq_activations_free(flt);
    onq_env_free(env);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    files f;
    write_files(&f);
    assert_true(flaky_sweep(sweep_weights, &f) > 10);
    assert_true(flaky_sweep(sweep_models, &f) > 10);
    assert_true(flaky_sweep(sweep_activations, &f) > 5);
    scratch_remove(&f.s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_given),
        cmocka_unit_test(models_give_out_their_tensors),
        cmocka_unit_test(activations_are_matched),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
