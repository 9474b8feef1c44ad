/*
 * hessian.c — see hessian.h.
 */
#include "quantize/rounding/hessian.h"

#define TILE 256

static size_t tiles_of(size_t k) {
    return (k + TILE - 1) / TILE;
}

/* Numbers of one worker's tile. */
static size_t tile_size(const oq_hessian *h) {
    const size_t most = h->k > h->m ? h->k : h->m;
    return most < TILE ? most * most : (size_t)TILE * TILE;
}

onq_code oq_hessian_matrix(const oq_hessian *h, size_t n, oq_matrix *out, onq_error *err) {
    *out = (oq_matrix){.n = n};
    if (h->paged) {
        OQ_TRY(oq_temp_memory_make(&out->paged, n * sizeof *out->v, err));
        out->v = out->paged.p;
        return ONQ_OK;
    }
    out->v = oq_calloc(h->alloc, n, sizeof *out->v);
    return out->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

void oq_hessian_matrix_release(const oq_hessian *h, oq_matrix *m) {
    if (m->paged.p != NULL)
        oq_temp_memory_release(&m->paged);
    else if (m->v != NULL)
        oq_free(h->alloc, m->v, m->n * sizeof *m->v);
    *m = (oq_matrix){0};
}

/* The matrices of the Hessian, and the one that it is solved by. */
static bool is_large(size_t k, size_t m, uint64_t memory) {
    return (2 * k + m) * sizeof(double) > memory / k; /* OQ_MAX_LINEAR squared passes nothing */
}

onq_code oq_hessian_init(oq_hessian *h, const oq_linear *linear, oq_pool *pool,
                         const onq_allocator *alloc, size_t k, size_t m, uint64_t memory,
                         onq_error *err) {
    *h = (oq_hessian){.linear = linear, .pool = pool, .alloc = alloc, .k = k, .m = m};
    if (k == 0 || k > OQ_MAX_LINEAR)
        return oq_fail(err, ONQ_E_LIMIT, "a layer of %zu inputs; 1 to %d can be solved", k,
                       OQ_MAX_LINEAR);
    h->paged = is_large(k, m, memory);
    onq_code rc = oq_hessian_matrix(h, k * k, &h->room[0], err);
    if (rc == ONQ_OK && m > 0)
        rc = oq_hessian_matrix(h, m * k, &h->room[1], err);
    h->sum = h->room[0].v;
    h->cross = h->room[1].v;
    h->x = oq_calloc(alloc, OQ_HESSIAN_ROWS * k, sizeof *h->x);
    h->tile = oq_calloc(alloc, oq_pool_workers(pool) * tile_size(h), sizeof *h->tile);
    if (m > 0)
        h->y = oq_calloc(alloc, OQ_HESSIAN_ROWS * m, sizeof *h->y);
    if (rc == ONQ_OK && (h->x == NULL || h->tile == NULL || (m > 0 && h->y == NULL)))
        rc = oq_fail_nomem(err);
    if (rc != ONQ_OK)
        oq_hessian_release(h);
    return rc;
}

static void free_block(oq_hessian *h) {
    oq_free(h->alloc, h->x, OQ_HESSIAN_ROWS * h->k * sizeof *h->x);
    oq_free(h->alloc, h->y, OQ_HESSIAN_ROWS * h->m * sizeof *h->y);
    if (h->tile != NULL)
        oq_free(h->alloc, h->tile, oq_pool_workers(h->pool) * tile_size(h) * sizeof *h->tile);
    h->x = h->y = h->tile = NULL;
}

void oq_hessian_release(oq_hessian *h) {
    if (h->alloc == NULL)
        return;
    free_block(h);
    oq_hessian_matrix_release(h, &h->room[0]);
    oq_hessian_matrix_release(h, &h->room[1]);
    *h = (oq_hessian){0};
}

/* ---- a block ---- */

/* One tile of the sum of y x^T, where a row of y has `height` numbers. */
static void add_tile(oq_hessian *h, const float *y, size_t height, double *sum, size_t row,
                     size_t col, unsigned worker) {
    const size_t k = h->k, m = height - row < TILE ? height - row : TILE,
                 n = k - col < TILE ? k - col : TILE;
    float *tile = h->tile + worker * tile_size(h);
    oq_linear_product(h->linear, m, n, h->gathered, y + row, height, h->x + col, k, tile, n);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            sum[(row + i) * k + col + j] += (double)tile[i * n + j];
}

/* Tile i of the two; those of the lower half of the first have nothing to do. */
static onq_code tile_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    oq_hessian *h = ctx;
    const size_t n = tiles_of(h->k), row = i / n, col = i % n;
    (void)err;
    if (row >= n)
        add_tile(h, h->y, h->m, h->cross, (row - n) * TILE, col * TILE, worker);
    else if (col >= row)
        add_tile(h, h->x, h->k, h->sum, row * TILE, col * TILE, worker);
    return ONQ_OK;
}

static onq_code add_block(oq_hessian *h, onq_error *err) {
    const size_t n = tiles_of(h->k);
    if (h->gathered == 0)
        return ONQ_OK;
    OQ_TRY(oq_pool_run(h->pool, (n + tiles_of(h->m)) * n, tile_task, h, err));
    h->gathered = 0;
    return ONQ_OK;
}

static void copy_row(float *to, const float *from, size_t k) {
    for (size_t i = 0; i < k; i++)
        to[i] = isfinite(from[i]) ? from[i] : 0.0f;
}

onq_code oq_hessian_add(oq_hessian *h, const float *x, const float *y, size_t n, size_t ld,
                        onq_error *err) {
    assert((y != NULL) == (h->cross != NULL));
    assert(h->x != NULL); /* not finished */
    for (size_t i = 0; i < n; i++) {
        copy_row(h->x + h->gathered * h->k, x + i * ld, h->k);
        if (y != NULL)
            copy_row(h->y + h->gathered * h->m, y + i * h->m, h->m);
        h->rows++;
        if (++h->gathered == OQ_HESSIAN_ROWS)
            OQ_TRY(add_block(h, err));
    }
    return ONQ_OK;
}

onq_code oq_hessian_finish(oq_hessian *h, onq_error *err) {
    OQ_TRY(add_block(h, err));
    free_block(h);
    for (size_t i = 0; i < h->k; i++)
        for (size_t j = 0; j < i; j++)
            h->sum[i * h->k + j] = h->sum[j * h->k + i];
    return ONQ_OK;
}
