/*
 * test_walk.c — models that go through sequences: first states, states that are carried, masks and
 * positions, tokens that are chosen; and sequences from all kinds of samples: order, ends, limits,
 * what is refused, memory that fails.
 */
#include "samples/sequence/steps.h"

#include "build_model.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <stdio.h>
#include <string.h>

static onq_error err;

/* ---- a decoder ---- */

static void make_decoder(bm *b) {
    bm_begin(b, NULL, 17);
    bm_input(b, "input_ids", OQ_INT64, "batch,length");
    bm_input(b, "attention_mask", OQ_INT64, "batch,total");
    bm_input(b, "position_ids", OQ_INT64, "batch,length");
    bm_input(b, "past_key_values.0.key", OQ_FLOAT, "batch,2,past,3");
    bm_output(b, "logits", OQ_FLOAT, "batch,length,4");
    bm_output(b, "present.0.key", OQ_FLOAT, "batch,2,total,3");
}

static void make_walker(const oq_model *m, oq_arena *a, oq_walker *w) {
    assert_ok(oq_model_inputs(m, a, &w->in, &err), err);
    assert_ok(oq_model_outputs(m, a, &w->out, &err), err);
    assert_ok(oq_roles_find(a, &w->in, &w->out, &w->roles, &err), err);
}

static oq_datum tensor(oq_dtype type, const void *data, const int64_t *dims, size_t rank) {
    oq_datum d = {.kind = OQ_DATUM_TENSOR, .dtype = type, .dims = dims, .rank = rank, .count = 1};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    assert_true(oq_dtype_bytes(type, d.count, &d.size_bytes));
    d.data = data;
    return d;
}

static void check_ints(const oq_datum *d, size_t n, const int64_t *want) {
    assert_int_equal(d->dtype, OQ_INT64);
    assert_int_equal(d->count, n);
    assert_memory_equal(d->data, want, n * sizeof *want);
}

typedef struct decoder {
    bm b;
    oq_arena arena;
    oq_walker walker;
    oq_walk walk;
} decoder;

static int setup(void **state) {
    decoder *d = test_calloc(1, sizeof *d);
    make_decoder(&d->b);
    oq_arena_init(&d->arena, oq_alloc_default());
    make_walker(d->b.m, &d->arena, &d->walker);
    oq_walk_init(&d->walk, &d->walker, oq_alloc_default());
    *state = d;
    return 0;
}

static int teardown(void **state) {
    decoder *d = *state;
    oq_walk_release(&d->walk);
    oq_arena_release(&d->arena);
    bm_end(&d->b);
    test_free(d);
    return 0;
}

static const int64_t TEXT_SIZE[] = {2, 3}, TEXT[] = {1, 2, 3, 0, 1, 2};
static const float LOGITS[24] = {[8] = 0, [9] = 1, [20] = 1, [23] = 2}; /* tokens 1 and 3 */
static const float PRESENT[2 * 2 * 4 * 3] = {[0] = 7};

/* One step of the decoder; `given` has four inputs. */
static oq_sample step(decoder *d, const oq_datum *given, uint64_t number, bool generated) {
    const oq_sample s = {
        .name = "s", .inputs = given, .n_inputs = 4, .step = number, .generated = generated};
    oq_sample full;
    assert_ok(oq_walk_fill(&d->walk, &s, &d->arena, &full, &err), err);
    return full;
}

static void take(decoder *d, const oq_sample *full, int64_t length, int64_t total) {
    const int64_t logits[] = {2, length, 4}, present[] = {2, 2, total, 3};
    const oq_datum out[] = {tensor(OQ_FLOAT, LOGITS, logits, 3),
                            tensor(OQ_FLOAT, PRESENT, present, 4)};
    assert_ok(oq_walk_take(&d->walk, full, out, 2, &err), err);
}

static void may_lack(void **state) {
    decoder *d = *state;
    bool is[4];
    oq_walker_may_lack(&d->walker, is);
    assert_true(!is[0] && is[1] && is[2] && is[3]);
}

static void first_and_next(void **state) {
    decoder *d = *state;
    const oq_datum given[4] = {tensor(OQ_INT64, TEXT, TEXT_SIZE, 2)}, none[4] = {0};
    oq_sample s = step(d, given, 0, false);
    check_ints(&s.inputs[1], 6, (const int64_t[]){1, 1, 1, 1, 1, 1});
    check_ints(&s.inputs[2], 6, (const int64_t[]){0, 1, 2, 0, 1, 2});
    const oq_datum *past = &s.inputs[3];
    assert_true(past->rank == 4 && past->dims[0] == 2 && past->dims[1] == 2 && past->dims[2] == 0 &&
                past->dims[3] == 3 && past->count == 0);
    assert_true(d->walk.made_states);
    take(d, &s, 3, 3);
    s = step(d, none, 1, true); /* the tokens that were preferred */
    check_ints(&s.inputs[0], 2, (const int64_t[]){1, 3});
    check_ints(&s.inputs[1], 8, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
    check_ints(&s.inputs[2], 2, (const int64_t[]){3, 3});
    assert_int_equal(s.inputs[3].dims[2], 3);
    assert_memory_equal(s.inputs[3].data, PRESENT, 4);
    take(d, &s, 1, 4);
    s = step(d, given, 0, false); /* another sequence begins anew */
    assert_int_equal(s.inputs[3].count, 0);
    assert_int_equal(s.inputs[1].dims[1], 3);
}

/* A sample that brings a mask: positions count its ones, and later steps add to it. */
static void padded(void **state) {
    decoder *d = *state;
    static const int64_t mask[] = {0, 1, 1, 1, 1, 0};
    const oq_datum given[4] = {tensor(OQ_INT64, TEXT, TEXT_SIZE, 2),
                               tensor(OQ_INT64, mask, TEXT_SIZE, 2)},
                   none[4] = {0};
    oq_sample s = step(d, given, 0, false);
    check_ints(&s.inputs[2], 6, (const int64_t[]){1, 0, 1, 0, 1, 1});
    take(d, &s, 3, 3);
    s = step(d, none, 1, true);
    check_ints(&s.inputs[0], 2, (const int64_t[]){1, 0}); /* after the last that is no padding */
    check_ints(&s.inputs[1], 8, (const int64_t[]){0, 1, 1, 1, 1, 1, 0, 1});
    check_ints(&s.inputs[2], 2, (const int64_t[]){2, 2});
}

/* States that the sample gives: the past has their length. */
static void given_states(void **state) {
    decoder *d = *state;
    static const int64_t size[] = {2, 2, 1, 3}, one[] = {2, 1};
    const oq_datum given[4] = {
        tensor(OQ_INT64, TEXT, one, 2), [3] = tensor(OQ_FLOAT, PRESENT, size, 4)};
    oq_sample s = step(d, given, 0, false);
    assert_ptr_equal(s.inputs[3].data, PRESENT);
    assert_int_equal(s.inputs[1].dims[1], 2);
    check_ints(&s.inputs[2], 2, (const int64_t[]){1, 1});
    assert_false(d->walk.made_states);
    take(d, &s, 1, 2);
    s = step(d, given, 1, false); /* a step that brings its states keeps them ... */
    assert_ptr_equal(s.inputs[3].data, PRESENT);
    d->walk.own_states = true; /* ... unless the model goes by itself */
    s = step(d, given, 1, false);
    assert_int_equal(s.inputs[3].dims[2], 2);
}

static void cannot_follow(void **state) {
    decoder *d = *state;
    const int64_t logits[] = {2, 3, 4}, present[] = {2, 4, 2, 3};
    const oq_datum given[4] = {tensor(OQ_INT64, TEXT, TEXT_SIZE, 2)};
    const oq_datum out[] = {tensor(OQ_FLOAT, LOGITS, logits, 3),
                            tensor(OQ_FLOAT, PRESENT, present, 4)};
    const oq_sample s = step(d, given, 0, false);
    assert_fails(oq_walk_take(&d->walk, &s, out, 2, &err), ONQ_E_INVALID, err,
                 "step 0: output 'present.0.key' cannot go to input 'past_key_values.0.key'");
    assert_non_null(strstr(err.text, "FLOAT[2,4,2,3]"));
    /* An empty one leaves the old in its place. */
    static const int64_t size[] = {2, 2, 1, 3}, none[] = {0, 2, 1, 3};
    const oq_datum with[4] = {given[0], [3] = tensor(OQ_FLOAT, PRESENT, size, 4)};
    const oq_datum empty[] = {out[0], tensor(OQ_FLOAT, PRESENT, none, 4)};
    const oq_sample t = step(d, with, 0, false);
    assert_ok(oq_walk_take(&d->walk, &t, empty, 2, &err), err);
    const oq_sample u = step(d, given, 1, false);
    assert_int_equal(u.inputs[3].dims[2], 1);
}

static void nothing_to_generate(void **state) {
    decoder *d = *state;
    const oq_datum none[4] = {0};
    const oq_sample s = {.name = "s", .inputs = none, .n_inputs = 4, .generated = true};
    oq_sample full;
    assert_fails(oq_walk_fill(&d->walk, &s, &d->arena, &full, &err), ONQ_E_INVALID, err,
                 "--generate is for language models");
}

/* ---- sequences: y = x + state, and that is the next state ---- */

typedef struct world {
    bm b;
    oq_arena arena;
    oq_walker walker;
    oq_tape *base, *tape;
    oq_source *source;
    /* of the reader */
    const char *marks; /* what each sample returns: "1", "2", "3"; "0" ends */
    size_t at;
    float value;
    onq_tensor in;
    float sum; /* of the model */
    int n_runs, n_closed;
    oq_datum out[2];
} world;

static const int64_t ONE[] = {1};

static onq_code world_open(world *w, const onq_allocator *alloc) {
    *w = (world){0};
    oq_arena_init(&w->arena, alloc != NULL ? alloc : oq_alloc_default());
    bm_begin(&w->b, alloc, 17);
    if (w->b.m == NULL)
        return oq_fail_nomem(&err);
    bm_input(&w->b, "x", OQ_FLOAT, "1");
    bm_input(&w->b, "h0", OQ_FLOAT, "1");
    bm_output(&w->b, "y", OQ_FLOAT, "1");
    bm_output(&w->b, "hn", OQ_FLOAT, "1");
    if (w->b.failed)
        return oq_fail_nomem(&err);
    OQ_TRY(oq_model_inputs(w->b.m, &w->arena, &w->walker.in, &err));
    OQ_TRY(oq_model_outputs(w->b.m, &w->arena, &w->walker.out, &err));
    return oq_roles_find(&w->arena, &w->walker.in, &w->walker.out, &w->walker.roles, &err);
}

static void world_close(world *w) {
    oq_source_close(w->source);
    oq_tape_free(w->tape);
    oq_tape_free(w->base);
    oq_arena_release(&w->arena);
    bm_end(&w->b);
}

static int next(void *ctx, const onq_tensor **inputs, size_t *n) {
    world *w = ctx;
    const char mark = w->marks[w->at];
    if (mark == '\0' || mark == '0')
        return 0;
    w->value = (float)++w->at;
    w->in = (onq_tensor){
        .name = "x", .dtype = OQ_FLOAT, .rank = 1, .dims = ONE, .data = &w->value, .size = 4};
    *inputs = &w->in;
    *n = 1;
    return mark - '0';
}

static int again(void *ctx) {
    ((world *)ctx)->at = 0;
    return 0;
}

static onq_code run(void *ctx, const oq_sample *s, const oq_datum **outputs, size_t *n,
                    onq_error *e) {
    world *w = ctx;
    (void)e;
    w->sum = *(const float *)s->inputs[0].data + *(const float *)s->inputs[1].data;
    w->out[0] = w->out[1] = tensor(OQ_FLOAT, &w->sum, ONE, 1);
    w->n_runs++;
    *outputs = w->out;
    *n = 2;
    return ONQ_OK;
}

static void closed(void *ctx) {
    ((world *)ctx)->n_closed++;
}

/* Sources over a reader whose samples return `marks`. */
static onq_code open_marks(world *w, const char *marks, const oq_source_options *more, bool raw) {
    oq_feed *feed = NULL;
    w->marks = marks;
    w->at = 0;
    oq_source_close(w->source);
    oq_tape_free(w->tape);
    oq_tape_free(w->base);
    w->source = NULL;
    w->tape = w->base = NULL;
    const onq_reader r = {.next = next, .ctx = w, .rewind = again};
    OQ_TRY(oq_feed_open_reader(w->b.env, &r, &feed, &err));
    OQ_TRY(oq_tape_new(w->b.env, feed, 1 << 20, &w->base, &err));
    const oq_source_options inner = {.model = w->b.m, .tape = w->base};
    const oq_steps_options o = {
        .source = &inner, .walker = &w->walker, .run = raw ? NULL : run, .close = closed, .ctx = w};
    OQ_TRY(oq_feed_open_steps(w->b.env, &o, &feed, &err));
    OQ_TRY(oq_tape_new(w->b.env, feed, 1 << 20, &w->tape, &err));
    static const bool all[] = {true, true};
    oq_source_options so = more != NULL ? *more : (oq_source_options){0};
    so.model = w->b.m;
    so.tape = w->tape;
    so.may_lack = raw ? all : NULL;
    return oq_source_open(w->b.env, &so, &w->source, &err);
}

/* A pass as "sequence.step:x+state" with a bar after the last step. */
static onq_code pass(world *w, char *text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    for (;;) {
        const oq_sample *s = NULL;
        OQ_TRY(oq_source_next(w->source, &s, &err));
        if (s == NULL)
            return ONQ_OK;
        n += (size_t)snprintf(text + n, size - n, "%s%d.%d:%g", n > 0 ? " " : "", (int)s->sequence,
                              (int)s->step, (double)*(const float *)s->inputs[0].data);
        if (s->inputs[1].kind == OQ_DATUM_TENSOR)
            n += (size_t)snprintf(text + n, size - n, "+%g",
                                  (double)*(const float *)s->inputs[1].data);
        if (s->last)
            n += (size_t)snprintf(text + n, size - n, "|");
    }
}

static void check_pass(world *w, const char *want) {
    char text[400];
    assert_ok(pass(w, text, sizeof text), err);
    assert_string_equal(text, want);
}

static void sequences(void **state) {
    world w;
    (void)state;
    assert_ok(world_open(&w, NULL), err);
    const char *steps = "0.0:1+0 0.1:2+1 0.2:3+3| 1.0:4+0| 2.0:5+0 2.1:6+5|";
    assert_ok(open_marks(&w, "332132", NULL, false), err);
    check_pass(&w, steps);
    assert_int_equal(w.n_runs, 3); /* no more than it takes */
    assert_int_equal(oq_source_count(w.source), 6);
    assert_ok(oq_source_seek(w.source, 0, &err), err);
    check_pass(&w, steps);
    assert_int_equal(w.n_runs, 3); /* they were kept */
    assert_ok(oq_source_seek(w.source, 4, &err), err);
    check_pass(&w, "2.0:5+0 2.1:6+5|");
    assert_ok(open_marks(&w, "332132", NULL, true), err);
    check_pass(&w, "0.0:1 0.1:2 0.2:3| 1.0:4| 2.0:5 2.1:6|");
    assert_int_equal(w.n_closed, 1);
    assert_ok(open_marks(&w, "111", NULL, false), err); /* samples by themselves */
    check_pass(&w, "0.0:1+0| 1.0:2+0| 2.0:3+0|");
    assert_int_equal(w.n_runs, 3);
    world_close(&w);
    assert_int_equal(w.n_closed, 3);
}

/* Limits and shares count sequences. */
static void shares(void **state) {
    static const struct {
        oq_source_options o;
        const char *want;
    } rows[] = {
        {{.limit = 2}, "0.0:1+0 0.1:2+1| 1.0:3+0|"},
        {{.share = 1, .n_shares = 2}, "1.0:3+0| 3.0:6+0|"},
        {{.hold_out = 2}, "0.0:1+0 0.1:2+1| 2.0:4+0 2.1:5+4|"},
        {{.share = 2, .n_shares = 3, .limit = 2}, ""},
    };
    world w;
    (void)state;
    assert_ok(world_open(&w, NULL), err);
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        assert_ok(open_marks(&w, "321321", &rows[i].o, false), err);
        check_pass(&w, rows[i].want);
    }
    assert_ok(open_marks(&w, "321321", &rows[1].o, false), err);
    assert_ok(oq_source_measure(w.source, &err), err);
    assert_int_equal(oq_source_count(w.source), 2);
    world_close(&w);
}

static void ends_in_the_middle(void **state) {
    world w;
    char text[200];
    (void)state;
    assert_ok(world_open(&w, NULL), err);
    assert_ok(open_marks(&w, "133", NULL, false), err);
    assert_fails(pass(&w, text, sizeof text), ONQ_E_INVALID, err,
                 "sequence 1 ends in the middle, after step 1");
    assert_ok(open_marks(&w, "31", NULL, false), err);
    assert_fails(pass(&w, text, sizeof text), ONQ_E_INVALID, err, "sequence 0 ends in the middle");
    world_close(&w);
}

static onq_code attempt(const onq_allocator *alloc, void *ctx, onq_error *e) {
    world w;
    char text[200];
    (void)ctx;
    oq_error_clear(&err);
    onq_code rc = world_open(&w, alloc);
    if (rc == ONQ_OK)
        rc = open_marks(&w, "3321", NULL, false);
    if (rc == ONQ_OK)
        rc = pass(&w, text, sizeof text);
    if (rc == ONQ_OK)
        assert_string_equal(text, "0.0:1+0 0.1:2+1 0.2:3+3| 1.0:4+0|");
    world_close(&w);
    *e = err;
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    flaky_sweep(attempt, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(may_lack, setup, teardown),
        cmocka_unit_test_setup_teardown(first_and_next, setup, teardown),
        cmocka_unit_test_setup_teardown(padded, setup, teardown),
        cmocka_unit_test_setup_teardown(given_states, setup, teardown),
        cmocka_unit_test_setup_teardown(cannot_follow, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_to_generate, setup, teardown),
        cmocka_unit_test(sequences),
        cmocka_unit_test(shares),
        cmocka_unit_test(ends_in_the_middle),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
