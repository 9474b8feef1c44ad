/*
 * callback_source.c — see callback_source.h.
 */
#include "callback_source.h"

#include "samples/source_private.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct call_reader {
    oq_reader base;
    callback_source_fn fn;
    void *ctx;
    uint64_t each; /* steps of a sequence; 0: samples are by themselves */
} call_reader;

static onq_code call_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    const call_reader *r = (const call_reader *)base;
    if (r->each > 0) {
        base->place.number = number;
        base->place.sequence = number / r->each;
        base->place.step = number % r->each;
        base->place.last = base->place.step + 1 == r->each || number + 1 == base->count;
    }
    *name = oq_str_format(a, "%" PRIu64, number).p;
    if (*name == NULL)
        return oq_fail_nomem(err);
    return r->fn(r->ctx, number, a, inputs, err);
}

static void call_close(oq_reader *base) {
    free(base);
}

onq_code callback_source_open_steps(onq_env *env, const oq_source_options *o, callback_source_fn fn,
                                    void *ctx, uint64_t count, uint64_t each, oq_source **out,
                                    onq_error *err) {
    call_reader *r = malloc(sizeof *r);
    if (r == NULL)
        return oq_fail_nomem(err);
    *r = (call_reader){.base = {.read = call_sample,
                                .close = call_close,
                                .count = count,
                                .sequences = each > 0,
                                .text = "samples of the caller"},
                       .each = each,
                       .fn = fn,
                       .ctx = ctx};
    oq_source_options with = *o;
    with.reader = &r->base;
    const onq_code rc = oq_source_open(env, &with, out, err);
    if (rc != ONQ_OK)
        free(r);
    return rc;
}

onq_code callback_source_open(onq_env *env, const oq_source_options *o, callback_source_fn fn,
                              void *ctx, uint64_t count, oq_source **out, onq_error *err) {
    return callback_source_open_steps(env, o, fn, ctx, count, 0, out, err);
}
