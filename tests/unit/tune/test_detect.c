/*
 * test_detect.c — outputs that are boxes with scores: which forms are known, which outputs are no
 * detections, and which detections two models have in common.
 */
#include "build_model.h"
#include "testing.h"
#include "tune/choose.h"
#include "tune/judge/detect.h"

#include <math.h>

#define ROWS 64

static oq_datum floats(const float *v, const int64_t *dims, size_t rank) {
    oq_datum d = {.kind = OQ_DATUM_TENSOR, .dtype = OQ_FLOAT, .rank = rank, .dims = dims};
    d.count = 1;
    for (size_t i = 0; i < rank; i++)
        d.count *= (uint64_t)dims[i];
    d.data = v;
    d.size_bytes = d.count * sizeof *v;
    return d;
}

/* Rows of boxes: nothing but in two places, where objects of classes 0 and 1 are. */
typedef struct scene {
    float box[ROWS][4], score[ROWS][2];
} scene;

static void fill(scene *s) {
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < ROWS; i++) {
        const float at[4] = {(float)i, 5, (float)i + 3, 25};
        memcpy(s->box[i], at, sizeof at);
        s->score[i][0] = 0.01F;
        s->score[i][1] = 0.02F;
    }
    s->score[10][0] = 0.9F;
    s->score[11][0] = 0.8F; /* covered by the one before it */
    s->score[40][1] = 0.6F;
}

/* The forms in which such a scene comes. */
typedef enum form { PAIR, PAIR_LOGITS, PAIR_SOFTMAX, PAIR_ACROSS, ONE, ONE_ACROSS, CHOSEN } form;

typedef struct exported {
    float v[2][ROWS * 8];
    int64_t dims[2][3];
    oq_datum d[2];
    size_t n;
} exported;

static float logit(float p) {
    return logf(p / (1 - p));
}

static void add_pair(const scene *s, form how, exported *m) {
    const int64_t columns = how == PAIR_SOFTMAX ? 3 : 2;
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t c = 0; c < columns; c++) {
            const float p = c < 2 ? s->score[i][c] : 0;
            /* the last class is "nothing" */
            const float shared = c < 2 ? logf(p) : logf(1 - s->score[i][0] - s->score[i][1]);
            const int64_t at = how == PAIR_ACROSS ? c * ROWS + i : i * columns + c;
            m->v[1][at] = how == PAIR_LOGITS ? logit(p) : how == PAIR_SOFTMAX ? shared + 3 : p;
        }
    m->dims[1][1] = how == PAIR_ACROSS ? columns : ROWS;
    m->dims[1][2] = how == PAIR_ACROSS ? ROWS : columns;
}

/* Into outputs as an exporter would give them. */
static void export(const scene *s, form how, exported *m) {
    const bool pair = how <= PAIR_ACROSS, across = how == ONE_ACROSS;
    const int64_t columns = pair ? 4 : how == ONE ? 7 : 6;
    int64_t rows = 0;
    memset(m, 0, sizeof *m);
    m->n = pair ? 2 : 1;
    for (int64_t i = 0; i < ROWS; i++) {
        const bool second = s->score[i][1] > s->score[i][0];
        float row[8] = {0};
        memcpy(row, s->box[i], sizeof s->box[i]);
        if (how == ONE)
            row[4] = 1;
        memcpy(row + (how == ONE ? 5 : 4), s->score[i], sizeof s->score[i]);
        if (how == CHOSEN) {
            row[4] = s->score[i][second];
            row[5] = second;
        }
        if (how == CHOSEN && !(row[4] > 0.1F && i != 11))
            continue;
        for (int64_t c = 0; c < columns; c++)
            m->v[0][across ? c * ROWS + i : rows * columns + c] = row[c];
        rows++;
    }
    m->dims[0][0] = m->dims[1][0] = 1;
    m->dims[0][1] = across ? columns : rows;
    m->dims[0][2] = across ? rows : columns;
    if (pair)
        add_pair(s, how, m);
    m->d[0] = floats(m->v[0], m->dims[0], 3);
    m->d[1] = floats(m->v[1], m->dims[1], 3);
}

static const oq_link no_links[4] = {OQ_LINK_NONE};

static const oq_detector *find_in(bm *b, const oq_datum *const *samples, size_t n_samples,
                                  size_t n) {
    const oq_meaning meaning = {.links = no_links, .n = n, .classes = n};
    const oq_detector *d = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_detector_find(b->a, samples, n_samples, &meaning, &d, &err), err);
    return d;
}

static const oq_detector *find(bm *b, const oq_datum *outputs, size_t n) {
    return find_in(b, (const oq_datum *const[]){outputs, outputs}, 2, n);
}

static oq_detected compare(bm *b, const oq_detector *d, const exported *x, const exported *y) {
    oq_detected out;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_detect_compare(d, x->d, y->d, x->n, b->a->alloc, &out, &err), err);
    return out;
}

/* In every form: float has two detections; one whose box moves, whose class changes or whose score
 * falls is lost and, but for the last, another one is there that float does not have. */
static void forms(void **state) {
    static const struct {
        size_t row;
        float shift, score[2];
        double both, apart;
    } changes[] = {
        {10, 0, {0.9F, 0.01F}, 4, 0}, {10, 1, {0.9F, 0.01F}, 4, 0},  {10, 40, {0.9F, 0.01F}, 5, 1},
        {40, 0, {0.7F, 0.1F}, 4, 2},  {40, 0, {0.01F, 0.29F}, 3, 1}, {60, 0, {0.4F, 0.01F}, 5, 1},
    };
    (void)state;
    for (form how = PAIR; how <= CHOSEN; how++)
        for (size_t i = 0; i < OQ_COUNT(changes); i++) {
            scene s;
            exported flt, other;
            bm b;
            bm_begin(&b, NULL, 13);
            fill(&s);
            export(&s, how, &flt);
            const oq_detector *d = find(&b, flt.d, flt.n);
            assert_non_null(d);
            assert_int_equal(d->chosen, how == CHOSEN);
            s.box[changes[i].row][0] += changes[i].shift;
            s.box[changes[i].row][2] += changes[i].shift;
            memcpy(s.score[changes[i].row], changes[i].score, sizeof changes[i].score);
            export(&s, how, &other);
            const oq_detected c = compare(&b, d, &flt, &other);
            assert_float_equal(c.flt, 2, 0);
            /* Without the box that covered it, the one in row 11 counts, unless the model chose. */
            const bool chosen = how == CHOSEN && changes[i].shift > 30;
            assert_float_equal(c.both, changes[i].both - (chosen ? 1 : 0), 0);
            assert_float_equal(c.apart, changes[i].apart + (chosen ? 1 : 0), 0);
            bm_end(&b);
        }
}

/* Boxes as a middle and a size, and boxes that say nothing without their places. */
static void boxes(void **state) {
    (void)state;
    for (int places = 0; places < 2; places++) {
        scene s;
        exported flt;
        bm b;
        bm_begin(&b, NULL, 13);
        fill(&s);
        for (size_t i = 0; i < ROWS; i++) {
            s.box[i][2] = places ? (i % 2 == 0 ? -0.2F : 0.1F) : 3;
            s.box[i][3] = places ? -0.1F : 4;
        }
        export(&s, PAIR, &flt);
        const oq_detector *d = find(&b, flt.d, flt.n);
        assert_non_null(d);
        assert_int_equal(d->heads[0].boxes, places ? OQ_BOXES_PLACE : OQ_BOXES_CENTRE);
        /* At places of their own two neighbours do not cover each other. */
        assert_float_equal(compare(&b, d, &flt, &flt).flt, (places ? 3 : 2), 0);
        bm_end(&b);
    }
}

/* A map of scores with one peak, and of the sizes around it. */
static void maps(void **state) {
    float heat[8 * 16] = {0}, size[2 * 8 * 16] = {0}, shift[2 * 8 * 16] = {0}, moved[8 * 16] = {0};
    const int64_t one[] = {1, 1, 8, 16}, two[] = {1, 2, 8, 16};
    oq_detected c;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    (void)state;
    bm_begin(&b, NULL, 13);
    heat[3 * 16 + 5] = 0.8F;
    heat[3 * 16 + 6] = 0.7F;
    for (size_t i = 0; i < OQ_COUNT(size); i++)
        size[i] = 1.5F;
    oq_datum flt[] = {floats(shift, two, 4), floats(heat, one, 4), floats(size, two, 4)};
    const oq_detector *d = find(&b, flt, 3);
    assert_non_null(d);
    assert_int_equal(d->heads[0].score.output, 1);
    assert_int_equal(d->heads[0].box.output, 2);
    assert_int_equal(d->heads[0].offset.output, 0);
    assert_int_equal(d->heads[0].boxes, OQ_BOXES_LOG_SIZE);
    for (size_t at = 6; at < 16; at += 6) { /* a neighbour is the same, one far away is not */
        memset(moved, 0, sizeof moved);
        moved[3 * 16 + at] = 0.8F;
        const oq_datum there[] = {flt[0], floats(moved, one, 4), flt[2]};
        assert_ok(oq_detect_compare(d, flt, there, 3, b.a->alloc, &c, &err), err);
        assert_float_equal(c.flt, 1, 0);
        assert_float_equal(c.apart, at == 6 ? 0 : 2, 0);
    }
    /* A map of scores alone is a mask, and so is one where much is above. */
    assert_null(find(&b, flt + 1, 1));
    for (size_t i = 0; i < OQ_COUNT(heat); i++)
        heat[i] = 0.9F;
    assert_null(find(&b, flt, 3));
    bm_end(&b);
}

/* Pictures of several sizes: the smallest, in which a logarithm may be larger than that of the map,
 * decides nothing. */
static void maps_of_sizes(void **state) {
    float heat[8 * 16] = {0}, size[2 * 8 * 16], shift[2 * 8 * 16] = {0};
    (void)state;
    heat[5] = 0.8F;
    for (size_t i = 0; i < OQ_COUNT(size); i++)
        size[i] = 1.5F;
    const int64_t one[] = {1, 1, 8, 16}, two[] = {1, 2, 8, 16};
    const int64_t small_one[] = {1, 1, 4, 4}, small_two[] = {1, 2, 4, 4};
    const oq_datum large[] = {floats(shift, two, 4), floats(heat, one, 4), floats(size, two, 4)};
    const oq_datum small[] = {floats(shift, small_two, 4), floats(heat, small_one, 4),
                              floats(size, small_two, 4)};
    const oq_datum *const orders[][2] = {{large, small}, {small, large}};
    for (size_t i = 0; i < OQ_COUNT(orders); i++) {
        bm b;
        bm_begin(&b, NULL, 13);
        const oq_detector *d = find_in(&b, orders[i], 2, 3);
        assert_non_null(d);
        assert_int_equal(d->heads[0].boxes, OQ_BOXES_LOG_SIZE);
        bm_end(&b);
    }
}

/* Two heads of classes, a text's classes, an embedding: no detections. */
static void others(void **state) {
    float a[ROWS * 8], c[ROWS * 8];
    const int64_t four[] = {1, ROWS, 4}, five[] = {1, ROWS, 5}, flat[] = {1, ROWS};
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (size_t i = 0; i < OQ_COUNT(a); i++) {
        a[i] = sinf((float)(i * i));
        c[i] = 5 * sinf((float)(7 * i * i + 3));
    }
    const oq_datum heads[] = {floats(a, four, 3), floats(c, five, 3)};
    assert_null(find(&b, heads, 2));
    const oq_datum text[] = {floats(c, five, 3)}, embedding[] = {floats(a, flat, 2)};
    assert_null(find(&b, text, 1));
    assert_null(find(&b, embedding, 1));
    bm_end(&b);
}

/* Notes or sounds over time: all columns are scores of their own, though four of them could be a
 * box with a middle and a size. The same values are boxes if they lie about the middle. */
static void scores_over_time(void **state) {
    float v[ROWS * 8];
    const int64_t dims[] = {1, ROWS, 8};
    bm b;
    (void)state;
    bm_begin(&b, NULL, 13);
    for (int are_boxes = 0; are_boxes < 2; are_boxes++) {
        for (size_t i = 0; i < OQ_COUNT(v); i++)
            v[i] = 0.02F + 0.01F * sinf((float)(i * i));
        for (size_t row = 0; row < ROWS; row += 8) {
            v[row * 8 + 4] = v[row * 8 + 6] = 0.9F;
            if (are_boxes)
                v[row * 8] = v[row * 8 + 1] = 0.2F + 0.6F * (float)row / ROWS;
        }
        const oq_datum out[] = {floats(v, dims, 3)};
        const oq_detector *d = find(&b, out, 1);
        assert_true((d != NULL) == (are_boxes == 1));
    }
    bm_end(&b);
}

/* Through the score: the default, the figure, its bound, and a search that is lost early. A model
 * that chooses its boxes itself may give another number of rows and is not wrong. */
static void scores(void **state) {
    bm b;
    oq_targets t = {0};
    (void)state;
    bm_begin(&b, NULL, 13);
    for (form how = PAIR; how <= CHOSEN; how++) {
        scene s;
        exported flt, other;
        oq_scoring some, whole;
        oq_score score;
        onq_error err = ONQ_ERROR_INIT;
        fill(&s);
        export(&s, how, &flt);
        s.score[40][1] = 0.05F;
        export(&s, how, &other);
        oq_meaning m = {.links = no_links,
                        .n = flt.n,
                        .classes = flt.n,
                        .detector = find(&b, flt.d, flt.n),
                        .wanted = {[OQ_METRIC_DETECTIONS] = true}};
        const oq_default_target target = oq_meaning_target(&m, flt.d, flt.n, 1);
        assert_int_equal(target.metric, OQ_METRIC_DETECTIONS);
        assert_non_null(strstr(target.why, "boxes"));
        assert_ok(oq_scoring_init(&some, b.a, &m, flt.n, &err), err);
        assert_ok(oq_scoring_init(&whole, b.a, &m, flt.n, &err), err);
        for (uint64_t i = 0; i < 10; i++) {
            const oq_pair same = {
                .number = i, .flt = flt.d, .quantized = flt.d, .n_quantized = flt.n};
            oq_pair lost = same;
            lost.quantized = i == 0 ? other.d : flt.d;
            assert_ok(oq_scoring_add(&some, &lost, &err), err);
            assert_ok(oq_scoring_add(&whole, &same, &err), err);
        }
        assert_ok(oq_scoring_end(&some, &score, &err), err);
        const oq_figure f = score.figures[OQ_METRIC_DETECTIONS];
        assert_true(fabs(f.value - 100 * (1 - 1.0 / 39)) < 1e-9);
        assert_true(f.bound < f.value - 2 && f.bound > 85);
        assert_false(oq_score_is_wrong(&score));
        t.n = 0;
        assert_true(OQ_PUSH(b.a, &t, (oq_target){OQ_METRIC_DETECTIONS, 97}));
        assert_false(oq_targets_are_lost(&t, &some, &whole));
        t.v[0].value = 97.6;
        assert_true(oq_targets_are_lost(&t, &some, &whole));
        /* One sample of ten is nothing but noise then. */
        assert_true(how != CHOSEN || fabs(oq_score_of(&score, OQ_METRIC_SQNR) - 10) < 1e-9);
    }
    bm_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),  cmocka_unit_test(boxes),
        cmocka_unit_test(maps),   cmocka_unit_test(maps_of_sizes),
        cmocka_unit_test(others), cmocka_unit_test(scores_over_time),
        cmocka_unit_test(scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
