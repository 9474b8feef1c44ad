/*
 * turn.c — matrices that are read by their columns.
 *
 * Elements of 2 to 32 bits are turned as words of 64 bits: as many words as a word has elements are
 * a square, which is turned by exchanging its quarters, then the quarters of those, down to single
 * elements. Two squares go side by side in vectors. Squares are taken in tiles of 64 bytes by as
 * many rows, so that cache lines are read and written whole. Matrices whose rows or columns do not
 * begin with a byte go element by element.
 */
#include "quantize/convert/values.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Each number of bits has code of its own. */
#define INLINE static inline __attribute__((always_inline))

#define WORD   64 /* bits */
#define SIDE   8  /* words of a row of a tile */
#define AHEAD  32 /* columns: the memory is asked for them while others are turned */
#define SQUARE 32 /* words of the largest square: elements of 2 bits */

/* Two words: what every machine has a register for. */
typedef uint64_t pair __attribute__((vector_size(16)));

typedef struct tile {
    uint64_t row[SIDE * SQUARE][SIDE];
} tile;

static unsigned bits_of(const oq_cv_turn *u) {
    return oq_dtype_find(u->type)->bits;
}

static bool is_by_bytes(const oq_cv_turn *u) {
    const unsigned bits = bits_of(u);
    return u->stride * bits % 8 == 0 && u->step * bits % 8 == 0 && u->width * bits % 8 == 0;
}

/* A word of which every element is `v`. */
static uint64_t fill_word(unsigned bits, uint64_t v) {
    for (; bits < WORD; bits *= 2)
        v |= v << bits;
    return v;
}

/* Exchanges the quarters of squares: the high halves of words with the low ones of words below. */
INLINE void exchange(pair *a, unsigned bits, unsigned half, uint64_t low) {
    const unsigned rows = half / bits;
    for (unsigned k = 0; k < WORD / bits && rows > 0; k += 2 * rows)
        for (unsigned i = k; i < k + rows; i++) {
            const pair other = (a[i] >> half ^ a[i + rows]) & low;
            a[i + rows] ^= other;
            a[i] ^= other << half;
        }
}

/* Turns two squares of words: element i of word k becomes element k of word i. */
INLINE void turn_squares(pair *a, unsigned bits) {
    exchange(a, bits, 32, UINT64_C(0x00000000FFFFFFFF));
    exchange(a, bits, 16, UINT64_C(0x0000FFFF0000FFFF));
    exchange(a, bits, 8, UINT64_C(0x00FF00FF00FF00FF));
    exchange(a, bits, 4, UINT64_C(0x0F0F0F0F0F0F0F0F));
    exchange(a, bits, 2, UINT64_C(0x3333333333333333));
}

INLINE pair load(const oq_cv_turn *u, const uint8_t *p, size_t n, uint64_t flip) {
    const uint64_t low = UINT64_C(0x0F0F0F0F0F0F0F0F);
    pair w = {0};
    memcpy(&w, p, n);
    if (u->high_first)
        w = (w >> 4 & low) | (w & low) << 4;
    return w ^ flip;
}

/* The squares of a tile: rows from `row` on, columns from `col` on. */
INLINE void fill_tile(const oq_cv_turn *u, const uint8_t *from, uint64_t row, uint64_t n_rows,
                      uint64_t col, unsigned bits, tile *t) {
    const unsigned n = WORD / bits;
    const uint64_t flip = u->flip ? fill_word(bits, UINT64_C(1) << (bits - 1)) : 0;
    const uint64_t column = u->stride * bits / 8;
    const uint64_t width = (u->rows * bits + 7) / 8 - row * bits / 8; /* bytes of a column */
    pair a[SQUARE];
    for (unsigned j = 0; j < SIDE && col + j * n < u->width; j++) {
        const uint64_t first = col + j * n, there = first < u->cols ? u->cols - first : 0;
        const uint8_t *p = from + first * column + row * bits / 8;
        for (unsigned k = 0; k < n && there > AHEAD + n; k++)
            __builtin_prefetch(p + (AHEAD + k) * column, 0, 2);
        for (unsigned i = 0; i < SIDE && i * n < n_rows; i += 2, p += sizeof *a) {
            const size_t left = width - 8 * i, size = left < sizeof *a ? left : sizeof *a;
            if (there >= n && size == sizeof *a)
                for (unsigned k = 0; k < n; k++)
                    a[k] = load(u, p + k * column, sizeof *a, flip);
            else
                for (unsigned k = 0; k < n; k++)
                    a[k] = k < there ? load(u, p + k * column, size, flip) : (pair){0};
            turn_squares(a, bits);
            for (unsigned k = 0; k < n; k++) {
                t->row[i * n + k][j] = a[k][0];
                t->row[(i + 1) * n + k][j] = a[k][1];
            }
        }
    }
}

INLINE void turn_rows_of(const oq_cv_turn *u, const uint8_t *from, uint64_t row, uint64_t n_rows,
                         unsigned bits, uint8_t *out) {
    const uint64_t n = WORD / bits * SIDE, width = u->width * bits / 8;
    tile t;
    for (uint64_t r = 0; r < n_rows; r += n)
        for (uint64_t c = 0; c < u->width; c += n) {
            const uint64_t now = n_rows - r < n ? n_rows - r : n, at = c * bits / 8;
            const size_t size =
                width - at < sizeof t.row[0] ? (size_t)(width - at) : sizeof t.row[0];
            fill_tile(u, from, row + r, now, c, bits, &t);
            if (size == sizeof t.row[0])
                for (uint64_t i = 0; i < now; i++)
                    memcpy(out + (r + i) * width + at, t.row[i], sizeof t.row[0]);
            else
                for (uint64_t i = 0; i < now; i++)
                    memcpy(out + (r + i) * width + at, t.row[i], size);
        }
}

/* Whole rows of a matrix; the first is a multiple of a square's. */
static void turn_rows(const oq_cv_turn *u, uint64_t matrix, uint64_t row, uint64_t n,
                      uint8_t *out) {
    const unsigned bits = bits_of(u);
    const uint8_t *from = u->data.p + matrix * u->step * bits / 8;
    switch (bits) {
    case 2:
        turn_rows_of(u, from, row, n, 2, out);
        return;
    case 4:
        turn_rows_of(u, from, row, n, 4, out);
        return;
    case 8:
        turn_rows_of(u, from, row, n, 8, out);
        return;
    case 16:
        turn_rows_of(u, from, row, n, 16, out);
        return;
    default:
        turn_rows_of(u, from, row, n, 32, out);
    }
}

/* ---- ranges of bytes ---- */

/* Bytes that begin or end inside of rows, through whole rows. */
static onq_code turn_part(const oq_cv_turn *u, const onq_allocator *alloc, uint64_t from,
                          uint64_t n, uint64_t *done, uint8_t *out, onq_error *err) {
    const unsigned bits = bits_of(u), side = WORD / bits;
    const uint64_t width = u->width * bits / 8, r = from / width % u->rows;
    const uint64_t first = r / side * side, rows = u->rows - first < side ? u->rows - first : side;
    const uint64_t at = (r - first) * width + from % width, there = rows * width - at;
    uint8_t *room = oq_alloc(alloc, rows * width);
    OQ_TRY_ALLOC(room != NULL, err);
    turn_rows(u, from / width / u->rows, first, rows, room);
    *done = there < n ? there : n;
    memcpy(out, room + at, (size_t)*done);
    oq_free(alloc, room, rows * width);
    return ONQ_OK;
}

static onq_code turn_bytes(const oq_cv_turn *u, const onq_allocator *alloc, uint64_t from,
                           uint64_t n, uint8_t *out, onq_error *err) {
    const unsigned bits = bits_of(u), side = WORD / bits;
    const uint64_t width = u->width * bits / 8;
    while (n > 0) {
        const uint64_t r = from / width % u->rows, left = u->rows - r;
        uint64_t rows = from % width == 0 && r % side == 0 ? n / width : 0, done = 0;
        rows = rows >= left ? left : rows / side * side;
        if (rows > 0) {
            done = rows * width;
            turn_rows(u, from / width / u->rows, r, rows, out);
        } else {
            OQ_TRY(turn_part(u, alloc, from, n, &done, out, err));
        }
        from += done;
        out += done;
        n -= done;
    }
    return ONQ_OK;
}

static unsigned get_element(const oq_cv_turn *u, unsigned bits, uint64_t row, uint64_t c) {
    uint64_t i = row / u->rows * u->step + c * u->stride + row % u->rows;
    if (c >= u->cols)
        return 0;
    i ^= u->high_first;
    const unsigned v = u->data.p[i * bits / 8] >> i * bits % 8 & ((1U << bits) - 1);
    return v ^ (u->flip ? 1U << (bits - 1) : 0);
}

/* The same element by element, of at most 8 bits. */
static void turn_elements(const oq_cv_turn *u, uint64_t from, uint64_t n, uint8_t *out) {
    const unsigned bits = bits_of(u), each = 8 / bits;
    const uint64_t count = u->batch * u->rows * u->width;
    memset(out, 0, (size_t)n);
    for (uint64_t i = from * each; i < (from + n) * each && i < count; i++)
        out[i / each - from] |=
            (uint8_t)(get_element(u, bits, i / u->width, i % u->width) << i % each * bits);
}

onq_code oq_cv_turn_read(const oq_cv_turn *u, const onq_allocator *alloc, uint64_t from, uint64_t n,
                         uint8_t *out, onq_error *err) {
    if (is_by_bytes(u))
        return turn_bytes(u, alloc, from, n, out, err);
    turn_elements(u, from, n, out);
    return ONQ_OK;
}

/* ---- as a payload ---- */

typedef struct turned {
    oq_producer producer;
    const onq_allocator *alloc;
    oq_cv_turn turn;
} turned;

static onq_code slice(const oq_producer *self, uint64_t from, uint64_t n, uint8_t *out,
                      onq_error *err) {
    const turned *d = self->ctx;
    return oq_cv_turn_read(&d->turn, d->alloc, from, n, out, err);
}

onq_code oq_cv_turn_payload(oq_model *m, oq_tensor *t, const oq_cv_turn *turn, onq_error *err) {
    assert(turn->rows > 0 && turn->width >= turn->cols);
    turned *d = OQ_NEW(&m->arena, turned);
    OQ_TRY_ALLOC(d != NULL, err);
    *d = (turned){.alloc = &m->env->alloc, .turn = *turn};
    return oq_tensor_set_slices(t, &d->producer, slice, d, err);
}
