/*
 * turn.c — matrices that are read by their columns.
 *
 * A tile holds some rows of the result. It is filled column by column, a stretch of columns at a
 * time, so that what is read and what is written stay in the cache.
 */
#include "base/text/real.h"
#include "quantize/convert/values.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define MIN_ROWS 8
#define MAX_ROWS 128
#define SOME     ((uint64_t)1 << 20) /* bytes of a tile, unless that is fewer than MIN_ROWS */
#define STRETCH  ((uint64_t)64)

struct oq_cv_tile {
    const onq_allocator *alloc;
    const oq_cv_turn *turn;
    unsigned bits;
    bool is_signed;
    uint64_t matrix, row, rows; /* what the tile holds; rows is 0 at first */
    uint64_t height;
    size_t size;
    uint8_t *bytes; /* rows of turn->width: elements of up to 8 bits */
    int32_t *words; /* or larger ones */
};

onq_code oq_cv_tile_new(const onq_allocator *alloc, const oq_cv_turn *turn, oq_cv_tile **out,
                        onq_error *err) {
    const oq_dtype_info *type = oq_dtype_find(turn->type);
    const size_t each = type->bits > 8 ? sizeof(int32_t) : 1;
    oq_cv_tile *t = oq_calloc(alloc, 1, sizeof *t);
    OQ_TRY_ALLOC(t != NULL, err);
    uint64_t height = turn->width > 0 ? SOME / each / turn->width : 0;
    height = height < MIN_ROWS ? MIN_ROWS : height > MAX_ROWS ? MAX_ROWS : height & ~(uint64_t)1;
    height = height < turn->rows ? height : turn->rows;
    *t = (oq_cv_tile){.alloc = alloc,
                      .turn = turn,
                      .bits = type->bits,
                      .is_signed = type->cls == OQ_CLASS_INT,
                      .height = height,
                      .size = (size_t)(height * turn->width) * each + 1};
    uint8_t *room = oq_calloc(alloc, t->size, 1);
    if (room == NULL) {
        oq_free(alloc, t, sizeof *t);
        return oq_fail_nomem(err);
    }
    t->bytes = each == 1 ? room : NULL;
    t->words = each == 1 ? NULL : (int32_t *)(void *)room;
    *out = t;
    return ONQ_OK;
}

void oq_cv_tile_free(oq_cv_tile *t) {
    oq_free(t->alloc, t->bytes != NULL ? (void *)t->bytes : t->words, t->size);
    oq_free(t->alloc, t, sizeof *t);
}

static int32_t get(const oq_cv_tile *t, uint64_t i) {
    const uint8_t *p = t->turn->data.p;
    uint16_t h;
    int32_t v;
    switch (t->bits) {
    case 2:
        return t->is_signed ? oq_get_i2(p, i) : oq_get_u2(p, i);
    case 4:
        i ^= t->turn->high_first;
        return t->is_signed ? oq_get_i4(p, i) : oq_get_u4(p, i);
    case 8:
        return t->is_signed ? (int8_t)p[i] : p[i];
    case 16:
        memcpy(&h, p + i * 2, sizeof h);
        return h;
    default:
        memcpy(&v, p + i * 4, sizeof v);
        return v;
    }
}

/* Two rows of 4-bit elements, which share the bytes of their columns. */
static void fill_nibbles(const oq_cv_tile *t, uint64_t from, uint64_t r, uint64_t c0, uint64_t n) {
    const oq_cv_turn *u = t->turn;
    const uint8_t *p = u->data.p + (from + c0 * u->stride + t->row + r) / 2;
    const uint64_t step = u->stride / 2;
    uint8_t *first = t->bytes + r * u->width + c0, *second = first + u->width;
    const unsigned low = u->high_first ? 4 : 0;
    const uint8_t flip = t->is_signed ? 8 : 0, shift = (uint8_t)(u->shift - flip);
    const bool both = r + 1 < t->rows;
    for (uint64_t c = 0; c < n; c++) {
        const uint8_t b = p[c * step];
        first[c] = (uint8_t)(((b >> low & 15) ^ flip) + shift);
        if (both)
            second[c] = (uint8_t)(((b >> (4 - low) & 15) ^ flip) + shift);
    }
}

static void fill_row(const oq_cv_tile *t, uint64_t from, uint64_t r, uint64_t c0, uint64_t n) {
    const oq_cv_turn *u = t->turn;
    const uint64_t at = from + c0 * u->stride + t->row + r, to = r * u->width + c0;
    if (t->bits == 8) {
        for (uint64_t c = 0; c < n; c++)
            t->bytes[to + c] = (uint8_t)(u->data.p[at + c * u->stride] + u->shift);
        return;
    }
    for (uint64_t c = 0; c < n; c++) {
        const int32_t v = get(t, at + c * u->stride) + u->shift;
        if (t->bytes != NULL)
            t->bytes[to + c] = (uint8_t)v;
        else
            t->words[to + c] = v;
    }
}

static void fill(oq_cv_tile *t, uint64_t matrix, uint64_t row) {
    const oq_cv_turn *u = t->turn;
    const uint64_t from = matrix * u->step;
    t->matrix = matrix;
    t->row = row / t->height * t->height;
    t->rows = u->rows - t->row < t->height ? u->rows - t->row : t->height;
    const bool pairs = t->bits == 4 && u->stride % 2 == 0 && from % 2 == 0 && t->row % 2 == 0;
    for (uint64_t c = 0; c < u->cols; c += STRETCH) {
        const uint64_t n = u->cols - c < STRETCH ? u->cols - c : STRETCH;
        for (uint64_t r = 0; r < t->rows; r += pairs ? 2 : 1)
            if (pairs)
                fill_nibbles(t, from, r, c, n);
            else
                fill_row(t, from, r, c, n);
    }
}

/* Has element `first` in the tile: where it is there, and how many follow it in order. */
static uint64_t find(oq_cv_tile *t, uint64_t first, uint64_t *there) {
    const oq_cv_turn *u = t->turn;
    const uint64_t row = first / u->width, c = first % u->width;
    const uint64_t matrix = row / u->rows, r = row % u->rows;
    if (t->rows == 0 || matrix != t->matrix || r < t->row || r >= t->row + t->rows)
        fill(t, matrix, r);
    *there = (t->row + t->rows - r) * u->width - c;
    return (r - t->row) * u->width + c;
}

void oq_cv_tile_read(oq_cv_tile *t, uint64_t first, size_t n, int32_t *out) {
    while (n > 0) {
        uint64_t there = 0;
        const uint64_t at = find(t, first, &there);
        const size_t now = there < n ? (size_t)there : n;
        if (t->words != NULL)
            memcpy(out, t->words + at, now * sizeof *out);
        else
            for (size_t i = 0; i < now; i++)
                out[i] = t->is_signed ? (int8_t)t->bytes[at + i] : t->bytes[at + i];
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

/* Elements of few bits into bytes; whole bytes of them, except at the end. */
static void pack(const uint8_t *v, size_t n, unsigned bits, uint8_t *out) {
    if (bits == 8) {
        memcpy(out, v, n);
        return;
    }
    if (bits == 4) {
        for (size_t i = 0; i + 1 < n; i += 2)
            out[i / 2] = (uint8_t)((v[i] & 15) | v[i + 1] << 4);
        if (n % 2 != 0)
            out[n / 2] = v[n - 1] & 15;
        return;
    }
    for (size_t i = 0; i < n; i += 4, out++) {
        unsigned byte = 0;
        for (unsigned k = 0; k < 4 && i + k < n; k++)
            byte |= (v[i + k] & 3U) << 2 * k;
        *out = (uint8_t)byte;
    }
}

static void store(const oq_cv_tile *t, uint64_t at, size_t n, uint8_t *out) {
    if (t->bits == 32) {
        memcpy(out, t->words + at, n * 4);
    } else if (t->bits == 16) {
        for (size_t i = 0; i < n; i++) {
            const uint16_t h = (uint16_t)t->words[at + i];
            memcpy(out + 2 * i, &h, sizeof h);
        }
    } else {
        pack(t->bytes + at, n, t->bits, out);
    }
}

/* A stretch that ends inside of a byte is put together from two tiles. */
static void store_mixed(oq_cv_tile *t, uint64_t at, size_t n, uint8_t *out) {
    int32_t v[4];
    uint8_t b[4];
    oq_cv_tile_read(t, at, n, v);
    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)v[i];
    pack(b, n, t->bits, out);
}

static onq_code slice(const oq_producer *self, uint64_t from, uint64_t n, uint8_t *out,
                      onq_error *err) {
    const turned *d = self->ctx;
    const unsigned each = d->bits < 8 ? 8 / d->bits : 1; /* elements of a byte */
    oq_cv_tile *tile = NULL;
    uint64_t at = from * 8 / d->bits, end = (from + n) * 8 / d->bits;
    end = end < d->count ? end : d->count;
    OQ_TRY(oq_cv_tile_new(d->alloc, &d->turn, &tile, err));
    while (at < end) {
        uint64_t there = 0;
        const uint64_t place = find(tile, at, &there);
        uint64_t now = there < end - at ? there : end - at;
        if (at + now < end)
            now -= now % each;
        if (now == 0) {
            now = end - at < each ? end - at : each;
            store_mixed(tile, at, (size_t)now, out);
        } else {
            store(tile, place, (size_t)now, out);
        }
        out += now * d->bits / 8;
        at += now;
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
