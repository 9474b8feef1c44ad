/*
 * linear.c — see linear.h. Fortran has matrices column by column: what it calls the lower triangle
 * is our upper one, and it sees every matrix transposed.
 */
#include "quantize/rounding/linear.h"

#include "base/os.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* ---- the library ---- */

/* A setting of the process needs a count of the process: jobs of several environments may run at
 * once, and the last one restores it. */
static struct {
    pthread_mutex_t lock;
    size_t n_users;
    int before;
} threads = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool find(void *lib, const char *name, void *out) {
    void *f = oq_os_symbol(lib, name);
    memcpy(out, &f, sizeof f);
    return f != NULL;
}

static void use_one_thread(oq_linear *l, void *lib) {
    int (*get_threads)(void) = NULL;
    if (!find(lib, "openblas_get_num_threads", &get_threads) ||
        !find(lib, "openblas_set_num_threads", &l->set_threads))
        return;
    pthread_mutex_lock(&threads.lock);
    if (threads.n_users++ == 0)
        threads.before = get_threads();
    l->set_threads(1);
    pthread_mutex_unlock(&threads.lock);
}

void oq_linear_close(oq_linear *l) {
    if (l->set_threads != NULL) {
        pthread_mutex_lock(&threads.lock);
        assert(threads.n_users > 0);
        if (--threads.n_users == 0)
            l->set_threads(threads.before);
        pthread_mutex_unlock(&threads.lock);
    }
    *l = (oq_linear){0};
}

void oq_linear_open(oq_linear *l, bool plain) {
    *l = (oq_linear){0};
    for (const char *const *name = oq_os_linear_libraries; *name != NULL && !plain; name++) {
        oq_linear o = {.name = *name};
        /* It keeps threads of its own: never unloaded. */
        void *lib = oq_os_library_for_good(*name);
        if (lib == NULL)
            continue;
        if (find(lib, "dpotrf_", &o.potrf) && find(lib, "spotrf_", &o.spotrf) &&
            find(lib, "dtrtri_", &o.trtri) && find(lib, "dpotrs_", &o.potrs) &&
            find(lib, "dgemm_", &o.dgemm) && find(lib, "sgemm_", &o.sgemm)) {
            use_one_thread(&o, lib);
            *l = o;
        }
        oq_os_library_close(lib);
        if (l->name != NULL)
            return;
    }
}

/* ---- plain loops ---- */

static bool plain_cholesky(double *a, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double *row = a + i * n;
        if (!(row[i] > 0) || !isfinite(row[i]))
            return false;
        const double d = sqrt(row[i]);
        for (size_t j = i; j < n; j++)
            row[j] /= d;
        for (size_t k = i + 1; k < n; k++) {
            const double f = row[k];
            double *below = a + k * n;
#pragma omp simd
            for (size_t j = k; j < n; j++)
                below[j] -= f * row[j];
        }
    }
    return true;
}

static bool plain_factor(float *a, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float *row = a + i * n;
        if (!(row[i] > 0) || !isfinite(row[i]))
            return false;
        const float d = sqrtf(row[i]);
        for (size_t j = i; j < n; j++)
            row[j] /= d;
        for (size_t k = i + 1; k < n; k++) {
            const float f = row[k];
            float *below = a + k * n;
#pragma omp simd
            for (size_t j = k; j < n; j++)
                below[j] -= f * row[j];
        }
    }
    return true;
}

/* U becomes its own inverse. */
static void plain_invert(double *u, size_t n) {
    for (size_t j = n; j-- > 0;) { /* row j, from the rows below it */
        double *row = u + j * n;
        const double d = 1 / row[j];
        for (size_t k = n; k-- > j + 1;) {
            double sum = 0;
            for (size_t i = j + 1; i <= k; i++)
                sum += row[i] * u[i * n + k];
            /* row[i] for i <= k is still U's: columns are done from the last on. */
            row[k] = -d * sum;
        }
        row[j] = d;
    }
}

static void plain_solve(const double *u, size_t n, double *b) {
    for (size_t i = 0; i < n; i++) { /* U^T y = b */
        b[i] /= u[i * n + i];
        const double f = b[i];
        for (size_t j = i + 1; j < n; j++)
            b[j] -= f * u[i * n + j];
    }
    for (size_t i = n; i-- > 0;) { /* U x = y */
        double sum = b[i];
        for (size_t j = i + 1; j < n; j++)
            sum -= u[i * n + j] * b[j];
        b[i] = sum / u[i * n + i];
    }
}

/* ---- either ---- */

bool oq_linear_cholesky(const oq_linear *l, double *a, size_t n) {
    assert(n > 0 && n <= OQ_MAX_LINEAR);
    if (l->potrf == NULL)
        return plain_cholesky(a, n);
    const int side = (int)n;
    int info = 0;
    l->potrf("L", &side, a, &side, &info, 1);
    return info == 0;
}

bool oq_linear_factor(const oq_linear *l, float *a, size_t n) {
    assert(n > 0 && n <= OQ_MAX_LINEAR);
    if (l->spotrf == NULL)
        return plain_factor(a, n);
    const int side = (int)n;
    int info = 0;
    l->spotrf("L", &side, a, &side, &info, 1);
    return info == 0;
}

static bool invert(const oq_linear *l, double *u, size_t n) {
    if (l->trtri == NULL) {
        plain_invert(u, n);
        return true;
    }
    const int side = (int)n;
    int info = 0;
    l->trtri("L", "N", &side, u, &side, &info, 1, 1);
    return info == 0;
}

/* The upper triangle, mirrored at the diagonal from its lower left to its upper right. */
static void mirror(double *a, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; i + j + 1 < n; j++) {
            double *x = a + i * n + j, *y = a + (n - 1 - j) * n + (n - 1 - i), was = *x;
            *x = *y;
            *y = was;
        }
}

/* With J, which turns the order of rows around: J a J = C^T C, so the inverse of a is U^T U with
 * U = J C^-T J. That is half of the work of inverting a, and then finding the factor. */
bool oq_linear_inverse_factor(const oq_linear *l, double *a, size_t n) {
    mirror(a, n);
    if (!oq_linear_cholesky(l, a, n) || !invert(l, a, n))
        return false;
    mirror(a, n);
    return true;
}

void oq_linear_solve(const oq_linear *l, const double *u, size_t n, double *b, size_t m) {
    if (l->potrs == NULL) {
        for (size_t i = 0; i < m; i++)
            plain_solve(u, n, b + i * n);
        return;
    }
    const int side = (int)n, rows = (int)m;
    int info = 0;
    l->potrs("L", &side, &rows, u, &side, b, &side, &info, 1);
}

void oq_linear_subtract(const oq_linear *l, size_t m, size_t n, size_t k, const double *a,
                        size_t lda, const double *b, size_t ldb, double *c, size_t ldc) {
    if (m == 0 || n == 0 || k == 0)
        return;
    if (l->dgemm != NULL) {
        const int im = (int)m, in = (int)n, ik = (int)k, ia = (int)lda, ib = (int)ldb,
                  ic = (int)ldc;
        const double minus = -1, one = 1;
        l->dgemm("N", "T", &in, &im, &ik, &minus, b, &ib, a, &ia, &one, c, &ic, 1, 1);
        return;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t q = 0; q < k; q++) {
            const double f = a[q * lda + i];
            const double *from = b + q * ldb;
            double *to = c + i * ldc;
#pragma omp simd
            for (size_t j = 0; j < n; j++)
                to[j] -= f * from[j];
        }
}

void oq_linear_product(const oq_linear *l, size_t m, size_t n, size_t k, const float *a, size_t lda,
                       const float *b, size_t ldb, float *c, size_t ldc) {
    if (m == 0 || n == 0)
        return;
    if (l->sgemm != NULL && k > 0) {
        const int im = (int)m, in = (int)n, ik = (int)k, ia = (int)lda, ib = (int)ldb,
                  ic = (int)ldc;
        const float one = 1, none = 0;
        l->sgemm("N", "T", &in, &im, &ik, &one, b, &ib, a, &ia, &none, c, &ic, 1, 1);
        return;
    }
    for (size_t i = 0; i < m; i++) {
        float *to = c + i * ldc;
        memset(to, 0, n * sizeof *to);
        for (size_t q = 0; q < k; q++) {
            const float f = a[q * lda + i];
            const float *from = b + q * ldb;
#pragma omp simd
            for (size_t j = 0; j < n; j++)
                to[j] += f * from[j];
        }
    }
}

void oq_linear_add(const oq_linear *l, size_t m, size_t n, size_t k, const float *a, size_t lda,
                   const float *b, size_t ldb, float *c, size_t ldc) {
    if (m == 0 || n == 0 || k == 0)
        return;
    if (l->sgemm != NULL) {
        const int im = (int)m, in = (int)n, ik = (int)k, ia = (int)lda, ib = (int)ldb,
                  ic = (int)ldc;
        const float one = 1;
        l->sgemm("N", "N", &in, &im, &ik, &one, b, &ib, a, &ia, &one, c, &ic, 1, 1);
        return;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t q = 0; q < k; q++) {
            const float f = a[i * lda + q];
            const float *from = b + q * ldb;
            float *to = c + i * ldc;
#pragma omp simd
            for (size_t j = 0; j < n; j++)
                to[j] += f * from[j];
        }
}
