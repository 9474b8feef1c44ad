/*
 * nb_task.c — weights as panels of floats, results as packed integers.
 */
#include "quantize/nbits/nb_import.h"
#include "quantize/nbits/nb_panel.h"

#include "base/text/real.h"
#include "quantize/number/qweight.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Blocks of one column tile that are made one after another: their integers share cache lines. */
#define BLOCKS_TOGETHER 4

/* ---- set up ---- */

onq_code oq_nb_task_init(oq_nb_task *t, oq_model *m, oq_tensor *w, uint64_t batch, uint64_t k,
                         uint64_t n, bool turned, onq_error *err) {
    *t = (oq_nb_task){.name = w->name,
                      .real = (oq_dtype)w->data_type.v,
                      .batch = batch,
                      .k = k,
                      .n = n,
                      .stride_k = turned ? 1 : n,
                      .stride_n = turned ? k : 1,
                      .ratio = 1.0,
                      .alloc = &m->env->alloc};
    return oq_weight_find(m, w, &t->data, &t->file, err);
}

/* Bytes of `count` integers as MatMulNBits takes them. */
static uint64_t packed(const oq_nb_task *t, uint64_t count) {
    const uint64_t per = 8 / t->wide;
    return count / per + (count % per != 0);
}

static uint64_t real_size(oq_dtype real) {
    return real == OQ_FLOAT ? 4 : 2;
}

onq_code oq_nb_task_measure(oq_nb_task *t, onq_error *err) {
    uint64_t columns, count, params, padded;
    t->wide = t->wide > t->bits ? t->wide : t->bits;
    t->stored = t->stored != 0 ? t->stored : t->real;
    assert(t->block > 0 && (t->wide == 2 || t->wide == 4 || t->wide == 8));
    t->blocks = t->k / t->block + (t->k % t->block != 0);
    if (!oq_mul(t->batch, t->n, &columns) || !oq_mul(columns, t->k, &count) ||
        !oq_mul(columns, t->blocks, &params) || !oq_mul(params, t->block, &padded) ||
        padded > (uint64_t)INT64_MAX / 4)
        return oq_fail(err, ONQ_E_LIMIT, "weight '%.*s' is too large", OQ_STR(t->name));
    t->size[OQ_NB_Q] = t->by_columns ? columns * t->blocks * packed(t, t->block) : packed(t, count);
    t->size[OQ_NB_Q] = t->size[OQ_NB_Q] / t->wide * t->bits + t->size[OQ_NB_Q] % t->wide;
    t->size[OQ_NB_SCALE] = params * real_size(t->stored);
    t->size[OQ_NB_ZEROS] = t->zero == OQ_NB_ZERO_NONE  ? 0
                           : t->zero != OQ_NB_ZERO_INT ? params * real_size(t->stored)
                           : t->by_columns             ? columns * packed(t, t->blocks)
                                                       : packed(t, params);
    return ONQ_OK;
}

/* ---- reading ---- */

/* Gives back the pages of the elements [from, to). */
static void drop(const oq_nb_task *t, uint64_t from, uint64_t to) {
    if (t->from != NULL)
        return;
    oq_weight_drop(t->file, t->data, from * real_size(t->real), to * real_size(t->real));
}

onq_code oq_nb_panel_init(oq_nb_panel *p, const oq_nb_task *t, onq_error *err) {
    uint64_t cells;
    *p = (oq_nb_panel){0};
    if (!oq_mul(t->block, OQ_NB_TILE, &cells) || cells > SIZE_MAX / 8)
        return oq_fail(err, ONQ_E_LIMIT, "weight '%.*s' is too large", OQ_STR(t->name));
    p->room = oq_alloc(t->alloc, cells * sizeof(float));
    p->q = oq_alloc(t->alloc, cells);
    if (p->room == NULL || p->q == NULL) {
        oq_nb_panel_release(p, t);
        return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

void oq_nb_panel_release(oq_nb_panel *p, const oq_nb_task *t) {
    const size_t cells = (size_t)t->block * OQ_NB_TILE;
    if (p->room != NULL)
        oq_free(t->alloc, p->room, cells * sizeof(float));
    if (p->q != NULL)
        oq_free(t->alloc, p->q, cells);
    p->room = NULL;
    p->q = NULL;
}

static void load_rows(const oq_nb_task *t, oq_nb_panel *p, uint64_t first, size_t rows) {
    const uint8_t *at = t->data.p + first * 4;
    if (t->real == OQ_FLOAT && (uintptr_t)at % sizeof(float) == 0 && rows == p->rows) {
        p->x = (const float *)(const void *)at;
        p->stride = (size_t)t->stride_k;
        return;
    }
    for (size_t r = 0; r < rows; r++)
        oq_reals_read(t->real, t->data.p, first + r * t->stride_k, p->cols,
                      p->room + r * OQ_NB_TILE);
    p->x = p->room;
    p->stride = OQ_NB_TILE;
}

static void load_turned(const oq_nb_task *t, oq_nb_panel *p, uint64_t first, size_t rows) {
    float column[256];
    for (size_t c = 0; c < p->cols; c++)
        for (size_t r = 0; r < rows;) {
            const size_t now = rows - r < OQ_COUNT(column) ? rows - r : OQ_COUNT(column);
            if (t->from != NULL)
                oq_nb_source_read(t->from, p->n0 + c, p->b * t->block + r, now, column);
            else
                oq_reals_read(t->real, t->data.p, first + c * t->stride_n + r, now, column);
            for (size_t i = 0; i < now; i++)
                p->room[(r + i) * OQ_NB_TILE + c] = column[i];
            r += now;
        }
    p->x = p->room;
    p->stride = OQ_NB_TILE;
}

static bool are_finite(const float *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint32_t) !(fabsf(x[i]) <= FLT_MAX);
    return bad == 0;
}

static onq_code fail_at(const oq_nb_task *t, const oq_nb_panel *p, size_t r, size_t c,
                        onq_error *err) {
    const oq_nb_source *from = t->from;
    return oq_fail(err, ONQ_E_INVALID,
                   "weight '%.*s'%s%s holds %s in row %llu, column %llu (leave its node out with "
                   "--nodes_to_exclude)",
                   OQ_STR(t->name), from != NULL ? " of " : "", from != NULL ? from->path : "",
                   isnan(p->x[r * p->stride + c]) ? "NaN" : "an infinity",
                   (unsigned long long)(p->b * t->block + r), (unsigned long long)(p->n0 + c));
}

static onq_code check_finite(const oq_nb_task *t, const oq_nb_panel *p, size_t rows,
                             onq_error *err) {
    for (size_t r = 0; r < rows; r++) {
        const float *x = p->x + r * p->stride;
        if (are_finite(x, p->cols))
            continue;
        for (size_t c = 0; c < p->cols; c++)
            if (!isfinite(x[c]))
                return fail_at(t, p, r, c, err);
    }
    return ONQ_OK;
}

onq_code oq_nb_load(const oq_nb_task *t, oq_nb_panel *p, uint64_t batch, uint64_t b, uint64_t n0,
                    onq_error *err) {
    const uint64_t k0 = b * t->block;
    assert(batch < t->batch && b < t->blocks && n0 < t->n);
    const size_t rows = (size_t)(t->k - k0 < t->block ? t->k - k0 : t->block);
    const uint64_t first = batch * t->k * t->n + k0 * t->stride_k + n0 * t->stride_n;
    p->batch = batch;
    p->b = b;
    p->n0 = n0;
    p->cols = (size_t)(t->n - n0 < OQ_NB_TILE ? t->n - n0 : OQ_NB_TILE);
    p->rows = t->method->pads ? (size_t)t->block : rows;
    if (t->stride_n == 1)
        load_rows(t, p, first, rows);
    else
        load_turned(t, p, first, rows);
    if (p->rows > rows)
        memset(p->room + rows * OQ_NB_TILE, 0, (p->rows - rows) * OQ_NB_TILE * sizeof(float));
    return check_finite(t, p, rows, err);
}

/* ---- storing integers ---- */

/* Byte `j` of each column of the panel from `per` rows of integers. */
static void join_rows(const uint8_t *q, unsigned bits, size_t rows, size_t cols, uint8_t *out) {
    memcpy(out, q, cols);
    for (size_t r = 1; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            out[c] = (uint8_t)(out[c] | q[r * OQ_NB_TILE + c] << (r * bits));
}

/* Integers of fewer bits become the first bits of wide ones, and a bit after them the half. */
static void widen(const oq_nb_task *t, const oq_nb_panel *p) {
    assert(t->wide > t->bits);
    const unsigned by = t->wide - t->bits;
    for (size_t i = 0; i < p->rows * OQ_NB_TILE; i++)
        p->q[i] = (uint8_t)((unsigned)p->q[i] << by | 1u << (by - 1));
}

/* MLAS fills a byte from variables that keep their last values, so that after an odd number of rows
 * the free bits are those of the byte before. It starts anew with every 8 / bits blocks. */
static uint8_t left_over(const oq_nb_task *t, const oq_nb_panel *p, const uint8_t *at, size_t j,
                         size_t rows) {
    const unsigned per = 8 / t->wide;
    const bool begins = j == 0 && p->b % per == 0;
    const unsigned free_bits = begins ? 0 : 0xffu << (rows * t->wide);
    return (uint8_t)(begins ? 0u : at[-1] & free_bits);
}

/* 8 columns of 8 rows become 8 runs of 8 bytes: squares of 4, 2 and 1 bytes change places. */
static void turn_bytes(const uint8_t *from, uint8_t *to, size_t step) {
    uint64_t x[8];
    for (size_t i = 0; i < 8; i++)
        memcpy(&x[i], from + i * OQ_NB_TILE, 8);
    for (size_t i = 0; i < 4; i++) {
        const uint64_t t = (x[i] >> 32 ^ x[i + 4]) & 0x00000000ffffffffu;
        x[i + 4] ^= t;
        x[i] ^= t << 32;
    }
    for (size_t i = 0; i < 8; i += i % 4 == 1 ? 3 : 1) {
        const uint64_t t = (x[i] >> 16 ^ x[i + 2]) & 0x0000ffff0000ffffu;
        x[i + 2] ^= t;
        x[i] ^= t << 16;
    }
    for (size_t i = 0; i < 8; i += 2) {
        const uint64_t t = (x[i] >> 8 ^ x[i + 1]) & 0x00ff00ff00ff00ffu;
        x[i + 1] ^= t;
        x[i] ^= t << 8;
    }
    for (size_t i = 0; i < 8; i++)
        memcpy(to + i * step, &x[i], 8);
}

static void put_columns(const oq_nb_sink *s, const oq_nb_panel *p) {
    const oq_nb_task *t = s->task;
    const size_t per = 8 / t->wide, blob = (size_t)packed(t, t->block);
    const size_t step = (size_t)t->blocks * blob;
    uint8_t *const to =
        s->part[OQ_NB_Q] + ((p->batch * t->n + p->n0) * t->blocks + p->b) * (uint64_t)blob;
    for (size_t j = 0; j * per < p->rows; j += 8) {
        uint8_t bytes[8][OQ_NB_TILE];
        size_t n = 0;
        for (; n < 8 && (j + n) * per < p->rows; n++) {
            const size_t rows = p->rows - (j + n) * per;
            join_rows(p->q + (j + n) * per * OQ_NB_TILE, t->wide, rows < per ? rows : per, p->cols,
                      bytes[n]);
        }
        size_t c = 0;
        for (; n == 8 && c + 8 <= p->cols; c += 8)
            turn_bytes(&bytes[0][c], to + c * step + j, step);
        for (; c < p->cols; c++)
            for (size_t i = 0; i < n; i++)
                to[c * step + j + i] = bytes[i][c];
    }
    const size_t odd = p->rows % per, last = p->rows / per;
    for (size_t c = 0; odd != 0 && t->method->keeps_odd && c < p->cols; c++) {
        uint8_t *at = to + c * step + last;
        *at |= left_over(t, p, at, last, odd);
    }
}

/* One integer of a flat array, whose bytes are zero. */
static void put_flat_one(uint8_t *to, unsigned bits, uint64_t i, uint8_t v) {
    const unsigned per = 8 / bits, shift = (unsigned)(i % per) * bits;
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
    to[i / per] = (uint8_t)(to[i / per] | (v & mask) << shift);
}

static void put_flat(const oq_nb_sink *s, const oq_nb_panel *p) {
    const oq_nb_task *t = s->task;
    const uint8_t flip = (uint8_t)(t->is_signed ? 1u << (t->bits - 1) : 0u);
    const uint64_t first = p->batch * t->k * t->n + p->b * t->block * t->out_k + p->n0 * t->out_n;
    const uint64_t left = t->k - p->b * t->block; /* rows that pad a panel are not stored */
    const size_t rows = p->rows < left ? p->rows : (size_t)left;
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *q = p->q + r * OQ_NB_TILE;
        const uint64_t at = first + r * t->out_k;
        size_t c = 0;
        if (t->bits == 4 && t->out_n == 1 && at % 2 == 0)
            for (; c + 1 < p->cols; c += 2)
                s->part[OQ_NB_Q][(at + c) / 2] = (uint8_t)((q[c] ^ flip) | (q[c + 1] ^ flip) << 4);
        for (; c < p->cols; c++)
            put_flat_one(s->part[OQ_NB_Q], t->bits, at + c * t->out_n, q[c] ^ flip);
    }
}

/* ---- storing parameters ---- */

bool oq_nb_put_real(oq_dtype real, uint8_t *to, uint64_t i, double v) {
    const float f = (float)v;
    if (real == OQ_FLOAT) {
        memcpy(to + i * 4, &f, 4);
        return isfinite(f);
    }
    const uint16_t h = real == OQ_FLOAT16 ? oq_f64_to_f16(v) : oq_f32_to_bf16(f);
    memcpy(to + i * 2, &h, 2);
    return isfinite(real == OQ_FLOAT16 ? oq_f16_to_f32(h) : oq_bf16_to_f32(h));
}

static void put_zero(const oq_nb_sink *s, uint64_t column, const oq_nb_panel *p, size_t c,
                     uint64_t at) {
    const oq_nb_task *t = s->task;
    const uint8_t flip = (uint8_t)(t->is_signed ? 1u << (t->bits - 1) : 0u);
    uint8_t *to = s->part[OQ_NB_ZEROS];
    if (t->zero == OQ_NB_ZERO_REAL) {
        oq_nb_put_real(t->real, to, at, (double)p->zero[c]);
        return;
    }
    if (t->zero == OQ_NB_ZERO_SUMS) {
        const double half = (double)(1u << (t->bits - 1));
        oq_nb_put_real(t->stored, to, p->b * t->n + p->n0 + c,
                       (half - (double)p->zero[c]) * p->scale[c]);
        return;
    }
    const uint8_t v = (uint8_t)((uint8_t)p->zero[c] ^ flip);
    if (!t->by_columns) {
        put_flat_one(to, t->bits, at, v);
        return;
    }
    /* Each column begins a byte; the rest of its last one is as good as symmetric. */
    const uint64_t per = 8 / t->bits, room = packed(t, t->blocks) * per;
    put_flat_one(to, t->bits, column * room + p->b, v);
    for (uint64_t b = t->blocks; p->b + 1 == t->blocks && b < room; b++)
        put_flat_one(to, t->bits, column * room + b, (uint8_t)(1u << (t->bits - 1)));
}

/* Rows that pad a panel are zeros, and no input meets them. */
static void measure(oq_nb_noise *sum, const oq_nb_task *t, const oq_nb_panel *p) {
    const uint64_t k0 = p->b * t->block;
    for (size_t r = 0; r < p->rows; r++) {
        const double power = t->mean == NULL ? 1.0 : k0 + r < t->k ? (double)t->mean[k0 + r] : 0.0;
        double signal = 0, noise = 0;
        for (size_t c = 0; c < p->cols; c++) {
            const double x = (double)p->x[r * p->stride + c];
            const double q = (double)p->q[r * OQ_NB_TILE + c] - (double)p->zero[c];
            const double e = q * p->scale[c] - x;
            signal += x * x;
            noise += e * e;
        }
        sum->signal += power * signal;
        sum->noise += power * noise;
    }
}

onq_code oq_nb_put(const oq_nb_sink *s, const oq_nb_panel *p, onq_error *err) {
    const oq_nb_task *t = s->task;
    if (s->noise != NULL) {
        measure(s->noise, t, p);
        return ONQ_OK;
    }
    if (oq_nb_is_centred(t))
        widen(t, p);
    if (t->by_columns)
        put_columns(s, p);
    else
        put_flat(s, p);
    for (size_t c = 0; c < p->cols; c++) {
        const uint64_t n = p->n0 + c;
        const uint64_t at = p->batch * t->blocks * t->n + p->b * t->per_k + n * t->per_n;
        if (!oq_nb_put_real(t->stored, s->part[OQ_NB_SCALE], at,
                            ldexp(p->scale[c], (int)t->bits - (int)t->wide)))
            return oq_fail(err, ONQ_E_INVALID,
                           "weight '%.*s': the scale of a block is too large for its type (leave "
                           "its node out with --nodes_to_exclude)",
                           OQ_STR(t->name));
        if (t->zero != OQ_NB_ZERO_NONE)
            put_zero(s, p->batch * t->n + n, p, c, at);
    }
    return ONQ_OK;
}

/* ---- all panels ---- */

typedef struct walk {
    const oq_nb_task *t;
    const oq_nb_sink *s;
    oq_nb_panel_fn fn;
    void *ctx;
    oq_nb_panel p;
    uint64_t seen;
} walk;

static onq_code do_panel(walk *w, uint64_t batch, uint64_t b, uint64_t n0, onq_error *err) {
    if (w->t->every > 1 && w->seen++ % w->t->every != 0)
        return ONQ_OK;
    OQ_TRY(oq_nb_load(w->t, &w->p, batch, b, n0, err));
    w->fn(w->t, &w->p, w->ctx);
    return w->s != NULL ? oq_nb_put(w->s, &w->p, err) : ONQ_OK;
}

/* A few blocks of all columns, so that the file is read from its beginning to its end. */
static onq_code do_rows(walk *w, uint64_t batch, onq_error *err) {
    const oq_nb_task *t = w->t;
    for (uint64_t b = 0; b < t->blocks; b += BLOCKS_TOGETHER) {
        const uint64_t end = b + BLOCKS_TOGETHER < t->blocks ? b + BLOCKS_TOGETHER : t->blocks;
        for (uint64_t n = 0; n < t->n; n += OQ_NB_TILE)
            for (uint64_t i = b; i < end; i++)
                OQ_TRY(do_panel(w, batch, i, n, err));
        drop(t, (batch * t->k + b * t->block) * t->n,
             (batch * t->k + (end == t->blocks ? t->k : end * t->block)) * t->n);
    }
    return ONQ_OK;
}

static onq_code do_turned(walk *w, uint64_t batch, onq_error *err) {
    const oq_nb_task *t = w->t;
    for (uint64_t n = 0; n < t->n; n += OQ_NB_TILE) {
        const uint64_t end = n + OQ_NB_TILE < t->n ? n + OQ_NB_TILE : t->n;
        for (uint64_t b = 0; b < t->blocks; b++)
            OQ_TRY(do_panel(w, batch, b, n, err));
        drop(t, (batch * t->n + n) * t->k, (batch * t->n + end) * t->k);
    }
    return ONQ_OK;
}

onq_code oq_nb_panels(const oq_nb_task *t, const oq_nb_sink *s, oq_nb_panel_fn fn, void *ctx,
                      onq_error *err) {
    walk w = {.t = t, .s = s, .fn = fn, .ctx = ctx};
    OQ_TRY(oq_nb_panel_init(&w.p, t, err));
    onq_code rc = ONQ_OK;
    for (uint64_t i = 0; i < t->batch && rc == ONQ_OK; i++)
        rc = t->stride_n == 1 ? do_rows(&w, i, err) : do_turned(&w, i, err);
    oq_nb_panel_release(&w.p, t);
    return rc;
}
