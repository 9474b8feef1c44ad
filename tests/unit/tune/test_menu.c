/*
 * test_menu.c — the curve over menus of units: noise adds up, and the most noise goes for the least
 * time first; and what time a preparation may cost.
 */
#include "build_model.h"
#include "testing.h"
#include "tune/tune.h"
#include "tune/units/stage.h"

#include <jansson.h>
#include <math.h>

static oq_menu unit(const char *node, double plain_noise, double plain_gain) {
    oq_menu m = {.node = node, .macs = 1};
    m.rows[OQ_METHOD_FLOAT].known = true;
    m.rows[OQ_METHOD_PLAIN] =
        (oq_menu_row){.known = true, .noise = plain_noise, .gain = plain_gain};
    return m;
}

static void begin(bm *b, oq_menus *m) {
    *m = (oq_menus){0};
    bm_begin(b, NULL, 13);
    oq_menu a = unit("a", 8, 4), c = unit("c", 1, 4), d = unit("d", 4, 1);
    a.rows[OQ_METHOD_DOUBLE] = (oq_menu_row){.known = true, .noise = 2, .gain = 3};
    c.rows[OQ_METHOD_BOTH] = (oq_menu_row){.known = false, .noise = 0, .gain = 9};
    c.act = "c_relu";
    assert_true(OQ_PUSH(b->a, &m->all, a));
    assert_true(OQ_PUSH(b->a, &m->all, c));
    assert_true(OQ_PUSH(b->a, &m->all, d));
}

static void order(void **state) {
    bm b;
    oq_menus m;
    onq_error err = ONQ_ERROR_INIT;
    oq_method ways[3];
    double noise = 0;
    (void)state;
    begin(&b, &m);
    assert_ok(oq_menus_curve(&m, b.a, &err), err);
    oq_menus_at(&m, 0, ways, &noise);
    assert_int_equal(ways[0], OQ_METHOD_PLAIN);
    assert_float_equal(noise, 13, 1e-9);
    /* a to double: 6 for 1; d to float: 4 for 1; a to float: 2 for 3; c to float: 1 for 4. */
    static const size_t at[] = {0, 2, 0, 1};
    static const oq_method to[] = {OQ_METHOD_DOUBLE, OQ_METHOD_FLOAT, OQ_METHOD_FLOAT,
                                   OQ_METHOD_FLOAT};
    assert_int_equal(m.steps.n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(m.steps.v[i].at, at[i]);
        assert_int_equal(m.steps.v[i].to, to[i]);
        assert_true(m.steps.v[i].noise < (i > 0 ? m.steps.v[i - 1].noise : m.noise));
        assert_true(m.steps.v[i].gain < (i > 0 ? m.steps.v[i - 1].gain : m.gain));
    }
    oq_menus_at(&m, 4, ways, &noise);
    assert_true(noise == 0 && ways[0] == OQ_METHOD_FLOAT && ways[1] == OQ_METHOD_FLOAT);
    bm_end(&b);
}

/* What costs no time comes first, and what is on no menu is never taken. */
static void free_steps(void **state) {
    bm b;
    oq_menus m;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    begin(&b, &m);
    m.all.v[2].rows[OQ_METHOD_DOUBLE] = (oq_menu_row){.known = true, .noise = 3.9, .gain = 1};
    assert_ok(oq_menus_curve(&m, b.a, &err), err);
    assert_int_equal(m.steps.v[0].at, 2);
    assert_int_equal(m.steps.v[0].to, OQ_METHOD_DOUBLE);
    for (size_t i = 0; i < m.steps.n; i++)
        assert_int_not_equal(m.steps.v[i].to, OQ_METHOD_BOTH);
    bm_end(&b);
}

/* What a point has beyond the prediction is put on the units whose noise was guessed, and the curve
 * is another one: 'c', which seemed the quietest, gets out of the way first. */
static void corrected(void **state) {
    bm b;
    oq_menus m;
    onq_error err = ONQ_ERROR_INIT;
    const oq_method ways[] = {OQ_METHOD_PLAIN, OQ_METHOD_PLAIN, OQ_METHOD_PLAIN};
    (void)state;
    begin(&b, &m);
    assert_ok(oq_menus_curve(&m, b.a, &err), err);
    assert_false(oq_menus_correct(&m, ways, 100)); /* all were measured */
    m.all.v[1].rows[OQ_METHOD_PLAIN].guessed = true;
    assert_false(oq_menus_correct(&m, ways, 13.5)); /* about right */
    assert_true(oq_menus_correct(&m, ways, 112));
    assert_float_equal(m.all.v[0].rows[OQ_METHOD_PLAIN].noise, 8, 1e-9);
    assert_float_equal(m.all.v[1].rows[OQ_METHOD_PLAIN].noise, 100, 1e-9);
    assert_ok(oq_menus_curve(&m, b.a, &err), err);
    assert_float_equal(m.noise, 112, 1e-9);
    assert_int_equal(m.steps.v[0].at, 1);
    assert_true(oq_menus_correct(&m, ways, 1)); /* too much was put on it: a tenth remains */
    assert_float_equal(m.all.v[1].rows[OQ_METHOD_PLAIN].noise, 10, 1e-9);
    assert_false(oq_menus_correct(&m, ways, INFINITY));
    oq_menu other = unit("other", 1, 1);
    assert_true(OQ_PUSH(b.a, &m.all, other));
    const oq_method four[] = {OQ_METHOD_PLAIN, OQ_METHOD_PLAIN, OQ_METHOD_PLAIN, OQ_METHOD_PLAIN};
    assert_false(oq_menus_correct(&m, four, 500)); /* one of four is too few to be blamed */
    bm_end(&b);
}

static void text(void **state) {
    bm b;
    oq_menus m;
    const oq_method ways[] = {OQ_METHOD_DOUBLE, OQ_METHOD_FLOAT, OQ_METHOD_PLAIN};
    (void)state;
    begin(&b, &m);
    m.all.v[2].node = "with \"quotes\"";
    const char *got = oq_menus_text(&m, ways, b.a);
    json_t *j = json_loads(got, 0, NULL);
    assert_non_null(j);
    assert_int_equal(json_object_size(j), 4);
    assert_string_equal(json_string_value(json_object_get(j, "a")), "double");
    assert_string_equal(json_string_value(json_object_get(j, "c_relu")), "float");
    assert_string_equal(json_string_value(json_object_get(j, "with \"quotes\"")), "plain");
    json_decref(j);
    bm_end(&b);
}

/* What a preparation may cost in time grows with what it gains: the noise of times decides only
 * where neither matters much. */
static void better_base(void **state) {
    static const struct {
        double ms, db;
        bool better;
    } rows[] = {
        {1.18, 31.2, true}, {1.25, 31.2, true}, {1.4, 31.2, false}, {1.09, 27, true},
        {1.15, 27, false},  {1, 26, false},     {0.7, 20, true},    {1.6, 60, false},
    };
    const oq_candidate now = {.ms = 1, .score = {.objective = 24.9}};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        const oq_candidate other = {.ms = rows[i].ms, .score = {.objective = rows[i].db}};
        assert_int_equal(oq_tune_is_better_base(&now, &other), rows[i].better);
    }
    assert_true(oq_tune_is_better_base(NULL, &now));
    assert_false(oq_tune_is_better_base(&now, NULL));
}

/* Ways of a point that is worse than all units plain go from all menus; those of a better point stay,
 * and so do float and plain. */
static void struck(void **state) {
    bm b;
    oq_unit_stage s = {0};
    oq_method ways[3] = {OQ_METHOD_PLAIN, OQ_METHOD_BOTH, OQ_METHOD_FLOAT};
    const oq_candidate from = {.score.objective = 20};
    oq_candidate point = {.score.objective = 18.1};
    (void)state;
    begin(&b, &s.menus);
    s.menus.all.v[1].rows[OQ_METHOD_BOTH].known = true;
    s.ways = ways;
    s.from = &from;
    assert_false(oq_stage_strike_ways(&s, &point));
    assert_true(s.menus.all.v[1].rows[OQ_METHOD_BOTH].known);
    point.score.objective = 17.9;
    assert_true(oq_stage_strike_ways(&s, &point));
    assert_false(s.menus.all.v[1].rows[OQ_METHOD_BOTH].known);
    assert_true(s.menus.all.v[1].rows[OQ_METHOD_PLAIN].known);
    assert_true(s.menus.all.v[0].rows[OQ_METHOD_DOUBLE].known);
    ways[1] = OQ_METHOD_PLAIN;
    assert_false(oq_stage_strike_ways(&s, &point));
    bm_end(&b);
}

static void probed_samples(void **state) {
    static const size_t judge[] = {1, 8, 16, 24, 40, 160}, n[] = {2, 2, 2, 3, 5, 20};
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(judge); i++)
        assert_int_equal(oq_stage_probe_samples(judge[i]), n[i]);
}

/* What reaches the targets makes slower points useless, unless it failed when it was measured again. */
static void useless(void **state) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    oq_target target = {OQ_METRIC_SQNR, 30};
    oq_candidate whole = {.exact = true, .ok = true, .ms = 10}, from = {.ms = 4},
                 fast = {.ok = true, .ms = 2};
    oq_candidate *all[] = {&whole, &fast};
    oq_tune t = {.prefer = OQ_PREFER_SPEED,
                 .base_float = &whole,
                 .flt = &whole,
                 .all = {all, 2, 2},
                 .targets = {&target, 1, 1}};
    oq_unit_stage s = {.t = &t, .from = &from};
    (void)state;
    whole.score = fast.score = oq_score_none();
    oq_score_set(&fast.score, OQ_METRIC_SQNR, 35);
    begin(&b, &s.menus);
    assert_ok(oq_menus_curve(&s.menus, b.a, &err), err);
    assert_int_equal(s.menus.steps.n, 4);
    /* Of 10 ms the steps save 8, 7, 4 and 0; less than 7.5 is slower than 1.25 times the fastest. */
    assert_int_equal(oq_stage_first_useless(&s), 2);
    fast.doubted = true;
    assert_int_equal(oq_stage_first_useless(&s), 4);
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),   cmocka_unit_test(free_steps),    cmocka_unit_test(corrected),
        cmocka_unit_test(text),    cmocka_unit_test(better_base),   cmocka_unit_test(struck),
        cmocka_unit_test(useless), cmocka_unit_test(probed_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
