/*
 * source_tape.c — samples from a tape: its arrays go to the inputs of their names.
 *
 * Where the tape has sequences, a limit, a share and what is held out count those: the reader notes
 * the numbers of the samples that are taken.
 */
#include "samples/source_private.h"

#include <inttypes.h>

typedef struct tape_reader {
    oq_reader base;
    oq_tape *tape;
    oq_ios inputs;
    const oq_source_options *o;
    oq_arena arena;
    OQ_VEC(uint64_t) numbers; /* of the samples that are taken, as far as is known */
    uint64_t next;            /* the sample of the tape to look at next */
} tape_reader;

/* ---- which samples are taken ---- */

typedef enum verdict { TAKEN, PASSED_OVER, PAST_END } verdict;

static verdict judge(const oq_source_options *o, uint64_t sequence) {
    if (o->numbers != NULL) /* the source counts those */
        return TAKEN;
    if (o->limit > 0 && sequence >= o->limit)
        return PAST_END;
    if (o->hold_out > 1 && sequence % o->hold_out == o->hold_out - 1)
        return PASSED_OVER;
    if (o->hold_out > 1)
        sequence -= sequence / o->hold_out;
    return o->n_shares == 0 || sequence % o->n_shares == o->share ? TAKEN : PASSED_OVER;
}

/* How many of the first n sequences are taken. */
static uint64_t count_taken(const oq_source_options *o, uint64_t n) {
    if (o->limit > 0 && n > o->limit)
        n = o->limit;
    if (o->hold_out > 1)
        n -= n / o->hold_out;
    if (o->n_shares == 0)
        return n;
    return o->share < n ? (n - o->share - 1) / o->n_shares + 1 : 0;
}

/* Looks for one more; *out is NULL at the end. */
static onq_code look_further(tape_reader *r, const oq_named_list **out, onq_error *err) {
    for (;; r->next++) {
        OQ_TRY(oq_tape_get(r->tape, r->next, out, err));
        if (*out == NULL)
            return ONQ_OK;
        r->base.any = true;
        const verdict v = judge(r->o, (*out)->sequence);
        if (v == PAST_END)
            *out = NULL;
        if (v == PAST_END)
            return ONQ_OK;
        if (v == TAKEN)
            break;
    }
    return OQ_PUSH(&r->arena, &r->numbers, r->next++) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_reader_find(oq_reader *base, oq_tape *tape, uint64_t k, const oq_named_list **out,
                        onq_error *err) {
    tape_reader *r = (tape_reader *)base;
    *out = NULL;
    base->place.number = k;
    if (!base->sequences)
        return oq_tape_get(tape, k, out, err);
    if (k < r->numbers.n)
        OQ_TRY(oq_tape_get(tape, r->numbers.v[k], out, err));
    while (k >= r->numbers.n) {
        OQ_TRY(look_further(r, out, err));
        if (*out == NULL)
            return ONQ_OK;
    }
    base->place.number = r->numbers.v[k];
    return ONQ_OK;
}

/* ---- samples ---- */

static onq_code fail_unknown(const tape_reader *r, oq_str name, onq_error *err) {
    char known[300];
    size_t n = 0;
    known[0] = '\0';
    for (size_t i = 0; i < r->inputs.n && n + 70 < sizeof known; i++) {
        const oq_str have = r->inputs.v[i].name;
        if (i > 0)
            n += oq_text_escape(known + n, sizeof known - n, ", ", 2);
        n += oq_text_escape(known + n, sizeof known - n, have.p, have.n < 60 ? have.n : 60);
    }
    return oq_fail(err, ONQ_E_INVALID, "the model takes no input '%.*s' (it takes: %s)",
                   OQ_STR(name), known[0] != '\0' ? known : "none");
}

/* The datum of an input; arrays given twice and arrays of no input are errors. */
static onq_code arrange(const tape_reader *r, const oq_named_list *list, oq_datum *out,
                        onq_error *err) {
    size_t used = 0;
    for (size_t i = 0; i < r->inputs.n; i++) {
        const oq_str want = r->inputs.v[i].name;
        const oq_named *found = NULL;
        for (size_t k = 0; k < list->all.n; k++) {
            if (!oq_str_eq(list->all.v[k].name, want))
                continue;
            if (found != NULL)
                return oq_fail(err, ONQ_E_INVALID, "input '%.*s' is given twice", OQ_STR(want));
            found = &list->all.v[k];
        }
        if (found == NULL && !oq_may_lack(r->o, i))
            return oq_fail(err, ONQ_E_INVALID, "input '%.*s' is missing", OQ_STR(want));
        out[i] = found != NULL ? found->datum : (oq_datum){0};
        used += found != NULL;
    }
    for (size_t k = 0; used < list->all.n && k < list->all.n; k++) {
        bool known = false;
        for (size_t i = 0; i < r->inputs.n; i++)
            known |= oq_str_eq(list->all.v[k].name, r->inputs.v[i].name);
        if (!known)
            return fail_unknown(r, list->all.v[k].name, err);
    }
    return ONQ_OK;
}

static onq_code read_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    tape_reader *r = (tape_reader *)base;
    const oq_named_list *list = NULL;
    *name = oq_str_format(a, "%" PRIu64, number).p;
    OQ_TRY_ALLOC(*name != NULL, err);
    OQ_TRY(oq_reader_find(base, r->tape, number, &list, err));
    if (list != NULL && list->name != NULL)
        *name = oq_arena_strdup(a, list->name, strlen(list->name));
    OQ_TRY_ALLOC(*name != NULL, err);
    base->ended = list == NULL;
    if (list != NULL) {
        base->place.sequence = list->sequence;
        base->place.step = list->step;
        base->place.last = list->last;
        base->place.generated = list->generated;
    }
    return list != NULL ? arrange(r, list, inputs, err) : ONQ_OK;
}

/* The tape is another's. */
static void close_reader(oq_reader *base) {
    oq_arena_release(&((tape_reader *)base)->arena);
}

/* Samples of one pass as far as that is known. */
static uint64_t count_of(const oq_reader_setup *s) {
    const uint64_t count = oq_tape_count(s->o->tape);
    const oq_feed *f = oq_tape_feed(s->o->tape);
    if (count == 0)
        return UINT64_MAX;
    if (!f->sequences)
        return count;
    const bool all =
        s->o->numbers != NULL || (s->o->limit == 0 && s->o->hold_out <= 1 && s->o->n_shares == 0);
    return all ? count : f->each > 0 ? count_taken(s->o, count / f->each) * f->each : UINT64_MAX;
}

onq_code oq_reader_open_tape(const oq_reader_setup *s, oq_reader **out, onq_error *err) {
    tape_reader *r = OQ_NEW(s->arena, tape_reader);
    OQ_TRY_ALLOC(r != NULL, err);
    *r = (tape_reader){.base = {.read = read_sample,
                                .close = close_reader,
                                .count = count_of(s),
                                .text = oq_tape_text(s->o->tape),
                                .random = oq_tape_feed(s->o->tape)->random,
                                .images = oq_tape_feed(s->o->tape)->images,
                                .sequences = oq_tape_feed(s->o->tape)->sequences,
                                .tape = true},
                       .tape = s->o->tape,
                       .o = s->o,
                       .inputs = s->inputs};
    oq_arena_init(&r->arena, &s->env->alloc);
    *out = &r->base;
    return ONQ_OK;
}
