/*
 * test_rounding.c — learned rounding: linear algebra with and without a library, sums of products
 * of inputs, and integers that lower the error of the output.
 */
#include "quantize/rounding/plane.h"
#include "quantize/rounding/solve.h"

#include "flaky_alloc.h"
#include "testing.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define K 70
#define N 37

static float number(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1u << 24) - 0.5f;
}

/* Inputs that depend on each other, as those of a layer do. */
static void draw_inputs(float *x, size_t rows, size_t k, unsigned seed) {
    for (size_t i = 0; i < rows; i++) {
        const float common = number(&seed) * 8;
        for (size_t j = 0; j < k; j++)
            x[i * k + j] = common + number(&seed) * (1 + (float)(j % 7));
    }
}

typedef struct bench {
    onq_env *env;
    oq_pool *pool;
    oq_linear linear;
} bench;

static void bench_begin(bench *b, unsigned threads, bool plain) {
    onq_error err = ONQ_ERROR_INIT;
    b->env = onq_env_new(NULL);
    assert_non_null(b->env);
    onq_env_set_threads(b->env, threads);
    assert_ok(oq_pool_new(b->env, &b->pool, &err), err);
    oq_linear_open(&b->linear, plain);
}

static void bench_end(bench *b) {
    oq_linear_close(&b->linear);
    oq_pool_free(b->pool);
    onq_env_free(b->env);
}

/* ---- linear algebra ---- */

static void check_linear(bool plain) {
    enum { SIDE = 9 };
    oq_linear l;
    double a[SIDE * SIDE], u[SIDE * SIDE], b[2 * SIDE], x[2 * SIDE];
    unsigned seed = 5;
    oq_linear_open(&l, plain);
    assert_true(!plain || l.name == NULL);
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = 0; j < SIDE; j++)
            a[i * SIDE + j] = a[j * SIDE + i] = i == j ? 10 + (double)i : (double)number(&seed);
    memcpy(u, a, sizeof u);
    assert_true(oq_linear_cholesky(&l, u, SIDE));
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = i; j < SIDE; j++) {
            double sum = 0;
            for (size_t k = 0; k <= i; k++)
                sum += u[k * SIDE + i] * u[k * SIDE + j];
            assert_true(fabs(sum - a[i * SIDE + j]) < 1e-12);
        }
    for (size_t i = 0; i < 2 * SIDE; i++)
        x[i] = b[i] = (double)number(&seed);
    oq_linear_solve(&l, u, SIDE, x, 2);
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; i < SIDE; i++) {
            double sum = 0;
            for (size_t j = 0; j < SIDE; j++)
                sum += a[i * SIDE + j] * x[r * SIDE + j];
            assert_true(fabs(sum - b[r * SIDE + i]) < 1e-12);
        }
    memcpy(u, a, sizeof u);
    assert_true(oq_linear_inverse_factor(&l, u, SIDE));
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = 0; j < SIDE; j++) {
            double sum = 0;
            for (size_t k = 0; k < SIDE; k++)
                for (size_t m = 0; m <= k && m <= j; m++)
                    sum += a[i * SIDE + k] * u[m * SIDE + k] * u[m * SIDE + j];
            assert_true(fabs(sum - (i == j ? 1 : 0)) < 1e-12);
        }
    float f[SIDE * SIDE];
    for (size_t i = 0; i < SIDE * SIDE; i++)
        f[i] = (float)a[i];
    assert_true(oq_linear_factor(&l, f, SIDE));
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = i; j < SIDE; j++) {
            float sum = 0;
            for (size_t k = 0; k <= i; k++)
                sum += f[k * SIDE + i] * f[k * SIDE + j];
            assert_true(fabs((double)sum - a[i * SIDE + j]) < 1e-4);
        }
    f[0] = -1;
    assert_false(oq_linear_factor(&l, f, SIDE));
    a[0] = -1;
    memcpy(u, a, sizeof u);
    assert_false(oq_linear_inverse_factor(&l, u, SIDE));
    assert_false(oq_linear_cholesky(&l, a, SIDE));
    oq_linear_close(&l);
}

/* OpenBLAS has its threads back when the last user is done, and not before. */
static void threads_come_back(void **state) {
    (void)state;
    int (*get)(void) = NULL;
    void (*set)(int) = NULL;
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        skip();
    *(void **)&get = dlsym(lib, "openblas_get_num_threads");
    *(void **)&set = dlsym(lib, "openblas_set_num_threads");
    oq_linear one, two, never = {0};
    set(2);
    assert_int_equal(get(), 2);
    oq_linear_open(&one, false);
    oq_linear_open(&two, false);
    assert_int_equal(get(), 1);
    oq_linear_close(&one);
    oq_linear_close(&never);
    assert_int_equal(get(), 1);
    oq_linear_close(&two);
    assert_int_equal(get(), 2);
    dlclose(lib);
}

static void plain_loops(void **state) {
    (void)state;
    check_linear(true);
}

static void library(void **state) {
    (void)state;
    check_linear(false);
}

static void products(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        const float a[6] = {1, 2, 3, 4, 5, 6}, b[4] = {1, 10, 100, 1000};
        const double da[6] = {1, 2, 3, 4, 5, 6}, db[4] = {1, 10, 100, 1000};
        float c[6];
        double d[6] = {0};
        oq_linear l;
        oq_linear_open(&l, plain != 0);
        oq_linear_product(&l, 3, 2, 2, a, 3, b, 2, c, 2); /* [2 x 3]^T [2 x 2] */
        oq_linear_subtract(&l, 3, 2, 2, da, 3, db, 2, d, 2);
        float sum[4] = {1, 1, 1, 1};
        oq_linear_add(&l, 2, 2, 2, a + 1, 3, b, 2, sum, 2); /* [[2, 3], [5, 6]] [2 x 2] + 1 */
        assert_true(sum[0] == 303 && sum[1] == 3021 && sum[2] == 606 && sum[3] == 6051);
        const float want[6] = {401, 4010, 502, 5020, 603, 6030};
        for (int i = 0; i < 6; i++) {
            assert_true(c[i] == want[i]);
            assert_true(d[i] == -(double)want[i]);
        }
        oq_linear_close(&l);
    }
}

/* ---- sums of products ---- */

static uint64_t memory = UINT64_MAX; /* for the matrices of a Hessian */

static void gather(bench *b, oq_hessian *h, const float *x, const float *y, size_t rows,
                   size_t at_once) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(
        oq_hessian_init(h, &b->linear, b->pool, &b->env->alloc, K, y != NULL ? K : 0, memory, &err),
        err);
    for (size_t i = 0; i < rows; i += at_once) {
        const size_t n = rows - i < at_once ? rows - i : at_once;
        assert_ok(oq_hessian_add(h, x + i * K, y != NULL ? y + i * K : NULL, n, K, &err), err);
    }
    assert_ok(oq_hessian_finish(h, &err), err);
}

static void sums_of_products(void **state) {
    enum { ROWS = 1100 };
    float *x = malloc(ROWS * K * sizeof *x);
    bench one, two;
    oq_hessian a, b;
    (void)state;
    assert_non_null(x);
    draw_inputs(x, ROWS, K, 3);
    bench_begin(&one, 1, false);
    bench_begin(&two, 3, false);
    gather(&one, &a, x, x, ROWS, ROWS);
    gather(&two, &b, x, x, ROWS, 7);
    assert_int_equal(a.rows, ROWS);
    assert_memory_equal(a.sum, b.sum, K * K * sizeof *a.sum);
    assert_memory_equal(a.cross, b.cross, K * K * sizeof *a.cross);
    for (size_t i = 0; i < K; i++)
        for (size_t j = 0; j < K; j++) {
            double sum = 0;
            for (size_t r = 0; r < ROWS; r++)
                sum += (double)x[r * K + i] * (double)x[r * K + j];
            assert_true(fabs(a.sum[i * K + j] - sum) < 1e-3 * (fabs(sum) + 1));
            assert_true(fabs(a.cross[i * K + j] - sum) < 1e-3 * (fabs(sum) + 1));
        }
    oq_hessian_release(&a);
    oq_hessian_release(&b);
    bench_end(&one);
    bench_end(&two);
    free(x);
}

/* ---- rounding ---- */

typedef struct fixture {
    bench b;
    oq_hessian h;
    float w[K * N], scale[K * N], zero[K * N];
    int32_t out[K * N];
    oq_round_grid grid;
    oq_round_job job;
} fixture;

static fixture *begin(unsigned threads, bool plain) {
    enum { ROWS = 600 };
    fixture *f = calloc(1, sizeof *f);
    float *x = malloc(ROWS * K * sizeof *x);
    unsigned seed = 11;
    assert_non_null(f);
    assert_non_null(x);
    bench_begin(&f->b, threads, plain);
    draw_inputs(x, ROWS, K, 3);
    gather(&f->b, &f->h, x, x, ROWS, ROWS);
    free(x);
    for (size_t i = 0; i < K * N; i++) {
        f->w[i] = number(&seed);
        f->scale[i] = 1.0f / 14;
        f->zero[i] = 8;
    }
    f->grid = (oq_round_grid){.lo = 0, .hi = 15, .rows = K, .scale = f->scale, .zero = f->zero};
    f->job = (oq_round_job){.k = K,
                            .n = N,
                            .w = f->w,
                            .hessian = &f->h,
                            .linear = &f->b.linear,
                            .pool = f->b.pool,
                            .alloc = &f->b.env->alloc,
                            .grid = &f->grid,
                            .damp = 0.01,
                            .out = f->out,
                            .want_error = true};
    return f;
}

static void end(fixture *f) {
    oq_hessian_release(&f->h);
    bench_end(&f->b);
    free(f);
}

static double solved(fixture *f) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_round(&f->job, &err), err);
    for (size_t i = 0; i < K * N; i++)
        assert_in_range(f->out[i], 0, 15);
    return f->job.error[1] / f->job.error[0];
}

static void lowers_the_error(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture *f = begin(2, plain != 0);
        const double gptq = solved(f);
        f->job.sweeps = 4;
        const double both = solved(f);
        f->job.no_gptq = true;
        const double descent = solved(f);
        f->job.no_gptq = false;
        f->job.act_order = true;
        const double ordered = solved(f);
        assert_true(gptq < 0.6);
        assert_true(both < gptq);
        assert_true(descent < 0.8);
        assert_true(ordered < 0.6);
        end(f);
    }
}

/* No damping is none: almost none gives the same, and the default something else. Where none is too
 * little, because two inputs are always the same, a little is added. */
static void damping(void **state) {
    (void)state;
    int32_t out[3][K * N];
    const double damps[3] = {0, 1e-13, 0.01};
    fixture *f = begin(1, true);
    for (int i = 0; i < 3; i++) {
        f->job.damp = damps[i];
        solved(f);
        memcpy(out[i], f->out, sizeof out[i]);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_not_equal(out[0], out[2], sizeof out[0]);
    for (size_t i = 0; i < K; i++) {
        f->h.sum[i * K + 1] = f->h.sum[i * K];
        f->h.sum[K + i] = f->h.sum[i];
    }
    f->h.sum[K + 1] = f->h.sum[0];
    f->job.damp = 0;
    solved(f);
    end(f);
}

/* Small blocks of rows between two updates change when things are computed, not what. */
static void blocks_of_updates(void **state) {
    (void)state;
    fixture *f = begin(1, false);
    int32_t first[K * N];
    f->job.block = K;
    solved(f);
    memcpy(first, f->out, sizeof first);
    f->job.block = 16;
    solved(f);
    size_t differ = 0;
    for (size_t i = 0; i < K * N; i++)
        differ += first[i] != f->out[i];
    assert_true(differ < K * N / 50); /* ties may fall the other way */
    end(f);
}

static void threads_do_not_matter(void **state) {
    (void)state;
    fixture *a = begin(1, false), *b = begin(3, false);
    a->job.sweeps = b->job.sweeps = 2;
    solved(a);
    solved(b);
    assert_memory_equal(a->out, b->out, sizeof a->out);
    assert_true(a->job.error[1] == b->job.error[1]);
    end(a);
    end(b);
}

/* Matrices that are larger than the memory for them lie in temporary files; the integers are the
 * same. */
static void files_do_not_matter(void **state) {
    (void)state;
    fixture *f[3];
    memory = 3 * K * K * sizeof(double);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            memory--;
        if (i == 2)
            memory = 0;
        f[i] = begin(2, false);
        f[i]->job.sweeps = 2;
        solved(f[i]);
        assert_int_equal(f[i]->h.paged, i > 0);
        assert_memory_equal(f[0]->out, f[i]->out, sizeof f[0]->out);
    }
    memory = UINT64_MAX;
    for (int i = 0; i < 3; i++)
        end(f[i]);
}

/* Without a Hessian every weight goes to the integer next to it. */
static void to_the_nearest(void **state) {
    (void)state;
    fixture *f = begin(1, false);
    onq_error err = ONQ_ERROR_INIT;
    f->job.hessian = NULL;
    assert_ok(oq_round(&f->job, &err), err);
    for (size_t i = 0; i < K * N; i++)
        assert_true(fabsf((float)(f->out[i] - 8) / 14 - f->w[i]) <= 0.5f / 14 + 1e-6f);
    end(f);
}

/* Integers 0 to 15 over the magnitude of the weights. */
static void fit_magnitude(void *ctx, const double *w, size_t row, size_t n, size_t cols,
                          size_t stride, float *scale, float *zero) {
    (void)row;
    for (size_t c = 0; c < cols; c++) {
        double most = 0;
        for (size_t i = 0; i < n; i++)
            most = fmax(most, fabs(w[i * stride + c]));
        scale[c] = (float)(most * *(const double *)ctx / 7.5);
        zero[c] = 8;
    }
}

/* Scales found on the way, for blocks of rows, of the whole range or a narrower one. */
static void scales_of_blocks(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        fixture *f = begin(2, false);
        double part = (i & 1) != 0 ? 0.9 : 1;
        f->grid.rows = 32;
        f->job.fit = fit_magnitude;
        f->job.fit_ctx = &part;
        f->job.act_order = (i & 2) != 0;
        assert_true(solved(f) < 0.7);
        for (size_t c = 0; c < 3 * N; c++)
            assert_true(f->scale[c] > 0 && f->scale[c] <= 1.0f / 14);
        assert_true(f->scale[3 * N] == 1.0f / 14); /* there is no fourth block */
        end(f);
    }
}

/* Scales that move with the integers lower the error further; zero points that need not be integers
 * once more. The integers do not depend on the threads. */
static void scales_that_move(void **state) {
    (void)state;
    double error[3];
    int32_t out[K * N];
    for (int i = 0; i < 4; i++) {
        fixture *f = begin(i == 3 ? 1 : 2, false);
        double part = 1;
        f->grid.rows = 32;
        f->grid.real = OQ_FLOAT;
        f->grid.real_zero = i > 1;
        f->job.fit = fit_magnitude;
        f->job.fit_ctx = &part;
        f->job.sweeps = 3;
        f->job.refit = i > 0;
        solved(f);
        if (i < 3)
            error[i] = f->job.error[1];
        else
            assert_memory_equal(out, f->out, sizeof out);
        memcpy(out, f->out, sizeof out);
        for (size_t c = 0; c < N; c++)
            assert_true(i > 1 || f->zero[c] == 8);
        end(f);
    }
    assert_true(error[1] < 0.97 * error[0]);
    assert_true(error[2] < 0.97 * error[1]);
}

/* ---- the target ---- */

/* Inputs that came out too small by a tenth want weights that are larger by a ninth. */
static void weights_for_other_inputs(void **state) {
    enum { ROWS = 600 };
    (void)state;
    bench b;
    oq_hessian h;
    onq_error err = ONQ_ERROR_INIT;
    float *x = malloc(2 * ROWS * K * sizeof *x), w[K], out[K];
    unsigned seed = 2;
    assert_non_null(x);
    bench_begin(&b, 2, false);
    draw_inputs(x, ROWS, K, 3);
    for (size_t i = 0; i < ROWS * K; i++)
        x[ROWS * K + i] = x[i] / 0.9f;
    gather(&b, &h, x, x + ROWS * K, ROWS, ROWS);
    for (size_t i = 0; i < K; i++)
        w[i] = number(&seed);
    assert_ok(oq_round_target(&h, w, 1, 1e-9, out, &err), err);
    for (size_t i = 0; i < K; i++)
        assert_true(fabsf(out[i] - w[i] / 0.9f) < 1e-3f);
    assert_ok(oq_round_target(&h, w, 1, 1e9, out, &err), err);
    for (size_t i = 0; i < K; i++)
        assert_true(fabsf(out[i] - w[i]) < 1e-3f);
    oq_hessian_release(&h);
    bench_end(&b);
    free(x);
}

/* Outputs by hand, of two that the second side has: with the inputs 1, 2 and 3 of one channel the
 * first should be 3, 5 and 10 and the second -1, -2 and -3. 43/14 and -1 come nearest; a ridge as
 * large as the sum of squares goes half of the way from a weight of 1. */
static void weights_for_wanted_outputs(void **state) {
    (void)state;
    static const float x[] = {1, 2, 3}, y[] = {3, -1, 5, -2, 10, -3}, w[] = {1, 1};
    float out[2];
    bench b;
    oq_hessian h;
    onq_error err = ONQ_ERROR_INIT;
    bench_begin(&b, 1, false);
    assert_ok(oq_hessian_init(&h, &b.linear, b.pool, &b.env->alloc, 1, 2, UINT64_MAX, &err), err);
    assert_ok(oq_hessian_add(&h, x, y, 3, 1, &err), err);
    assert_ok(oq_hessian_finish(&h, &err), err);
    assert_true(h.sum[0] == 14 && h.cross[0] == 43 && h.cross[1] == -14);
    assert_ok(oq_round_target_outputs(&h, w, 0, 2, 0, out, &err), err);
    assert_true(fabsf(out[0] - 43.0f / 14) < 1e-6f && fabsf(out[1] + 1) < 1e-6f);
    assert_ok(oq_round_target_outputs(&h, w, 1, 1, 1, out, &err), err);
    assert_true(fabsf(out[0]) < 1e-6f);
    oq_hessian_release(&h);
    bench_end(&b);
}

/* ---- in float32, from the last input to the first ---- */

#define WIDE 200 /* columns: more than one task has, and inputs of more than one block */

typedef struct planes {
    bench b;
    oq_hessian h;
    oq_plane plane;
    float *w, scale[WIDE], zero[WIDE];
    int32_t *out;
    oq_plane_job job;
} planes;

static planes *begin_plane(unsigned threads, bool plain) {
    enum { ROWS = 600 };
    planes *f = calloc(1, sizeof *f);
    float *x = malloc(ROWS * K * sizeof *x);
    unsigned seed = 11;
    onq_error err = ONQ_ERROR_INIT;
    assert_non_null(f);
    assert_non_null(x);
    bench_begin(&f->b, threads, plain);
    draw_inputs(x, ROWS, K, 3);
    gather(&f->b, &f->h, x, NULL, ROWS, ROWS);
    free(x);
    assert_ok(oq_plane_init(&f->plane, &f->h, 0.01, &err), err);
    f->w = malloc(K * WIDE * sizeof *f->w);
    f->out = malloc(K * WIDE * sizeof *f->out);
    assert_non_null(f->w);
    assert_non_null(f->out);
    for (size_t i = 0; i < K * WIDE; i++)
        f->w[i] = number(&seed);
    for (size_t i = 0; i < WIDE; i++) {
        f->scale[i] = (1 + (float)(i % 5)) / 14;
        f->zero[i] = i % 2 == 0 ? 8 : 7;
    }
    f->job = (oq_plane_job){.plane = &f->plane,
                            .pool = f->b.pool,
                            .alloc = &f->b.env->alloc,
                            .k = K,
                            .n = WIDE,
                            .w = f->w,
                            .scale = f->scale,
                            .zero = f->zero,
                            .lo = 0,
                            .hi = 15,
                            .out = f->out};
    return f;
}

static void end_plane(planes *f) {
    oq_plane_release(&f->plane);
    oq_hessian_release(&f->h);
    bench_end(&f->b);
    free(f->w);
    free(f->out);
    free(f);
}

/* d^T H d of all columns. */
static double plane_error(const planes *f) {
    double sum = 0;
    for (size_t c = 0; c < WIDE; c++) {
        double d[K];
        for (size_t i = 0; i < K; i++)
            d[i] = (double)f->w[i * WIDE + c] -
                   (double)f->scale[c] * ((double)f->out[i * WIDE + c] - (double)f->zero[c]);
        for (size_t i = 0; i < K; i++)
            for (size_t j = 0; j < K; j++)
                sum += d[i] * f->h.sum[i * K + j] * d[j];
    }
    return sum;
}

static double round_plane(planes *f, const oq_plane *plane) {
    onq_error err = ONQ_ERROR_INIT;
    f->job.plane = plane;
    assert_ok(oq_plane_round(&f->job, &err), err);
    for (size_t i = 0; i < K * WIDE; i++)
        assert_in_range(f->out[i], 0, 15);
    return plane_error(f);
}

/* It does what GPTQ does in the order of the inputs, with and without a library. */
static void planes_are_gptq(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        planes *f = begin_plane(2, plain != 0);
        const double nearest = round_plane(f, NULL), plane = round_plane(f, &f->plane);
        onq_error err = ONQ_ERROR_INIT;
        oq_round_grid grid = {.lo = 0, .hi = 15, .rows = K, .scale = f->scale, .zero = f->zero};
        oq_round_job job = {.k = K,
                            .n = WIDE,
                            .w = f->w,
                            .hessian = &f->h,
                            .linear = &f->b.linear,
                            .pool = f->b.pool,
                            .alloc = &f->b.env->alloc,
                            .grid = &grid,
                            .damp = 0.01,
                            .act_order = true,
                            .out = f->out};
        assert_ok(oq_round(&job, &err), err);
        const double gptq = plane_error(f);
        assert_true(plane < 0.6 * nearest);
        assert_true(fabs(plane - gptq) < 0.002 * gptq);
        end_plane(f);
    }
}

static void threads_of_planes(void **state) {
    (void)state;
    planes *one = begin_plane(1, false), *three = begin_plane(3, false);
    round_plane(one, &one->plane);
    round_plane(three, &three->plane);
    assert_memory_equal(one->out, three->out, K * WIDE * sizeof *one->out);
    end_plane(one);
    end_plane(three);
}

/* Inputs that were never seen leave the nearest integers, also far beyond what floats hold; two that
 * are always the same need some damping; and what is no number is refused. */
static void planes_of_odd_inputs(void **state) {
    (void)state;
    planes *f = begin_plane(1, false);
    oq_plane p;
    onq_error err = ONQ_ERROR_INIT;
    for (size_t i = 0; i < K * K; i++)
        f->h.sum[i] *= 1e200;
    assert_ok(oq_plane_init(&p, &f->h, 0.01, &err), err);
    assert_true(round_plane(f, &p) > 0);
    oq_plane_release(&p);
    for (size_t i = 0; i < K * K; i++)
        f->h.sum[i] = 1;
    assert_ok(oq_plane_init(&p, &f->h, 0, &err), err);
    oq_plane_release(&p);
    memset(f->h.sum, 0, K * K * sizeof *f->h.sum);
    assert_ok(oq_plane_init(&p, &f->h, 0.01, &err), err);
    round_plane(f, &p);
    oq_plane_release(&p);
    for (size_t i = 0; i < K * WIDE; i++) {
        const float q = f->w[i] / f->scale[i % WIDE] + f->zero[i % WIDE];
        assert_true(fabsf((float)f->out[i] - fminf(15, fmaxf(0, q))) <= 0.5f + 1e-5f);
    }
    f->h.sum[0] = NAN;
    assert_fails(oq_plane_init(&p, &f->h, 0.01, &err), ONQ_E_INVALID, err, "not finite");
    end_plane(f);
}

static onq_code plane_body(const onq_allocator *a, void *ctx, onq_error *err) {
    planes *f = ctx;
    oq_plane p;
    oq_hessian h = f->h;
    oq_plane_job job = f->job;
    h.alloc = a;
    OQ_TRY(oq_plane_init(&p, &h, 0.01, err));
    job.plane = &p;
    job.alloc = a;
    const onq_code rc = oq_plane_round(&job, err);
    oq_plane_release(&p);
    return rc;
}

static void planes_without_memory(void **state) {
    (void)state;
    planes *f = begin_plane(1, false);
    assert_true(flaky_sweep(plane_body, f) >= 4);
    end_plane(f);
}

/* ---- inputs that say nothing, memory ---- */

static void dead_and_broken_inputs(void **state) {
    (void)state;
    fixture *f = begin(1, false);
    onq_error err = ONQ_ERROR_INIT;
    memset(f->h.sum, 0, K * K * sizeof *f->h.sum);
    assert_ok(oq_round(&f->job, &err), err);
    for (size_t i = 0; i < K * N; i++)
        assert_true(fabsf((float)(f->out[i] - 8) / 14 - f->w[i]) <= 0.5f / 14 + 1e-6f);
    f->h.sum[0] = NAN;
    assert_fails(oq_round(&f->job, &err), ONQ_E_INVALID, err, "not finite");
    end(f);
}

/* Stops at the *ctx-th report. */
static int stop_at(void *ctx, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    assert_true(done <= total);
    return --*(int *)ctx == 0;
}

/* Whoever waits can end it: when the inverse is made, and between columns. */
static void stopped(void **state) {
    (void)state;
    for (int at = 1; at <= 2; at++) {
        fixture *f = begin(1, false);
        int left = at;
        onq_error err = ONQ_ERROR_INIT;
        onq_env_set_progress(f->b.env, stop_at, &left);
        f->job.env = f->b.env;
        assert_fails(oq_round(&f->job, &err), ONQ_E_CANCEL, err, "cancelled");
        end(f);
    }
}

static onq_code sweep_body(const onq_allocator *a, void *ctx, onq_error *err) {
    fixture *f = ctx;
    oq_hessian h;
    float out[K * N];
    OQ_TRY(oq_hessian_init(&h, &f->b.linear, f->b.pool, a, K, K, UINT64_MAX, err));
    onq_code rc = oq_hessian_add(&h, f->w, f->w, N, K, err);
    if (rc == ONQ_OK)
        rc = oq_hessian_finish(&h, err);
    if (rc == ONQ_OK)
        rc = oq_round_target(&h, f->w, N, 0.3, out, err);
    oq_round_job job = f->job;
    job.hessian = &h;
    job.alloc = a;
    job.act_order = true;
    if (rc == ONQ_OK)
        rc = oq_round(&job, err);
    oq_hessian_release(&h);
    return rc;
}

static void every_allocation_fails(void **state) {
    (void)state;
    fixture *f = begin(1, false);
    assert_true(flaky_sweep(sweep_body, f) > 8);
    end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_loops),
                                       cmocka_unit_test(library),
                                       cmocka_unit_test(threads_come_back),
                                       cmocka_unit_test(products),
                                       cmocka_unit_test(sums_of_products),
                                       cmocka_unit_test(lowers_the_error),
                                       cmocka_unit_test(damping),
                                       cmocka_unit_test(blocks_of_updates),
                                       cmocka_unit_test(threads_do_not_matter),
                                       cmocka_unit_test(to_the_nearest),
                                       cmocka_unit_test(scales_of_blocks),
                                       cmocka_unit_test(scales_that_move),
                                       cmocka_unit_test(weights_for_other_inputs),
                                       cmocka_unit_test(weights_for_wanted_outputs),
                                       cmocka_unit_test(planes_are_gptq),
                                       cmocka_unit_test(threads_of_planes),
                                       cmocka_unit_test(planes_of_odd_inputs),
                                       cmocka_unit_test(planes_without_memory),
                                       cmocka_unit_test(dead_and_broken_inputs),
                                       cmocka_unit_test(stopped),
                                       cmocka_unit_test(files_do_not_matter),
                                       cmocka_unit_test(every_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
