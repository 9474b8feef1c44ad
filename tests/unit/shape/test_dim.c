/*
 * test_dim.c — symbolic dimensions: equal expressions compare equal, bounds, text both ways,
 * limits.
 */
#include "shape/dim/dim.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct fixture {
    oq_arena arena;
    oq_sdims ds;
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    oq_arena_init(&f->arena, oq_alloc_default());
    oq_sdims_init(&f->ds, &f->arena, false);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    oq_arena_release(&f->arena);
    free(f);
    return 0;
}

static oq_sdim parse(fixture *f, const char *text) {
    return oq_sdim_parse(&f->ds, oq_str_of(text), 1);
}

static void assert_text(fixture *f, oq_sdim d, const char *text) {
    assert_string_equal(oq_sdim_text(&f->arena, d).p, text);
}

#define SAME(a, b) assert_true(oq_sdim_eq((a), (b)))

static void sums_and_products(void **state) {
    fixture *f = *state;
    oq_sdims *ds = &f->ds;
    const oq_sdim a = oq_sdim_name(ds, OQ_S("a"), 1), b = oq_sdim_name(ds, OQ_S("b"), 1);
    SAME(oq_sdim_add(ds, a, b), oq_sdim_add(ds, b, a));
    SAME(oq_sdim_mul(ds, a, b), oq_sdim_mul(ds, b, a));
    SAME(oq_sdim_sub(ds, oq_sdim_add(ds, a, b), b), a);
    SAME(oq_sdim_sub(ds, a, a), oq_sdim_num(0));
    /* (a + b) * (a - b) == a*a - b*b */
    SAME(oq_sdim_mul(ds, oq_sdim_add(ds, a, b), oq_sdim_sub(ds, a, b)),
         oq_sdim_sub(ds, oq_sdim_mul(ds, a, a), oq_sdim_mul(ds, b, b)));
    assert_text(f, oq_sdim_addn(ds, oq_sdim_muln(ds, a, 2), 1), "2*a + 1");
    assert_text(f, oq_sdim_sub(ds, oq_sdim_num(3), oq_sdim_mul(ds, b, a)), "-a*b + 3");
    assert_text(f, oq_sdim_mul(ds, oq_sdim_mul(ds, a, a), b), "a**2*b");
    SAME(oq_sdim_name(ds, OQ_S("a"), 0), a);
}

static void divisions(void **state) {
    fixture *f = *state;
    oq_sdims *ds = &f->ds;
    const oq_sdim h = oq_sdim_name(ds, OQ_S("h"), 1), w = oq_sdim_name(ds, OQ_S("w"), 1);
    const oq_sdim two = oq_sdim_num(2);
    assert_text(f, oq_sdim_floordiv(ds, h, two), "floor(h/2)");
    assert_text(f, oq_sdim_ceildiv(ds, h, two), "floor(h/2 + 1/2)");
    /* What divides evenly goes out, whatever the sign of the constant. */
    SAME(oq_sdim_floordiv(ds, oq_sdim_addn(ds, h, -1), two),
         oq_sdim_addn(ds, oq_sdim_floordiv(ds, oq_sdim_addn(ds, h, 1), two), -1));
    SAME(oq_sdim_floordiv(ds, oq_sdim_add(ds, oq_sdim_muln(ds, h, 4), w), two),
         oq_sdim_add(ds, oq_sdim_muln(ds, h, 2), oq_sdim_floordiv(ds, w, two)));
    /* Halving three times is one division by eight. */
    oq_sdim d = h;
    for (int i = 0; i < 3; i++)
        d = oq_sdim_addn(ds, oq_sdim_floordiv(ds, oq_sdim_addn(ds, d, -1), two), 1);
    SAME(d, oq_sdim_ceildiv(ds, h, oq_sdim_num(8)));
    /* Common divisors go. */
    SAME(oq_sdim_floordiv(ds, oq_sdim_addn(ds, oq_sdim_muln(ds, h, 6), 3), oq_sdim_num(4)),
         oq_sdim_floordiv(ds, oq_sdim_addn(ds, oq_sdim_muln(ds, h, 3), 1), two));
    SAME(oq_sdim_floordiv(ds, oq_sdim_num(-7), two), oq_sdim_num(-4));
    SAME(oq_sdim_ceildiv(ds, oq_sdim_num(-7), two), oq_sdim_num(-3));
    SAME(oq_sdim_floordiv(ds, oq_sdim_num(7), oq_sdim_num(-2)), oq_sdim_num(-4));
    assert_true(oq_sdim_is_unknown(oq_sdim_floordiv(ds, h, oq_sdim_num(0))));
    SAME(oq_sdim_mod(ds, oq_sdim_muln(ds, h, 4), two), oq_sdim_num(0));
    /* By expressions. */
    const oq_sdim hw = oq_sdim_mul(ds, h, w);
    SAME(oq_sdim_floordiv(ds, oq_sdim_muln(ds, hw, 12), oq_sdim_muln(ds, h, 4)),
         oq_sdim_muln(ds, w, 3));
    SAME(oq_sdim_floordiv(ds, oq_sdim_muln(ds, hw, 3), oq_sdim_muln(ds, h, 2)),
         oq_sdim_floordiv(ds, oq_sdim_muln(ds, w, 3), two));
    const oq_sdim sum = oq_sdim_add(ds, h, w);
    SAME(oq_sdim_floordiv(ds, oq_sdim_mul(ds, sum, oq_sdim_addn(ds, h, 5)), sum),
         oq_sdim_addn(ds, h, 5));
    assert_text(f, oq_sdim_floordiv(ds, h, sum), "floor(h/(h + w))");
    assert_text(f, oq_sdim_floordiv(ds, sum, w), "floor(h/w) + 1");
    assert_text(f, oq_sdim_floordiv(ds, oq_sdim_num(7), w), "floor(7/w)");
}

static void minima_and_maxima(void **state) {
    fixture *f = *state;
    oq_sdims *ds = &f->ds;
    const oq_sdim a = oq_sdim_name(ds, OQ_S("a"), 1), b = oq_sdim_name(ds, OQ_S("b"), 0);
    SAME(oq_sdim_max(ds, a, oq_sdim_num(0)), a);
    SAME(oq_sdim_max(ds, b, oq_sdim_num(0)), b);
    SAME(oq_sdim_min(ds, a, oq_sdim_num(1)), oq_sdim_num(1));
    SAME(oq_sdim_min(ds, a, oq_sdim_add(ds, a, b)), a);
    SAME(oq_sdim_min(ds, a, b), oq_sdim_min(ds, b, a));
    SAME(oq_sdim_min(ds, oq_sdim_min(ds, a, b), oq_sdim_num(512)),
         oq_sdim_min(ds, oq_sdim_min(ds, oq_sdim_num(512), b), a));
    assert_text(f, oq_sdim_min(ds, a, oq_sdim_num(512)), "Min(512, a)");
    assert_text(f, oq_sdim_max(ds, oq_sdim_sub(ds, a, b), oq_sdim_num(0)), "Max(0, a - b)");
    assert_true(oq_sdim_le(ds, oq_sdim_min(ds, a, oq_sdim_num(512)), a));
    assert_true(oq_sdim_le(ds, oq_sdim_floordiv(ds, a, oq_sdim_num(2)), a));
    assert_true(oq_sdim_le(ds, oq_sdim_num(1), a));
    assert_false(oq_sdim_le(ds, oq_sdim_num(1), b));
    assert_false(oq_sdim_le(ds, a, b));
    assert_true(
        oq_sdim_le(ds, oq_sdim_num(0), oq_sdim_sub(ds, a, oq_sdim_min(ds, a, oq_sdim_num(5)))));
    assert_int_equal(oq_sdim_least(oq_sdim_floordiv(ds, oq_sdim_addn(ds, a, 3), oq_sdim_num(2))),
                     2);
    assert_int_equal(oq_sdim_most(oq_sdim_min(ds, a, oq_sdim_num(5))), 5);
}

static void text_round_trip(void **state) {
    fixture *f = *state;
    static const char *const same[] = {
        "2*seq + 1",
        "floor(h/2 + 1/2)",
        "Min(512, seq)",
        "Max(0, a - b)",
        "a*b",
        "a**2",
        "floor(3*h/4) + 2",
        "past_sequence_length + sequence_length",
        "batch-size",
        "N/A",
        "p2o.DynamicDimension.0",
        "unk__3",
        "floor(h/(h + w))",
        "-a + 4",
    };
    for (size_t i = 0; i < OQ_COUNT(same); i++)
        assert_text(f, parse(f, same[i]), same[i]);
    SAME(parse(f, "past+seq"), parse(f, "seq + past"));
    SAME(parse(f, "ceiling(h/2)"), parse(f, "floor(h/2 + 1/2)"));
    SAME(parse(f, "(a + b)*2"), parse(f, "2*a + 2*b"));
    /* What is no expression is a name, whole. */
    static const char *const names[] = {"a +", "f(x)", "1+2", "a + 1/2", "(((((((((((((((((((a+1)"};
    for (size_t i = 0; i < OQ_COUNT(names); i++) {
        oq_str name;
        assert_true(oq_sdim_is_name(parse(f, names[i]), &name));
        assert_true(oq_str_is(name, names[i]));
    }
}

static void replacing(void **state) {
    fixture *f = *state;
    oq_sdims *ds = &f->ds;
    const oq_sdim d = parse(f, "floor(h/2) + Min(h, w)*2");
    SAME(oq_sdim_replace(ds, d, parse(f, "h"), oq_sdim_num(6)), parse(f, "3 + 2*Min(6, w)"));
    SAME(oq_sdim_replace(ds, d, parse(f, "h"), parse(f, "w")), parse(f, "floor(w/2) + 2*w"));
    SAME(oq_sdim_replace(ds, parse(f, "a + b"), parse(f, "a + b"), parse(f, "c")), parse(f, "c"));
}

static void limits(void **state) {
    fixture *f = *state;
    oq_sdims *ds = &f->ds;
    const oq_sdim a = oq_sdim_name(ds, OQ_S("a"), 1);
    assert_true(oq_sdim_is_unknown(oq_sdim_addn(ds, oq_sdim_num(INT64_MAX), 1)));
    assert_true(oq_sdim_is_unknown(oq_sdim_muln(ds, oq_sdim_muln(ds, a, INT64_MAX / 2), 4)));
    oq_sdim sum = oq_sdim_num(0), product = oq_sdim_num(1), nested = a;
    for (int i = 0; i < 100; i++) {
        const oq_sdim x = oq_sdim_name(ds, oq_str_format(&f->arena, "x%d", i), 1);
        sum = oq_sdim_add(ds, sum, x);
        product = oq_sdim_mul(ds, product, x);
        nested = oq_sdim_floordiv(ds, oq_sdim_mul(ds, nested, x), oq_sdim_num(3));
    }
    assert_true(oq_sdim_is_unknown(sum));
    assert_true(oq_sdim_is_unknown(product));
    assert_true(oq_sdim_is_unknown(nested));
    assert_false(oq_sdim_eq(sum, sum));
}

static void plain_mode(void **state) {
    fixture *f = *state;
    oq_sdims plain;
    oq_sdims_init(&plain, &f->arena, true);
    const oq_sdim a = oq_sdim_name(&plain, OQ_S("a"), 1);
    SAME(oq_sdim_addn(&plain, a, 0), a);
    SAME(oq_sdim_muln(&plain, a, 1), a);
    SAME(oq_sdim_floordiv(&plain, a, oq_sdim_num(1)), a);
    SAME(oq_sdim_floordiv(&plain, oq_sdim_num(7), oq_sdim_num(2)), oq_sdim_num(3));
    assert_true(oq_sdim_is_unknown(oq_sdim_addn(&plain, a, 1)));
    assert_true(oq_sdim_is_unknown(oq_sdim_muln(&plain, a, 2)));
    assert_true(oq_sdim_is_unknown(oq_sdim_min(&plain, a, oq_sdim_num(5))));
    oq_str name;
    assert_true(oq_sdim_is_name(oq_sdim_parse(&plain, OQ_S("a + 1"), 1), &name));
}

/* Every allocation may fail; nothing may crash, and the failure is remembered. */
typedef struct failing {
    size_t left;
} failing;

static void *fail_resize(void *ctx, void *p, size_t old_size, size_t new_size) {
    failing *c = ctx;
    const onq_allocator *real = oq_alloc_default();
    if (new_size != 0 && c->left-- == 0) {
        c->left = 0;
        return NULL;
    }
    return real->resize(real->ctx, p, old_size, new_size);
}

static void out_of_memory(void **state) {
    (void)state;
    static char text[200][16];
    bool done = false;
    for (size_t n = 0; !done; n++) {
        failing c = {n};
        const onq_allocator alloc = {fail_resize, &c};
        oq_arena arena;
        oq_sdims ds;
        oq_arena_init(&arena, &alloc);
        oq_sdims_init(&ds, &arena, false);
        oq_sdim d = oq_sdim_num(0);
        for (int i = 0; i < 200; i++) {
            snprintf(text[i], sizeof text[i], "n%d", i);
            d = oq_sdim_parse(&ds, oq_str_of(text[i]), 1);
            d = oq_sdim_floordiv(&ds, oq_sdim_addn(&ds, d, i), oq_sdim_num(3));
        }
        done = !ds.failed;
        assert_int_equal(oq_sdim_is_unknown(d), ds.failed);
        oq_arena_release(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sums_and_products, setup, teardown),
        cmocka_unit_test_setup_teardown(divisions, setup, teardown),
        cmocka_unit_test_setup_teardown(minima_and_maxima, setup, teardown),
        cmocka_unit_test_setup_teardown(text_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(replacing, setup, teardown),
        cmocka_unit_test_setup_teardown(limits, setup, teardown),
        cmocka_unit_test_setup_teardown(plain_mode, setup, teardown),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("dim", tests, NULL, NULL);
}
