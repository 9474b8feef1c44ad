/*
 * turn.c — matrices that are read by their columns.
 *
 * A tile holds some rows of the result. It is filled column by column, a stretch of columns at a
 * time, so that what is read and what is written stay in the cache.
 */
#include "base/text/real.h"
#include "quantize/convert/values.h"

#define MIN_ROWS 8
#define MAX_ROWS 128
#define SOME     ((uint64_t)1 << 17) /* elements of a tile, unless that is fewer than MIN_ROWS */
#define STRETCH  ((uint64_t)64)

struct oq_cv_tile {
    const onq_allocator *alloc;
    const oq_cv_turn *turn;
    unsigned bits;
    bool is_signed;
    uint64_t matrix, row, rows; /* what the tile holds; rows is 0 at first */
    uint64_t height;
    int32_t *v; /* rows of turn->width */
};

onq_code oq_cv_tile_new(const onq_allocator *alloc, const oq_cv_turn *turn, oq_cv_tile **out,
                        onq_error *err) {
    const oq_dtype_info *type = oq_dtype_find(turn->type);
    oq_cv_tile *t = oq_calloc(alloc, 1, sizeof *t);
    OQ_TRY_ALLOC(t != NULL, err);
    uint64_t height = turn->width > 0 ? SOME / turn->width : 0;
    height = height < MIN_ROWS ? MIN_ROWS : height > MAX_ROWS ? MAX_ROWS : height;
    height = height < turn->rows ? height : turn->rows;
    *t = (oq_cv_tile){.alloc = alloc,
                      .turn = turn,
                      .bits = type->bits,
                      .is_signed = type->cls == OQ_CLASS_INT,
                      .height = height};
    t->v = oq_calloc(alloc, (size_t)(height * turn->width) + 1, sizeof *t->v);
    if (t->v == NULL) {
        oq_free(alloc, t, sizeof *t);
        return oq_fail_nomem(err);
    }
    *out = t;
    return ONQ_OK;
}

void oq_cv_tile_free(oq_cv_tile *t) {
    oq_free(t->alloc, t->v, ((size_t)(t->height * t->turn->width) + 1) * sizeof *t->v);
    oq_free(t->alloc, t, sizeof *t);
}

static int32_t get(const oq_cv_tile *t, uint64_t i) {
    const uint8_t *p = t->turn->data.p;
    int32_t v;
    switch (t->bits) {
    case 2:
        v = t->is_signed ? oq_get_i2(p, i) : oq_get_u2(p, i);
        break;
    case 4:
        i ^= t->turn->high_first;
        v = t->is_signed ? oq_get_i4(p, i) : oq_get_u4(p, i);
        break;
    case 8:
        v = t->is_signed ? (int8_t)p[i] : p[i];
        break;
    case 16: {
        uint16_t h;
        memcpy(&h, p + i * 2, sizeof h);
        v = h;
        break;
    }
    default:
        memcpy(&v, p + i * 4, sizeof v);
    }
    return v + t->turn->shift;
}

/* Four bits, two rows to a byte of a column. */
static void fill_nibbles(oq_cv_tile *t, uint64_t from, uint64_t c0, uint64_t c1) {
    const oq_cv_turn *u = t->turn;
    const int flip = t->is_signed ? 8 : 0, shift = u->shift - flip;
    const unsigned low = u->high_first ? 4 : 0;
    for (uint64_t c = c0; c < c1; c++) {
        const uint8_t *p = u->data.p + (from + c * u->stride + t->row) / 2;
        int32_t *to = t->v + c;
        for (uint64_t r = 0; r + 1 < t->rows; r += 2, p++, to += 2 * u->width) {
            to[0] = ((*p >> low & 15) ^ flip) + shift;
            to[u->width] = ((*p >> (4 - low) & 15) ^ flip) + shift;
        }
        if (t->rows % 2 != 0)
            *to = ((*p >> low & 15) ^ flip) + shift;
    }
}

static void fill_bytes(oq_cv_tile *t, uint64_t from, uint64_t c0, uint64_t c1) {
    const oq_cv_turn *u = t->turn;
    const int flip = t->is_signed ? 128 : 0, shift = u->shift - flip;
    for (uint64_t c = c0; c < c1; c++) {
        const uint8_t *p = u->data.p + from + c * u->stride + t->row;
        for (uint64_t r = 0; r < t->rows; r++)
            t->v[r * u->width + c] = (p[r] ^ flip) + shift;
    }
}

static void fill_any(oq_cv_tile *t, uint64_t from, uint64_t c0, uint64_t c1) {
    const oq_cv_turn *u = t->turn;
    for (uint64_t c = c0; c < c1; c++)
        for (uint64_t r = 0; r < t->rows; r++)
            t->v[r * u->width + c] = get(t, from + c * u->stride + t->row + r);
}

static void fill(oq_cv_tile *t, uint64_t matrix, uint64_t row) {
    const oq_cv_turn *u = t->turn;
    const uint64_t from = matrix * u->step;
    t->matrix = matrix;
    t->row = row / t->height * t->height;
    t->rows = u->rows - t->row < t->height ? u->rows - t->row : t->height;
    const bool even = u->stride % 2 == 0 && from % 2 == 0 && t->row % 2 == 0;
    for (uint64_t c = 0; c < u->cols; c += STRETCH) {
        const uint64_t end = u->cols - c < STRETCH ? u->cols : c + STRETCH;
        if (t->bits == 4 && even)
            fill_nibbles(t, from, c, end);
        else if (t->bits == 8)
            fill_bytes(t, from, c, end);
        else
            fill_any(t, from, c, end);
    }
}

void oq_cv_tile_read(oq_cv_tile *t, uint64_t first, size_t n, int32_t *out) {
    const oq_cv_turn *u = t->turn;
    while (n > 0) {
        const uint64_t row = first / u->width, c = first % u->width;
        const uint64_t matrix = row / u->rows, r = row % u->rows;
        if (t->rows == 0 || matrix != t->matrix || r < t->row || r >= t->row + t->rows)
            fill(t, matrix, r);
        const uint64_t there = (t->row + t->rows - r) * u->width - c;
        const size_t now = there < n ? (size_t)there : n;
        memcpy(out, t->v + (r - t->row) * u->width + c, now * sizeof *out);
        out += now;
        first += now;
        n -= now;
    }
}

/* ---- as a payload ---- */

typedef struct turned {
    oq_producer producer;
    const onq_allocator *alloc;
    oq_cv_turn turn;
    unsigned bits;
    uint64_t count;
} turned;

/* Integers of few bits into bytes; whole bytes of them, except at the end. */
static void pack(const int32_t *v, size_t n, unsigned bits, uint8_t *out) {
    const unsigned each = 8 / bits, mask = (1U << bits) - 1;
    for (size_t i = 0; i < n; i += each, out++) {
        unsigned byte = 0;
        for (unsigned k = 0; k < each && i + k < n; k++)
            byte |= ((unsigned)v[i + k] & mask) << k * bits;
        *out = (uint8_t)byte;
    }
}

static void store(const int32_t *v, size_t n, unsigned bits, uint8_t *out) {
    if (bits == 32) {
        memcpy(out, v, n * 4);
    } else if (bits == 16) {
        for (size_t i = 0; i < n; i++) {
            const uint16_t h = (uint16_t)v[i];
            memcpy(out + 2 * i, &h, sizeof h);
        }
    } else {
        pack(v, n, bits, out);
    }
}

static onq_code slice(const oq_producer *self, uint64_t from, uint64_t n, uint8_t *out,
                      onq_error *err) {
    const turned *d = self->ctx;
    int32_t buf[4096];
    oq_cv_tile *tile = NULL;
    uint64_t at = from * 8 / d->bits, end = (from + n) * 8 / d->bits;
    end = end < d->count ? end : d->count;
    OQ_TRY(oq_cv_tile_new(d->alloc, &d->turn, &tile, err));
    for (; at < end; at += OQ_COUNT(buf)) {
        const size_t now = end - at < OQ_COUNT(buf) ? (size_t)(end - at) : OQ_COUNT(buf);
        oq_cv_tile_read(tile, at, now, buf);
        store(buf, now, d->bits, out);
        out += now * d->bits / 8;
    }
    oq_cv_tile_free(tile);
    return ONQ_OK;
}

static onq_code make(const oq_producer *self, uint8_t *out, onq_error *err) {
    return slice(self, 0, self->size, out, err);
}

onq_code oq_cv_turn_payload(oq_model *m, oq_tensor *t, const oq_cv_turn *turn, onq_error *err) {
    turned *d = OQ_NEW(&m->arena, turned);
    uint64_t size = 0;
    OQ_TRY_ALLOC(d != NULL, err);
    *d = (turned){.alloc = &m->env->alloc, .turn = *turn, .bits = oq_dtype_find(turn->type)->bits};
    d->count = turn->batch * turn->rows * turn->width;
    OQ_TRY(oq_tensor_bytes(t, &size, err));
    d->producer = (oq_producer){.size = size, .make = make, .slice = slice, .ctx = d};
    oq_tensor_set_producer(t, &d->producer);
    return ONQ_OK;
}
