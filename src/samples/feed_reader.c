/*
 * feed_reader.c — a feed from a function of the caller.
 *
 * What the function gives is valid until it is called again, so a sample is copied, and its strides
 * are straightened on the way.
 */
#include "samples/tape.h"

typedef struct reader_feed {
    oq_feed base;
    onq_env *env;
    onq_reader reader;
    uint64_t sequence, step; /* of the sample that comes next */
} reader_feed;

/* ---- one tensor ---- */

static onq_code copy_texts(const onq_tensor *t, oq_arena *a, oq_datum *d, onq_error *err) {
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, d->count + 1);
    if (t->strings == NULL && d->count > 0)
        return oq_fail(err, ONQ_E_INVALID, "its texts are missing");
    OQ_TRY_ALLOC(texts != NULL, err);
    for (uint64_t i = 0; i < d->count; i++) {
        if (t->strings[i] == NULL)
            return oq_fail(err, ONQ_E_INVALID, "text %" PRIu64 " is missing", i);
        texts[i] = oq_str_copy(a, oq_str_of(t->strings[i]));
        OQ_TRY_ALLOC(texts[i].p != NULL, err);
    }
    d->strings = texts;
    return ONQ_OK;
}

/* Elements of `item` bytes in any order of memory into C order: the last axis in a loop, the others
 * as the digits of a counter. */
static void straighten(const onq_tensor *t, size_t item, uint64_t count, uint8_t *out) {
    const size_t last = t->rank - 1;
    const int64_t n = t->dims[last], step = t->strides[last];
    const uint8_t *row = t->data;
    int64_t at[OQ_TENSOR_RANK] = {0};
    for (uint64_t done = 0; done < count; done += (uint64_t)n) {
        const uint8_t *p = row;
        if (step == (int64_t)item)
            memcpy(out, p, (size_t)n * item);
        for (int64_t i = 0; step != (int64_t)item && i < n; i++, p += step)
            memcpy(out + (size_t)i * item, p, item);
        out += (size_t)n * item;
        for (size_t axis = last; axis-- > 0;) {
            row += t->strides[axis];
            if (++at[axis] < t->dims[axis])
                break;
            row -= t->strides[axis] * t->dims[axis];
            at[axis] = 0;
        }
    }
}

static onq_code copy_data(const onq_tensor *t, const oq_dtype_info *info, oq_arena *a, oq_datum *d,
                          onq_error *err) {
    uint64_t bytes = 0;
    if (!oq_dtype_bytes(d->dtype, d->count, &bytes))
        return oq_fail(err, ONQ_E_INVALID, "its size does not fit in 64 bits");
    if (t->strides != NULL && info->bits < 8)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "%s elements cannot have strides",
                       oq_dtype_name(d->dtype));
    if (t->strides == NULL && t->size != bytes)
        return oq_fail(err, ONQ_E_INVALID, "it has %zu bytes, but its shape and type need %" PRIu64,
                       t->size, bytes);
    if (t->data == NULL && bytes > 0)
        return oq_fail(err, ONQ_E_INVALID, "its data is missing");
    uint8_t *data = oq_arena_alloc(a, bytes + 1);
    OQ_TRY_ALLOC(data != NULL, err);
    if (bytes > 0 && (t->strides == NULL || t->rank == 0))
        memcpy(data, t->data, bytes);
    else if (bytes > 0)
        straighten(t, info->bits / 8, d->count, data);
    d->data = data;
    d->size_bytes = bytes;
    return ONQ_OK;
}

static onq_code copy_tensor(const onq_tensor *t, oq_arena *a, oq_datum *d, onq_error *err) {
    const oq_dtype_info *info = oq_dtype_find(t->dtype);
    *d = (oq_datum){.kind = OQ_DATUM_TENSOR, .rank = t->rank, .count = 1};
    if (info == NULL || t->dtype == OQ_UNDEFINED)
        return oq_fail(err, ONQ_E_INVALID, "%d is not an element type", (int)t->dtype);
    d->dtype = (oq_dtype)t->dtype;
    if (t->rank > OQ_TENSOR_RANK)
        return oq_fail(err, ONQ_E_LIMIT, "it has %zu axes, more than %d", t->rank, OQ_TENSOR_RANK);
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, t->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    for (size_t i = 0; i < t->rank; i++) {
        dims[i] = t->dims[i];
        if (dims[i] < 0 || !oq_mul(d->count, (uint64_t)dims[i], &d->count))
            return oq_fail(err, ONQ_E_INVALID, "its shape is not possible");
    }
    d->dims = dims;
    return t->dtype == OQ_STRING ? copy_texts(t, a, d, err) : copy_data(t, info, a, d, err);
}

/* ---- the feed ---- */

static void take_place(reader_feed *f, int got, oq_named_list *out) {
    out->sequence = f->sequence;
    out->step = f->step++;
    out->last = got != ONQ_READER_STEP;
    if (!out->last)
        return;
    f->sequence++;
    f->step = 0;
}

static onq_code reader_next(oq_feed *base, uint64_t number, oq_arena *a, oq_named_list *out,
                            bool *more, onq_error *err) {
    reader_feed *f = (reader_feed *)base;
    const onq_tensor *inputs = NULL;
    size_t n = 0;
    const int got = f->reader.next(f->reader.ctx, &inputs, &n);
    *more = got == ONQ_READER_SAMPLE || got == ONQ_READER_LAST || got == ONQ_READER_STEP;
    if (f->step > 0 && (got == ONQ_READER_END || got == ONQ_READER_SAMPLE))
        return oq_fail(err, ONQ_E_INVALID,
                       "reader: sequence %" PRIu64 " ends in the middle, after step %" PRIu64
                       " (its last step returns ONQ_READER_LAST)",
                       f->sequence, f->step - 1);
    if (got == ONQ_READER_END)
        return ONQ_OK;
    take_place(f, got, out);
    if (!*more)
        return oq_fail(err, ONQ_E_CANCEL,
                       "reader: sample '%" PRIu64 "': the reader stopped the job", number);
    for (size_t i = 0; i < n; i++) {
        oq_named one = {.name = {NULL, 0}};
        if (inputs[i].name == NULL)
            return oq_fail(err, ONQ_E_INVALID,
                           "reader: sample '%" PRIu64 "': tensor %zu has no name", number, i);
        one.name = oq_str_copy(a, oq_str_of(inputs[i].name));
        OQ_TRY_ALLOC(one.name.p != NULL, err);
        OQ_TRY_IN(copy_tensor(&inputs[i], a, &one.datum, err), err,
                  "reader: sample '%" PRIu64 "': input '%.*s'", number, OQ_STR(one.name));
        OQ_TRY_ALLOC(OQ_PUSH(a, &out->all, one), err);
    }
    return ONQ_OK;
}

static onq_code reader_rewind(oq_feed *base, onq_error *err) {
    reader_feed *f = (reader_feed *)base;
    f->sequence = f->step = 0;
    return f->reader.rewind(f->reader.ctx) == 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_CANCEL, "reader: could not begin again, and stopped the job");
}

static void reader_close(oq_feed *base) {
    reader_feed *f = (reader_feed *)base;
    oq_free(&f->env->alloc, f, sizeof *f);
}

onq_code oq_feed_open_reader(onq_env *env, const onq_reader *reader, oq_feed **out,
                             onq_error *err) {
    reader_feed *f = oq_calloc(&env->alloc, 1, sizeof *f);
    OQ_TRY_ALLOC(f != NULL, err);
    *f = (reader_feed){.base = {.next = reader_next,
                                .rewind = reader->rewind != NULL ? reader_rewind : NULL,
                                .close = reader_close,
                                .text = "reader",
                                .count = reader->count},
                       .env = env,
                       .reader = *reader};
    *out = &f->base;
    return ONQ_OK;
}
