/*
 * test_language.c — figures of language models worked out by hand: divergence, the same first
 * choice, perplexity; which rows count; which models are language models.
 */
#include "samples/language.h"

#include "testing.h"

#include <math.h>
#include <string.h>

static oq_datum tensor(oq_dtype type, const void *data, const int64_t *dims, size_t rank) {
    oq_datum d = {.kind = OQ_DATUM_TENSOR, .dtype = type, .dims = dims, .rank = rank, .count = 1};
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    assert_true(oq_dtype_bytes(type, d.count, &d.size_bytes));
    d.data = data;
    return d;
}

static bool near(double a, double b) {
    return fabs(a - b) < 1e-9 * (1 + fabs(b));
}

/* Two words: log-odds x give p = 1 / (1 + exp(-x)) for the second. */
static const int64_t SIZE[] = {1, 3, 2}, LENGTH[] = {1, 3};
static const double P[] = {0, 0, 0, 0.6931471805599453, 0, -0.6931471805599453}; /* 1/2 2/3 1/3 */
static const double Q[] = {0, 0, 0, -0.6931471805599453, 0, 0};                  /* 1/2 1/3 1/2 */
static const int64_t IDS[] = {0, 1, 0};

static void by_hand(void **state) {
    (void)state;
    oq_lm_score s = {0}, by[3] = {0};
    s.by_position = by;
    s.n_positions = 2;
    const oq_datum p = tensor(OQ_DOUBLE, P, SIZE, 3), q = tensor(OQ_DOUBLE, Q, SIZE, 3);
    const oq_datum ids = tensor(OQ_INT64, IDS, LENGTH, 2);
    oq_lm_add(&s, &(oq_lm_text){.ids = &ids}, &p, &q);
    const double second = 2.0 / 3 * log(2) + 1.0 / 3 * log(0.5),
                 third = 1.0 / 3 * log(2.0 / 3) + 2.0 / 3 * log(4.0 / 3);
    assert_int_equal(s.rows, 3);
    assert_true(near(oq_lm_kl(&s), (second + third) / 3));
    assert_true(near(s.kl_squares, second * second + third * third));
    assert_int_equal(s.same, 2); /* equal values: the first */
    assert_true(near(oq_lm_top1(&s), 2.0 / 3));
    /* The first row predicts token 1, the second token 0; nobody knows what follows the third. */
    assert_int_equal(s.predictions, 2);
    assert_true(near(oq_lm_perplexity_float(&s), sqrt(2.0 * 3)));
    assert_true(near(oq_lm_perplexity(&s), sqrt(2.0 * 1.5)));
    assert_true(near(oq_lm_perplexity_rise(&s), 100 * (sqrt(0.5) - 1)));
    assert_false(s.differs || s.wrecked);
    assert_true(by[0].rows == 1 && by[0].kl == 0 && by[0].predictions == 1);
    assert_true(by[1].rows == 1 && near(by[1].kl, second) && by[1].same == 0);
    assert_int_equal(by[2].rows, 0);
}

/* The same text in steps gives the same sums. */
static void in_steps(void **state) {
    (void)state;
    oq_lm_score whole = {0}, steps = {0};
    const oq_datum p = tensor(OQ_DOUBLE, P, SIZE, 3), q = tensor(OQ_DOUBLE, Q, SIZE, 3);
    const oq_datum ids = tensor(OQ_INT64, IDS, LENGTH, 2);
    const int64_t one[] = {1, 1}, row[] = {1, 2}; /* logits of the last token alone */
    oq_lm_add(&whole, &(oq_lm_text){.ids = &ids}, &p, &q);
    for (size_t i = 0; i < 3; i++) {
        const oq_datum id = tensor(OQ_INT64, IDS + i, one, 2),
                       next = i < 2 ? tensor(OQ_INT64, IDS + i + 1, one, 2) : (oq_datum){0};
        const oq_datum a = tensor(OQ_DOUBLE, P + 2 * i, row, 2),
                       b = tensor(OQ_DOUBLE, Q + 2 * i, row, 2);
        oq_lm_add(&steps, &(oq_lm_text){.ids = &id, .next = i < 2 ? &next : NULL, .past = i}, &a,
                  &b);
    }
    assert_memory_equal(&whole, &steps, sizeof whole);
    oq_lm_score alone = {0}; /* without a float model */
    oq_lm_add(&alone, &(oq_lm_text){.ids = &ids}, NULL, &q);
    assert_true(alone.rows == 0 && alone.loss == whole.loss && isnan(oq_lm_kl(&alone)));
}

static void padding(void **state) {
    (void)state;
    static const float logits[12] = {0};
    static const int64_t size[] = {2, 3, 2}, length[] = {2, 3}, wide[] = {2, 4};
    static const int64_t ids[] = {1, 1, 1, 1, 1, 1};
    static const int64_t mask[] = {1, 1, 0, 0, 1, 1}, past[] = {1, 1, 1, 0, 1, 0, 1, 1};
    const oq_datum p = tensor(OQ_FLOAT, logits, size, 3), t = tensor(OQ_INT64, ids, length, 2);
    oq_datum m = tensor(OQ_INT64, mask, length, 2);
    oq_lm_score s = {0};
    oq_lm_add(&s, &(oq_lm_text){.ids = &t, .mask = &m}, &p, &p);
    assert_int_equal(s.rows, 4);
    assert_int_equal(s.predictions, 2); /* not into padding */
    s = (oq_lm_score){0};
    m = tensor(OQ_INT64, past, wide, 2); /* with one token of the past in front */
    oq_lm_add(&s, &(oq_lm_text){.ids = &t, .mask = &m}, &p, &p);
    assert_int_equal(s.rows, 4);
    s = (oq_lm_score){0}; /* rows of the last two tokens */
    const int64_t two[] = {2, 2, 2};
    const oq_datum last = tensor(OQ_FLOAT, logits, two, 3);
    oq_lm_add(&s, &(oq_lm_text){.ids = &t}, &last, &last);
    assert_true(s.rows == 4 && s.predictions == 2 && oq_lm_kl(&s) == 0);
}

static void wrecked(void **state) {
    (void)state;
    const int64_t size[] = {1, 1, 2}, other[] = {1, 2, 1};
    const float good[] = {1, -INFINITY}, bad[] = {1, NAN}, less[] = {-INFINITY, 1};
    const oq_datum g = tensor(OQ_FLOAT, good, size, 3), b = tensor(OQ_FLOAT, bad, size, 3),
                   l = tensor(OQ_FLOAT, less, size, 3), o = tensor(OQ_FLOAT, good, other, 3);
    const oq_lm_text none = {0};
    oq_lm_score s = {0};
    oq_lm_add(&s, &none, &g, &g);
    assert_true(s.rows == 1 && s.kl == 0 && !s.wrecked && isnan(oq_lm_perplexity(&s)));
    oq_lm_add(&s, &none, &b, &g); /* nothing to agree with */
    assert_true(s.rows == 1 && !s.wrecked);
    oq_lm_add(&s, &none, &g, &b);
    assert_true(s.wrecked);
    s = (oq_lm_score){0};
    oq_lm_add(&s, &none, &g, &l); /* impossible where float is certain */
    assert_true(s.wrecked);
    s = (oq_lm_score){0};
    oq_lm_add(&s, &none, &g, &o);
    assert_true(s.differs && s.rows == 0);
}

/* ---- recognising ---- */

static oq_io io(const char *name, oq_dtype type, const oq_io_dim *dims, size_t rank) {
    return (oq_io){.name = oq_str_of(name),
                   .kind = OQ_DATUM_TENSOR,
                   .dtype = type,
                   .has_shape = true,
                   .rank = rank,
                   .dims = dims};
}

static void recognising(void **state) {
    (void)state;
    const oq_io_dim text[] = {{.value = -1}, {.value = -1}};
    const oq_io_dim large[] = {{.value = -1}, {.value = -1}, {.value = 32000}};
    const oq_io_dim small[] = {{.value = -1}, {.value = -1}, {.value = 32}};
    const oq_io_dim cache[] = {{.value = -1}, {.value = 4}, {.value = -1}, {.value = 8}};
    oq_io in[] = {io("attention_mask", OQ_INT64, text, 2), io("input_ids", OQ_INT64, text, 2),
                  io("token_type_ids", OQ_INT64, text, 2)};
    oq_io out[] = {io("present.0.key", OQ_FLOAT, cache, 4), io("logits", OQ_FLOAT, large, 3)};
    const oq_ios ins = {in, 2}, all = {in, 3}, outs = {out, 2};
    const bool no_states[] = {false, false}, states[] = {true, false};
    oq_language l = oq_language_of(&ins, &outs, no_states);
    assert_true(l.is && l.causal && l.ids == 1 && l.mask == 0 && l.logits == 1 &&
                l.positions == OQ_NOWHERE);
    assert_false(oq_language_of(&all, &outs, no_states).causal); /* BERT */
    out[1].dims = small;                                         /* classes of a text */
    assert_false(oq_language_of(&ins, &outs, no_states).is);
    l = oq_language_of(&ins, &outs, states); /* with states, a small vocabulary */
    assert_true(l.is && l.causal && l.logits == 1);
    in[1].dtype = OQ_FLOAT;
    assert_false(oq_language_of(&ins, &outs, states).is);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand), cmocka_unit_test(in_steps),    cmocka_unit_test(padding),
        cmocka_unit_test(wrecked), cmocka_unit_test(recognising),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
