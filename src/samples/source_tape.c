/*
 * source_tape.c — samples from a tape: its arrays go to the inputs of their names.
 */
#include "samples/source_private.h"

#include <inttypes.h>

typedef struct tape_reader {
    oq_reader base;
    oq_tape *tape;
    oq_ios inputs;
} tape_reader;

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
        if (found == NULL)
            return oq_fail(err, ONQ_E_INVALID, "input '%.*s' is missing", OQ_STR(want));
        out[i] = found->datum;
        used++;
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
    if (*name == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_tape_get(r->tape, number, &list, err));
    if (list != NULL && list->name != NULL)
        *name = oq_arena_strdup(a, list->name, strlen(list->name));
    if (*name == NULL)
        return oq_fail_nomem(err);
    base->ended = list == NULL;
    return list != NULL ? arrange(r, list, inputs, err) : ONQ_OK;
}

static void close_reader(oq_reader *base) {
    (void)base; /* the tape is another's */
}

onq_code oq_reader_open_tape(const oq_reader_setup *s, oq_reader **out, onq_error *err) {
    tape_reader *r = OQ_NEW(s->arena, tape_reader);
    if (r == NULL)
        return oq_fail_nomem(err);
    const uint64_t count = oq_tape_count(s->o->tape);
    *r = (tape_reader){.base = {.read = read_sample,
                                .close = close_reader,
                                .count = count > 0 ? count : UINT64_MAX,
                                .text = oq_tape_text(s->o->tape),
                                .tape = true},
                       .tape = s->o->tape,
                       .inputs = s->inputs};
    *out = &r->base;
    return ONQ_OK;
}
