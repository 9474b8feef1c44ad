/*
 * test_slicer.c — a graph that is run in parts computes what it does when it is run as a whole:
 * from kept tensors, stop by stop, and from cuts after a change, in much memory and in little.
 */
#include "engine/slice/cuts.h"
#include "engine/slice/stepper.h"

#include "build_model.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "onnx/tensor.h"
#include "testing.h"

#include <stdio.h>

enum { LAYERS = 12, SAMPLES = 3, WIDE = 6 };

static const float one = 1;

typedef struct fixture {
    bm b;
    fake_engine engine;
    oq_source *source;
    float factors[LAYERS];
    oq_slicer *slicer;
    oq_stepper *stepper;
} fixture;

/* Layers t<k> = relu(t<k-1> * f<k>) + t<k-1>, where the factor is dequantized. */
static void build(fixture *f) {
    bm *b = &f->b;
    const uint8_t zero = 0, number = 3;
    bm_input(b, "t0", OQ_FLOAT, "2,3");
    bm_raw(b, "zero", OQ_UINT8, "", &zero, 1);
    bm_raw(b, "number", OQ_UINT8, "", &number, 1);
    bm_f32(b, "unused", "", &one);
    for (int k = 1; k <= LAYERS; k++) {
        char scale[16], factor[16], in[64], product[16], positive[16], out[16];
        f->factors[k - 1] = 0.1f * (float)(k % 5 + 1);
        snprintf(scale, sizeof scale, "s%d", k);
        snprintf(factor, sizeof factor, "f%d", k);
        snprintf(product, sizeof product, "p%d", k);
        snprintf(positive, sizeof positive, "r%d", k);
        snprintf(out, sizeof out, "t%d", k);
        oq_tensor *t = bm_f32(b, scale, "", &f->factors[k - 1]);
        if (t != NULL) /* not a copy: tests change it */
            oq_tensor_set_view(t, (const uint8_t *)&f->factors[k - 1], sizeof(float));
        snprintf(in, sizeof in, "number s%d zero", k);
        bm_node(b, "DequantizeLinear", factor, in, factor, "");
        snprintf(in, sizeof in, "t%d f%d", k - 1, k);
        bm_node(b, "Mul", product, in, product, "");
        bm_node(b, "Relu", positive, product, positive, "");
        snprintf(in, sizeof in, "r%d t%d", k, k - 1);
        bm_node(b, "Add", out, in, out, "");
    }
    bm_output(b, "p2", OQ_FLOAT, "2,3");
    bm_output(b, "t12", OQ_FLOAT, "2,3");
}

static onq_code open_fixture(fixture *f, const onq_allocator *a, onq_error *err) {
    *f = (fixture){0};
    bm_begin(&f->b, a, 13);
    if (!f->b.failed)
        build(f);
    if (f->b.failed)
        return oq_fail_nomem(err);
    fake_engine_init(&f->engine, f->b.env);
    const oq_source_options o = {.spec = "random:3:1", .model = f->b.m};
    return oq_source_open(f->b.env, &o, &f->source, err);
}

static void close_fixture(fixture *f) {
    oq_stepper_free(f->stepper);
    oq_slicer_close(f->slicer);
    oq_source_close(f->source);
    bm_end(&f->b);
}

static oq_slicer_options options_of(fixture *f) {
    return (oq_slicer_options){.engine = &f->engine.base, .model = f->b.m, .proto = f->b.m->proto};
}

static onq_code open_slicer(fixture *f, onq_error *err) {
    const oq_slicer_options o = options_of(f);
    OQ_TRY(oq_slicer_open(&o, &f->slicer, err));
    return oq_slicer_load(f->slicer, f->source, SAMPLES, UINT64_MAX, NULL, err);
}

static uint32_t value(const fixture *f, const char *name) {
    const uint32_t v = oq_slicer_value(f->slicer, oq_str_of(name));
    assert_true(v != OQ_NO_VALUE);
    return v;
}

static uint32_t node(const fixture *f, const char *name) {
    for (uint32_t i = 0; i < f->b.g->node.n; i++)
        if (oq_str_is(f->b.g->node.v[i]->name, name))
            return i;
    fail();
    return 0;
}

static onq_code copy(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    (void)index;
    (void)err;
    assert_int_equal(d->count, WIDE);
    memcpy(ctx, d->data, WIDE * sizeof(float));
    return ONQ_OK;
}

/* What the whole graph makes of the named tensor, of all samples. */
static void run_whole(fixture *f, const char *name, float out[SAMPLES][WIDE]) {
    const oq_str observed = oq_str_of(name);
    oq_observer observer = {&observed, 1, copy, NULL};
    const oq_session_options o = {.model = f->b.m, .observer = &observer};
    oq_session *s = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_session_open(&f->engine.base, &o, &s, &err), err);
    assert_ok(oq_source_seek(f->source, 0, &err), err);
    for (int i = 0; i < SAMPLES; i++) {
        const oq_sample *sample = NULL;
        observer.ctx = out[i];
        assert_ok(oq_source_next(f->source, &sample, &err), err);
        assert_ok(oq_session_run(s, sample->inputs, 1, NULL, &err), err);
    }
    oq_session_close(s);
}

static void assert_same(const oq_datum *d, const float want[WIDE]) {
    assert_non_null(d);
    assert_int_equal(d->count, WIDE);
    assert_memory_equal(d->data, want, WIDE * sizeof(float));
}

/* ---- slices ---- */

static void slice_runs_from_what_is_at_hand(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    oq_slice p = {0};
    float want[SAMPLES][WIDE], end[SAMPLES][WIDE];
    assert_ok(open_fixture(&f, NULL, &err), err);
    run_whole(&f, "t3", want);
    run_whole(&f, "t5", end);
    assert_ok(open_slicer(&f, &err), err);
    assert_int_equal(f.slicer->n_samples, SAMPLES);
    const uint32_t t3 = value(&f, "t3"), t5 = value(&f, "t5");
    for (size_t i = 0; i < SAMPLES; i++)
        assert_ok(oq_slicer_keep(f.slicer, t3, i,
                                 &(oq_datum){.kind = OQ_DATUM_TENSOR,
                                             .dtype = OQ_FLOAT,
                                             .rank = 2,
                                             .dims = (const int64_t[]){2, 3},
                                             .count = WIDE,
                                             .data = want[i],
                                             .size_bytes = sizeof want[i]},
                                 &err),
                  err);
    uint32_t both[] = {t3, t5};
    const oq_numbers wanted = {both, 2, 2};
    assert_ok(oq_slice_make(f.slicer, &wanted, OQ_EVERY_PLACE, &p, &err), err);
    assert_int_equal(p.in.n, 1); /* not t0, which is at hand too */
    assert_int_equal(p.out.n, 1);
    assert_int_equal(p.model.proto->graph->node.n, 8);        /* two layers */
    assert_int_equal(p.model.proto->graph->initializer.n, 4); /* two scales, the number, the zero */
    assert_ok(oq_slice_open(&p, OQ_OPT_NONE, &err), err);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_ok(oq_slice_run(&p, NULL, i, &err), err);
        assert_same(oq_slice_given(&p, t5), end[i]);
        assert_null(oq_slice_given(&p, t3));
        assert_same(oq_slicer_kept(f.slicer, t3, i), want[i]);
    }
    oq_slice q = {0}; /* from a place where t3 is not made yet */
    assert_ok(oq_slice_make(f.slicer, &wanted, oq_slicer_made_at(f.slicer, t3), &q, &err), err);
    assert_int_equal(q.out.n, 2);
    assert_int_equal(q.model.proto->graph->node.n, 4 * 5);
    oq_slice_close(&q);
    oq_slicer_drop_one(f.slicer, t3, 1);
    assert_int_equal(oq_slice_run(&p, NULL, 1, &err), ONQ_E_RUNTIME);
    assert_non_null(strstr(err.text, "'t3'"));
    oq_slice_close(&p);
    oq_slice_close(&p);
    assert_int_equal(f.engine.n_open, 0);
    close_fixture(&f);
}

static void slice_that_gives_nothing_needs_no_session(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    oq_slice p = {0}, q = {0};
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_slicer(&f, &err), err);
    uint32_t t0 = value(&f, "t0");
    assert_ok(oq_slice_make(f.slicer, &(oq_numbers){&t0, 1, 1}, 0, &p, &err), err);
    assert_ok(oq_slice_open(&p, OQ_OPT_NONE, &err), err);
    assert_ok(oq_slice_share(&p, &q, &err), err);
    assert_ok(oq_slice_run(&q, NULL, 0, &err), err);
    assert_int_equal(f.engine.n_sessions, 0);
    oq_slice_close(&q);
    oq_slice_close(&p);
    close_fixture(&f);
}

static void texts_are_kept_too(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_slicer(&f, &err), err);
    oq_str words[2] = {OQ_S("one"), OQ_S("two")};
    const int64_t dims[1] = {2};
    const oq_datum text = {.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_STRING,
                           .rank = 1,
                           .dims = dims,
                           .count = 2,
                           .strings = words};
    const uint64_t before = f.slicer->bytes;
    const uint32_t t1 = value(&f, "t1");
    assert_ok(oq_slicer_keep(f.slicer, t1, 2, &text, &err), err);
    words[0] = OQ_S("changed");
    assert_true(oq_str_is(oq_slicer_kept(f.slicer, t1, 2)->strings[0], "one"));
    assert_null(oq_slicer_kept(f.slicer, t1, 1));
    assert_true(f.slicer->bytes > before);
    oq_slicer_drop(f.slicer, t1);
    assert_true(f.slicer->bytes == before);
    close_fixture(&f);
}

static void constants_come_before_their_readers(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(open_fixture(&f, NULL, &err), err);
    for (size_t i = 0; i < LAYERS; i++) { /* every DequantizeLinear to the front */
        oq_node *dq = f.b.g->node.v[4 * i];
        memmove(&f.b.g->node.v[i + 1], &f.b.g->node.v[i], (3 * i) * sizeof dq);
        f.b.g->node.v[i] = dq;
    }
    assert_ok(open_slicer(&f, &err), err);
    const oq_slicer *s = f.slicer;
    for (int k = 1; k <= LAYERS; k++) {
        char factor[16], product[16];
        snprintf(factor, sizeof factor, "f%d", k);
        snprintf(product, sizeof product, "p%d", k);
        assert_false(s->varies[node(&f, factor)]);
        assert_true(s->varies[node(&f, product)]);
        assert_int_equal(s->place[node(&f, factor)] + 1, s->place[node(&f, product)]);
    }
    close_fixture(&f);
}

/* ---- stop by stop ---- */

typedef struct looking {
    float seen[SAMPLES][WIDE];
    size_t n;
} looking;

static onq_code look(void *ctx, size_t sample, const oq_datum *d, onq_error *err) {
    looking *l = ctx;
    (void)err;
    assert_int_equal(d->count, WIDE);
    memcpy(l->seen[sample], d->data, sizeof l->seen[sample]);
    l->n++;
    return ONQ_OK;
}

static const uint32_t stops[] = {4 * 2 + 1, 4 * 6 + 1, 4 * 9 + 1}; /* p3, p7, p10 */
static const char *const at_stops[] = {"p3", "p7", "p10"};

static onq_code open_settled(fixture *f, const uint32_t *settled, uint64_t memory, onq_error *err) {
    const oq_stepper_options o = {.slice = options_of(f),
                                  .stops = stops,
                                  .n_stops = OQ_COUNT(stops),
                                  .settled = settled,
                                  .memory = memory};
    return oq_stepper_new(&o, f->source, &f->stepper, err);
}

static onq_code open_stepper(fixture *f, uint64_t memory, onq_error *err) {
    return open_settled(f, NULL, memory, err);
}

static void stops_see_the_changes_before_them(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_stepper(&f, UINT64_MAX, &err), err);
    for (size_t k = 0; k < OQ_COUNT(stops); k++) {
        const oq_str name = oq_str_of(at_stops[k]), input = f.b.g->node.v[stops[k]]->input.v[0];
        float want[SAMPLES][WIDE];
        looking l = {0}, again = {0};
        run_whole(&f, at_stops[k], want);
        assert_ok(oq_stepper_go(f.stepper, k, &name, 1, look, &l, &err), err);
        assert_int_equal(l.n, SAMPLES);
        assert_memory_equal(l.seen, want, sizeof want);
        assert_ok(oq_stepper_go(f.stepper, k, &input, 1, look, &again, &err), err);
        char in[16];
        snprintf(in, sizeof in, "%.*s", OQ_STR(input));
        run_whole(&f, in, want);
        assert_memory_equal(again.seen, want, sizeof want);
        f.factors[stops[k] / 4] *= 2; /* the stop's own */
    }
    assert_int_equal(f.engine.n_open, 0);
    close_fixture(&f);
}

/* Nodes are run in a part of the graph, not from its beginning. */
static void stops_cost_what_lies_between(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    looking l = {0};
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_stepper(&f, UINT64_MAX, &err), err);
    for (size_t k = 0; k < OQ_COUNT(stops); k++) {
        const oq_str name = oq_str_of(at_stops[k]);
        const long before = f.engine.n_nodes;
        assert_ok(oq_stepper_go(f.stepper, k, &name, 1, look, &l, &err), err);
        const long layers = k == 0 ? 2 : stops[k] / 4 - stops[k - 1] / 4;
        assert_int_equal(f.engine.n_nodes - before, SAMPLES * (4 * layers + 2));
    }
    close_fixture(&f);
}

/* What no change reaches any more is run once if memory holds it, and twice if not; the samples and
 * what is seen of them are the same. */
static void settled_results_are_kept(void **state) {
    (void)state;
    /* The stops themselves, and the products before them. */
    static const uint32_t settled[][3] = {{9, 25, 37}, {5, 21, 33}, {OQ_NO_NODE, 25, OQ_NO_NODE}};
    static const uint64_t memories[] = {UINT64_MAX, 2500, 1200, 700, 0};
    for (size_t c = 0; c < OQ_COUNT(settled); c++)
        for (size_t m = 0; m < OQ_COUNT(memories); m++) {
            looking seen[2][3] = {0};
            size_t samples[2] = {0};
            long nodes[2] = {0};
            for (int with = 0; with < 2; with++) {
                fixture f;
                onq_error err = ONQ_ERROR_INIT;
                assert_ok(open_fixture(&f, NULL, &err), err);
                assert_ok(open_settled(&f, with ? settled[c] : NULL, memories[m], &err), err);
                for (size_t k = 0; k < OQ_COUNT(stops); k++) {
                    const oq_str name = oq_str_of(at_stops[k]);
                    assert_ok(oq_stepper_go(f.stepper, k, &name, 1, look, &seen[with][k], &err),
                              err);
                }
                nodes[with] = f.engine.n_nodes;
                samples[with] = oq_stepper_samples(f.stepper);
                close_fixture(&f);
            }
            assert_int_equal(samples[0], samples[1]);
            assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
            if (m == 0 && c != 1) /* the product and its factor; nothing follows the last stop */
                assert_int_equal(nodes[0] - nodes[1], SAMPLES * (c == 0 ? 4 : 2));
            else if (memories[m] < 1000)
                assert_int_equal(nodes[0], nodes[1]);
        }
}

/* A stop that is far away: several sessions, each with a few of the layers, and the same values. */
static void a_long_way_is_gone_in_parts(void **state) {
    (void)state;
    const uint32_t last = 4 * LAYERS - 3; /* the product of the last layer */
    for (uint64_t at_once = 6; at_once <= 1000; at_once = at_once < 12 ? 12 : at_once * 90) {
        fixture f;
        onq_error err = ONQ_ERROR_INIT;
        float want[SAMPLES][WIDE];
        looking l = {0};
        const oq_str name = OQ_S("t11");
        assert_ok(open_fixture(&f, NULL, &err), err);
        run_whole(&f, "t11", want);
        const long sessions = f.engine.n_sessions, nodes = f.engine.n_nodes;
        const oq_stepper_options o = {.slice = options_of(&f),
                                      .stops = &last,
                                      .n_stops = 1,
                                      .memory = UINT64_MAX,
                                      .at_once = at_once};
        assert_ok(oq_stepper_new(&o, f.source, &f.stepper, &err), err);
        assert_ok(oq_stepper_go(f.stepper, 0, &name, 1, look, &l, &err), err);
        assert_int_equal(l.n, SAMPLES);
        assert_memory_equal(l.seen, want, sizeof want);
        const long opened = f.engine.n_sessions - sessions;
        assert_true(at_once > 100 ? opened == 1 : at_once > 6 ? opened >= 3 : opened >= 5);
        assert_in_range(f.engine.n_nodes - nodes, SAMPLES * 4 * 11, SAMPLES * 5 * 11);
        assert_int_equal(f.engine.n_open, 0);
        close_fixture(&f);
    }
}

static void little_memory_lets_samples_go(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    const oq_str name = OQ_S("p3"), other = OQ_S("p7");
    looking l = {0};
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_stepper(&f, 700, &err), err); /* two inputs, or one with something beside it */
    assert_int_equal(oq_stepper_samples(f.stepper), 2);
    assert_ok(oq_stepper_go(f.stepper, 0, &name, 1, look, &l, &err), err);
    assert_ok(oq_stepper_go(f.stepper, 1, &other, 1, look, &l, &err), err);
    assert_true(oq_stepper_samples(f.stepper) >= 1 && oq_stepper_samples(f.stepper) <= 2);
    oq_stepper_free(f.stepper);
    assert_ok(open_stepper(&f, 0, &err), err);
    assert_int_equal(oq_stepper_samples(f.stepper), 1);
    l.n = 0;
    assert_ok(oq_stepper_go(f.stepper, 0, &name, 1, look, &l, &err), err);
    assert_int_equal(l.n, 1);
    close_fixture(&f);
}

static void failed_run_comes_back(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    const oq_str name = OQ_S("p3");
    looking l = {0};
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_stepper(&f, UINT64_MAX, &err), err);
    f.engine.fail_at_run = 2;
    assert_int_equal(oq_stepper_go(f.stepper, 0, &name, 1, look, &l, &err), ONQ_E_RUNTIME);
    assert_int_equal(l.n, 1);
    assert_int_equal(f.engine.n_open, 0);
    close_fixture(&f);
}

/* ---- cuts ---- */

/* Doubles a factor and runs what that changes; the outputs must be those of the whole graph. */
static void change_layer(fixture *f, const oq_cuts *c, int layer, oq_change *change) {
    bool changed[4 * LAYERS] = {0};
    float early[SAMPLES][WIDE], late[SAMPLES][WIDE];
    char name[16];
    onq_error err = ONQ_ERROR_INIT;
    oq_slice head = {0}, tail = {0};
    oq_arena scratch;
    oq_arena_init(&scratch, &f->b.env->alloc);
    snprintf(name, sizeof name, "f%d", layer);
    changed[node(f, name)] = true;
    f->factors[layer - 1] *= 2;
    run_whole(f, "p2", early);
    run_whole(f, "t12", late);
    assert_ok(oq_cuts_find(c, changed, &scratch, change, &err), err);
    assert_true(change->out.n > 0);
    assert_ok(oq_cuts_head(c, change, &head, &err), err);
    assert_ok(oq_slice_open(&head, OQ_OPT_NONE, &err), err);
    if (change->tail) {
        assert_ok(oq_cuts_tail(c, change->end, &tail, &err), err);
        assert_ok(oq_slice_open(&tail, OQ_OPT_NONE, &err), err);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        const uint32_t v[] = {value(f, "p2"), value(f, "t12")};
        assert_ok(oq_slice_run(&head, NULL, i, &err), err);
        assert_ok(oq_slice_run(&tail, &head, i, &err), err);
        for (int k = 0; k < 2; k++) {
            const oq_datum *d = oq_slice_given(&head, v[k]);
            d = d != NULL ? d : oq_slice_given(&tail, v[k]);
            d = d != NULL ? d : oq_slicer_kept(f->slicer, v[k], i);
            assert_same(d, k == 0 ? early[i] : late[i]);
        }
    }
    oq_slice_close(&tail);
    oq_slice_close(&head);
    f->factors[layer - 1] /= 2;
    oq_arena_release(&scratch);
}

static void change_runs_from_cut_to_cut(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    oq_cuts c;
    oq_change change;
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_slicer(&f, &err), err);
    assert_ok(oq_cuts_make(&c, f.slicer, UINT64_MAX, &err), err);
    assert_true(c.n > 10);
    for (int layer = 1; layer <= LAYERS; layer++) {
        const uint32_t at = f.slicer->place[node(&f, "f1") + 4 * (uint32_t)(layer - 1)];
        change_layer(&f, &c, layer, &change);
        assert_true(c.place[change.begin] <= at && c.place[change.end] > at);
        assert_true(change.end - change.begin <= 4); /* about a layer, not the graph */
        assert_true(change.tail == (change.end + 1 < c.n));
    }
    assert_int_equal(f.engine.n_open, 0);
    close_fixture(&f);
}

static void unread_change_runs_nothing(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    oq_cuts c;
    oq_change change;
    bool changed[4 * LAYERS + 1] = {0};
    assert_ok(open_fixture(&f, NULL, &err), err);
    bm_node(&f.b, "Neg", "nobody", "t4", "nobody", "");
    assert_ok(open_slicer(&f, &err), err);
    assert_ok(oq_cuts_make(&c, f.slicer, UINT64_MAX, &err), err);
    assert_ok(oq_cuts_find(&c, changed, &f.slicer->arena, &change, &err), err);
    assert_true(change.out.n == 0 && !change.tail);
    changed[node(&f, "nobody")] = true;
    assert_ok(oq_cuts_find(&c, changed, &f.slicer->arena, &change, &err), err);
    assert_true(change.out.n == 0 && !change.tail);
    close_fixture(&f);
}

/* An Identity in the place of a node reads something else than the node did. */
static void rewired_node_reads_what_it_is_told(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    oq_cuts c;
    oq_change change;
    oq_slice p = {0};
    float want[SAMPLES][WIDE];
    bool changed[4 * LAYERS] = {0};
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_slicer(&f, &err), err);
    assert_ok(oq_cuts_make(&c, f.slicer, 0, &err), err);
    oq_node *const n = f.b.g->node.v[node(&f, "t7")];
    uint32_t t5 = value(&f, "t5");
    const oq_numbers before = oq_slicer_rewire(f.slicer, node(&f, "t7"), (oq_numbers){&t5, 1, 1});
    assert_int_equal(before.n, 2);
    n->op_type = OQ_S("Identity");
    n->input.v[0] = OQ_S("t5");
    n->input.n = 1;
    run_whole(&f, "t12", want);
    changed[node(&f, "t7")] = true;
    assert_ok(oq_cuts_find(&c, changed, &f.slicer->arena, &change, &err), err);
    assert_ok(oq_cuts_head(&c, &change, &p, &err), err);
    assert_int_equal(p.model.proto->graph->node.n, 4 * (LAYERS - 2) + 1); /* layers 6 and 7 less */
    assert_ok(oq_slice_open(&p, OQ_OPT_NONE, &err), err);
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_ok(oq_slice_run(&p, NULL, i, &err), err);
        assert_same(oq_slice_given(&p, value(&f, "t12")), want[i]);
    }
    oq_slice_close(&p);
    close_fixture(&f);
}

static void little_memory_takes_cuts(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    size_t before = SIZE_MAX;
    assert_ok(open_fixture(&f, NULL, &err), err);
    for (uint64_t memory = 8192; memory > 0; memory /= 4) {
        oq_cuts c;
        oq_change change;
        assert_ok(open_slicer(&f, &err), err);
        assert_ok(oq_cuts_make(&c, f.slicer, memory, &err), err);
        assert_true(c.n < before || c.n == 2);
        assert_true(c.place[0] == 0 && c.place[c.n - 1] == 4 * LAYERS);
        before = c.n;
        change_layer(&f, &c, 6, &change);
        oq_slicer_close(f.slicer);
        f.slicer = NULL;
    }
    assert_int_equal(before, 2);
    close_fixture(&f);
}

static void runtime_that_refuses_gets_no_cuts(void **state) {
    (void)state;
    fixture f;
    onq_error err = ONQ_ERROR_INIT;
    oq_cuts c;
    oq_change change;
    assert_ok(open_fixture(&f, NULL, &err), err);
    assert_ok(open_slicer(&f, &err), err);
    f.engine.fail_at_run = 2;
    assert_ok(oq_cuts_make(&c, f.slicer, UINT64_MAX, &err), err);
    assert_int_equal(c.n, 2);
    change_layer(&f, &c, 3, &change);
    assert_false(change.tail);
    close_fixture(&f);
}

/* ---- memory ---- */

static onq_code body(const onq_allocator *a, void *ctx, onq_error *err) {
    fixture f;
    oq_cuts c;
    oq_change change;
    oq_slice head = {0}, tail = {0}, other = {0};
    bool changed[4 * LAYERS] = {[4 * 5] = true};
    looking l = {0};
    const oq_str name = OQ_S("p3");
    (void)ctx;
    onq_code rc = open_fixture(&f, a, err);
    if (rc == ONQ_OK)
        rc = open_stepper(&f, UINT64_MAX, err);
    if (rc == ONQ_OK)
        rc = oq_stepper_go(f.stepper, 0, &name, 1, look, &l, err);
    if (rc == ONQ_OK)
        rc = open_slicer(&f, err);
    if (rc == ONQ_OK)
        rc = oq_cuts_make(&c, f.slicer, UINT64_MAX, err);
    if (rc == ONQ_OK)
        rc = oq_cuts_find(&c, changed, &f.slicer->arena, &change, err);
    if (rc == ONQ_OK)
        rc = oq_cuts_head(&c, &change, &head, err);
    if (rc == ONQ_OK)
        rc = oq_slice_open(&head, OQ_OPT_NONE, err);
    if (rc == ONQ_OK)
        rc = oq_slice_share(&head, &other, err);
    if (rc == ONQ_OK)
        rc = oq_cuts_tail(&c, change.end, &tail, err);
    if (rc == ONQ_OK)
        rc = oq_slice_run(&other, NULL, 0, err);
    oq_slice_close(&other);
    oq_slice_close(&tail);
    oq_slice_close(&head);
    assert_int_equal(f.engine.n_open, 0);
    close_fixture(&f);
    return rc;
}

static void every_allocation_fails(void **state) {
    (void)state;
    assert_true(flaky_sweep(body, NULL) > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(slice_runs_from_what_is_at_hand),
                                       cmocka_unit_test(slice_that_gives_nothing_needs_no_session),
                                       cmocka_unit_test(texts_are_kept_too),
                                       cmocka_unit_test(constants_come_before_their_readers),
                                       cmocka_unit_test(stops_see_the_changes_before_them),
                                       cmocka_unit_test(stops_cost_what_lies_between),
                                       cmocka_unit_test(settled_results_are_kept),
                                       cmocka_unit_test(a_long_way_is_gone_in_parts),
                                       cmocka_unit_test(little_memory_lets_samples_go),
                                       cmocka_unit_test(failed_run_comes_back),
                                       cmocka_unit_test(change_runs_from_cut_to_cut),
                                       cmocka_unit_test(unread_change_runs_nothing),
                                       cmocka_unit_test(rewired_node_reads_what_it_is_told),
                                       cmocka_unit_test(little_memory_takes_cuts),
                                       cmocka_unit_test(runtime_that_refuses_gets_no_cuts),
                                       cmocka_unit_test(every_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
