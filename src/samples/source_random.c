/*
 * source_random.c — random:N[:SEED]: values that fit each input's type and shape, for smoke runs.
 *
 * Reals are uniform in [-1, 1), integers 0 or 1 (valid as indices, masks and flags almost
 * everywhere), texts "a" or "b". A dimension that is not a number is 1 unless --dim sets it.
 * The values depend on seed, sample and input alone, so any sample can be made again.
 */
#include "samples/source_private.h"

#include "base/text/real.h"

#include <inttypes.h>

/* Of one sample. A model says how large its inputs are and no file has to hold them, so that a few
 * bytes could ask for any amount of memory. */
#define MAX_BYTES (256ull << 20)

typedef struct random_reader {
    oq_reader base;
    oq_ios inputs;
    const oq_source_options *o;
    uint64_t seed;
} random_reader;

static uint64_t next_number(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* In [-1, 1), of 24 bits, so that every type of real down to float holds it exactly. */
static float next_real(uint64_t *state) {
    return (float)((double)(next_number(state) >> 40) * 0x1p-23 - 1.0);
}

static void fill_reals(oq_dtype dt, uint8_t *p, uint64_t n, uint64_t *state) {
    for (uint64_t i = 0; i < n; i++) {
        const float x = next_real(state);
        const double wide = x;
        const uint16_t half = dt == OQ_FLOAT16 ? oq_f32_to_f16(x) : oq_f32_to_bf16(x);
        if (dt == OQ_FLOAT)
            memcpy(p + 4 * i, &x, 4);
        else if (dt == OQ_DOUBLE)
            memcpy(p + 8 * i, &wide, 8);
        else
            memcpy(p + 2 * i, &half, 2);
    }
}

/* The bits of small floats: 0 and 1 of the type are not worth a table, any finite pattern will
 * do. */
static void fill_small(uint8_t *p, uint64_t bytes, uint64_t *state) {
    for (uint64_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(next_number(state) & 0x33);
}

static void fill_integers(uint64_t size, uint8_t *p, uint64_t n, uint64_t *state) {
    for (uint64_t i = 0; i < n; i++)
        p[i * size] = (uint8_t)(next_number(state) & 1); /* little-endian; the rest is zero */
}

static onq_code fill_texts(oq_arena *a, oq_datum *d, uint64_t *state, onq_error *err) {
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, d->count + 1);
    OQ_TRY_ALLOC(texts != NULL, err);
    for (uint64_t i = 0; i < d->count; i++)
        texts[i] = (next_number(state) & 1) != 0 ? OQ_S("a") : OQ_S("b");
    d->strings = texts;
    return ONQ_OK;
}

static onq_code fill(oq_arena *a, oq_datum *d, uint64_t *state, onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find(d->dtype);
    if (d->dtype == OQ_STRING)
        return fill_texts(a, d, state, err);
    uint8_t *p = oq_arena_alloc(a, d->size_bytes + 1);
    OQ_TRY_ALLOC(p != NULL, err);
    if (oq_dtype_is_float(d->dtype))
        fill_reals(d->dtype, p, d->count, state);
    else if (info->cls == OQ_CLASS_COMPLEX)
        fill_reals(info->bits == 64 ? OQ_FLOAT : OQ_DOUBLE, p, 2 * d->count, state);
    else if (info->cls == OQ_CLASS_REAL || info->bits < 8)
        fill_small(p, d->size_bytes, state);
    else
        fill_integers(info->bits / 8, p, d->count, state);
    d->data = p;
    return ONQ_OK;
}

static int64_t size_of_axis(const oq_io *io, size_t axis) {
    return io->dims[axis].value >= 0 ? io->dims[axis].value : 1;
}

/* Values of the input, and what they take, the words of texts left out. False where that is more
 * than a number holds. */
static bool measure(const oq_io *io, uint64_t *count, uint64_t *bytes) {
    *count = 1;
    for (size_t i = 0; i < io->rank; i++)
        if (!oq_mul(*count, (uint64_t)size_of_axis(io, i), count))
            return false;
    return io->dtype == OQ_STRING ? oq_mul(*count, sizeof(oq_str), bytes)
                                  : oq_dtype_bytes(io->dtype, *count, bytes);
}

static onq_code make_tensor(const oq_io *io, oq_arena *a, uint64_t *state, oq_datum *d,
                            onq_error *err) {
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, io->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    for (size_t i = 0; i < io->rank; i++)
        dims[i] = size_of_axis(io, i);
    *d = (oq_datum){.kind = OQ_DATUM_TENSOR, .dtype = io->dtype, .rank = io->rank, .dims = dims};
    (void)measure(io, &d->count, &d->size_bytes); /* that it fits was seen in the beginning */
    if (io->dtype == OQ_STRING)
        d->size_bytes = 0;
    return fill(a, d, state, err);
}

static onq_code check_sizes(const oq_ios *inputs, onq_error *err) {
    uint64_t sum = 0;
    for (size_t i = 0; i < inputs->n; i++) {
        uint64_t count, bytes;
        if (!measure(&inputs->v[i], &count, &bytes) || !oq_add(sum, bytes, &sum) || sum > MAX_BYTES)
            return oq_fail(err, ONQ_E_LIMIT,
                           "random: with input '%.*s' a sample takes more than %llu MiB (--dim "
                           "sets sizes that have names; files may hold larger samples)",
                           OQ_STR(inputs->v[i].name), MAX_BYTES >> 20);
    }
    return ONQ_OK;
}

static onq_code read_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    random_reader *r = (random_reader *)base;
    *name = oq_str_format(a, "random sample %" PRIu64, number).p;
    OQ_TRY_ALLOC(*name != NULL, err);
    for (size_t i = 0; i < r->inputs.n; i++) {
        const oq_io *io = &r->inputs.v[i];
        uint64_t state = r->seed * 0xd1342543de82ef95u + number * 0x2545f4914f6cdd1du + i;
        (void)next_number(&state);
        oq_datum one = {0};
        if (!oq_may_lack(r->o, i))
            OQ_TRY(make_tensor(io, a, &state, &one, err));
        inputs[i] = one;
        if (one.kind == OQ_DATUM_TENSOR && io->kind == OQ_DATUM_SEQUENCE) {
            oq_datum *item = OQ_NEW(a, oq_datum);
            OQ_TRY_ALLOC(item != NULL, err);
            *item = one;
            inputs[i] = (oq_datum){
                .kind = OQ_DATUM_SEQUENCE, .dtype = io->dtype, .items = item, .n_items = 1};
        }
    }
    return ONQ_OK;
}

onq_code oq_reader_open_random(const oq_reader_setup *s, uint64_t count, uint64_t seed,
                               oq_reader **out, onq_error *err) {
    for (size_t i = 0; i < s->inputs.n; i++) {
        const oq_io *io = &s->inputs.v[i];
        if ((io->kind != OQ_DATUM_TENSOR && io->kind != OQ_DATUM_SEQUENCE) ||
            oq_dtype_find(io->dtype) == NULL)
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "%s: random: input '%.*s' is not a tensor of a known type",
                           s->o->model->path, OQ_STR(io->name));
        if (!io->has_shape)
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "%s: random: the model does not say how many axes input '%.*s' has",
                           s->o->model->path, OQ_STR(io->name));
    }
    OQ_TRY(check_sizes(&s->inputs, err));
    random_reader *r = OQ_NEW(s->arena, random_reader);
    OQ_TRY_ALLOC(r != NULL, err);
    *r = (random_reader){.base = {.read = read_sample, .count = count, .random = true},
                         .inputs = s->inputs,
                         .o = s->o,
                         .seed = seed};
    r->base.text =
        oq_str_format(s->arena, "%" PRIu64 " sample%s of random values (seed %" PRIu64 ")", count,
                      OQ_NOUN_S(count), seed)
            .p;
    OQ_TRY_ALLOC(r->base.text != NULL, err);
    *out = &r->base;
    return ONQ_OK;
}
