/*
 * detector.c — which outputs are boxes and which are scores, by the shapes and values that float
 * gives for all samples, whatever their order; see detect.h.
 */
#include "base/vec.h"
#include "tune/judge/detect.h"

#include <math.h>

#define MIN_ROWS  32 /* of a model that leaves the choice among its boxes to others */
#define MAX_FOUND 4  /* of so many rows at most one is a detection */
#define ALL_BUT   50 /* one of so many boxes may have another form */
/* Of its width: where the middle of all boxes together never is. */
#define EDGE_OF_PICTURE 0.15

typedef struct finder {
    oq_arena *a;
    const oq_datum *const *samples;
    size_t n_samples, n;
    const oq_meaning *meaning;
    OQ_VEC(oq_detect_head) heads;
    bool chosen;
} finder;

/* An output of numbers that is no state, or NULL. */
static const oq_datum *output_at(const finder *f, size_t k) {
    const oq_datum *d = &f->samples[0][k];
    return d->kind == OQ_DATUM_TENSOR && d->strings == NULL && d->rank > 0 &&
                   !oq_meaning_is_state(f->meaning, k)
               ? d
               : NULL;
}

static int64_t last_of(const oq_datum *d) {
    return d->dims[d->rank - 1];
}

/* ---- values ---- */

typedef struct range {
    double least, most;
    bool integers;
    uint64_t rows;
} range;

static range range_of(const finder *f, const oq_detect_part *p) {
    range r = {INFINITY, -INFINITY, true, 0};
    for (size_t s = 0; s < f->n_samples; s++) {
        oq_detect_grid g;
        if (!oq_detect_grid_of(p, f->samples[s], f->n, &g))
            return (range){-INFINITY, INFINITY, false, 0};
        for (uint64_t i = 0; i < g.images * g.rows * p->n; i++) {
            const uint64_t row = i / p->n;
            const double x = oq_detect_at(p, &g, row / g.rows, row % g.rows, i % p->n);
            r.least = fmin(r.least, x);
            r.most = fmax(r.most, x);
            r.integers &= x == floor(x);
        }
        r.rows += g.images * g.rows;
    }
    return r;
}

static bool are_probabilities(const range *r) {
    return r->rows > 0 && r->least >= -1e-4 && r->most <= 1 + 1e-4;
}

static bool are_labels(const range *r) {
    return r->rows > 0 && r->integers && r->least >= -1;
}

/* How the rows of scores are: where the largest value is most often, and what it is. */
typedef struct tops {
    uint32_t usual;
    uint64_t rows, n_usual, low, sum_to_one;
} tops;

static onq_code count_tops(const finder *f, const oq_detect_part *p, tops *out, onq_error *err) {
    uint64_t *count = OQ_NEW_ARRAY(f->a, uint64_t, p->n + 1);
    OQ_TRY_ALLOC(count != NULL, err);
    *out = (tops){0};
    for (size_t s = 0; s < f->n_samples; s++) {
        oq_detect_grid g;
        (void)oq_detect_grid_of(p, f->samples[s], f->n, &g);
        for (uint64_t row = 0; row < g.images * g.rows; row++, out->rows++) {
            double most = -INFINITY, sum = 0;
            uint32_t top = 0;
            for (uint32_t i = 0; i < p->n; i++) {
                const double x = oq_detect_at(p, &g, row / g.rows, row % g.rows, i);
                sum += x;
                top = x > most ? i : top;
                most = fmax(most, x);
            }
            count[top]++;
            out->low += most < 0;
            out->sum_to_one += fabs(sum - 1) < 1e-3;
        }
    }
    for (uint32_t i = 0; i < p->n; i++)
        if (count[i] > out->n_usual) {
            out->usual = i;
            out->n_usual = count[i];
        }
    return ONQ_OK;
}

/* Logits of a Sigmoid are negative where nothing is; those of a Softmax have a class for it. */
static onq_code set_scores(const finder *f, oq_detect_head *h, onq_error *err) {
    const range r = range_of(f, &h->score);
    tops t = {0};
    OQ_TRY(count_tops(f, &h->score, &t, err));
    h->scores = are_probabilities(&r) ? OQ_SCORES_PLAIN
                : 2 * t.low > t.rows  ? OQ_SCORES_SIGMOID
                                      : OQ_SCORES_SOFTMAX;
    const bool shares = h->scores == OQ_SCORES_SOFTMAX ||
                        (h->scores == OQ_SCORES_PLAIN && 2 * t.sum_to_one > t.rows);
    if (shares && h->score.n > 1 && 2 * t.n_usual > t.rows)
        h->background = t.usual;
    return ONQ_OK;
}

/* ---- heads ---- */

static onq_code gather(const finder *f, const oq_detect_head *h, oq_detections *out,
                       onq_error *err) {
    for (size_t s = 0; s < f->n_samples; s++)
        OQ_TRY(oq_detect_add(h, 0, f->samples[s], f->n, f->a, out, err));
    return ONQ_OK;
}

static oq_detect_boxes form_of(const oq_detections *v) {
    size_t corners = 0, centre = 0;
    for (size_t i = 0; i < v->n; i++) {
        const double *b = v->v[i].box;
        corners += b[2] > b[0] && b[3] > b[1];
        centre += b[2] > 0 && b[3] > 0;
    }
    return (v->n - corners) * ALL_BUT <= v->n  ? OQ_BOXES_CORNERS
           : (v->n - centre) * ALL_BUT <= v->n ? OQ_BOXES_CENTRE
                                               : OQ_BOXES_PLACE;
}

/* Columns between 0 and 1 are boxes, as parts of the picture, or further scores (a note, a sound).
 * Boxes lie about the middle of the picture and do not add up to one. */
static bool are_scores_too(const finder *f, const oq_detect_head *h, const oq_detections *v) {
    const range r = range_of(f, &h->box);
    double middle[2] = {0};
    size_t shares = 0;
    for (size_t i = 0; i < v->n; i++) {
        const double *b = v->v[i].box;
        const bool corners = h->boxes == OQ_BOXES_CORNERS;
        middle[0] += (corners ? (b[0] + b[2]) / 2 : b[0]) / (double)v->n;
        middle[1] += (corners ? (b[1] + b[3]) / 2 : b[1]) / (double)v->n;
        shares += fabs(b[0] + b[1] + b[2] + b[3] - 1) < 1e-3;
    }
    return are_probabilities(&r) &&
           (2 * shares > v->n || fmin(middle[0], middle[1]) < EDGE_OF_PICTURE ||
            fmax(middle[0], middle[1]) > 1 - EDGE_OF_PICTURE);
}

/* Adds a head whose rows are all that the model has, if they look like boxes. Values that are no
 * boxes are taken for shifts of places that the model knows, if the scores are probabilities. */
static onq_code add_rows(finder *f, oq_detect_head *h, bool *added, onq_error *err) {
    oq_detections v = {0};
    const range r = range_of(f, &h->score);
    *added = false;
    if (r.rows < MIN_ROWS * f->n_samples || !isfinite(r.least) || !isfinite(r.most))
        return ONQ_OK;
    OQ_TRY(set_scores(f, h, err));
    OQ_TRY(gather(f, h, &v, err));
    h->boxes = form_of(&v);
    if (v.n == 0 || MAX_FOUND * v.n > r.rows || are_scores_too(f, h, &v) ||
        (h->boxes == OQ_BOXES_PLACE && h->scores != OQ_SCORES_PLAIN))
        return ONQ_OK;
    *added = true;
    return OQ_PUSH(f->a, &f->heads, *h) ? ONQ_OK : oq_fail_nomem(err);
}

/* What remains after the model has chosen: rows with a class, a score and a box each. */
static onq_code find_chosen(finder *f, onq_error *err) {
    static const struct {
        int64_t columns;
        uint32_t label, score, box;
    } forms[] = {{6, 5, 4, 0}, {6, 0, 1, 2}, {7, 5, 6, 1}, {7, 1, 2, 3}};
    for (size_t k = 0; k < f->n; k++) {
        const oq_datum *d = output_at(f, k);
        for (size_t i = 0; i < OQ_COUNT(forms) && d != NULL; i++) {
            const oq_detect_head h = {.box = {.output = k, .first = forms[i].box, .n = 4},
                                      .score = {.output = k, .first = forms[i].score, .n = 1},
                                      .label = {.output = k, .first = forms[i].label, .n = 1},
                                      .boxes = OQ_BOXES_CORNERS,
                                      .background = OQ_NO_CLASS};
            const range score = range_of(f, &h.score), label = range_of(f, &h.label);
            oq_detections v = {0};
            if (d->rank < 2 || last_of(d) != forms[i].columns || !are_probabilities(&score) ||
                score.integers || !are_labels(&label))
                continue;
            OQ_TRY(gather(f, &h, &v, err));
            if (v.n == 0 || form_of(&v) != OQ_BOXES_CORNERS)
                continue;
            f->chosen = true;
            return OQ_PUSH(f->a, &f->heads, h) ? ONQ_OK : oq_fail_nomem(err);
        }
    }
    return ONQ_OK;
}

/* The scores of an output of boxes: where they are, or false. */
static bool find_scores(const oq_datum *box, const oq_datum *d, size_t k, oq_detect_part *out) {
    const size_t rank = box->rank;
    *out = (oq_detect_part){.output = k, .n = 1};
    if (d->rank + 1 == rank && memcmp(d->dims, box->dims, d->rank * sizeof *d->dims) == 0) {
        out->alone = true;
        return true;
    }
    if (d->rank != rank)
        return false;
    out->across = rank == 3 && d->dims[0] == box->dims[0] && d->dims[2] == box->dims[1];
    if (!out->across && memcmp(d->dims, box->dims, (rank - 1) * sizeof *d->dims) != 0)
        return false;
    out->n = (uint32_t)d->dims[out->across ? 1 : rank - 1];
    return out->n > 0;
}

/* Classes beside scores, one for each row. */
static void find_labels(const finder *f, oq_detect_head *h) {
    const oq_datum *score = output_at(f, h->score.output);
    for (size_t k = 0; k < f->n && h->score.alone && h->label.n == 0; k++) {
        const oq_datum *d = output_at(f, k);
        const oq_detect_part p = {.output = k, .n = 1, .alone = true};
        if (d == NULL || k == h->score.output || !oq_datum_same_dims(d, score))
            continue;
        const range r = range_of(f, &p);
        if (are_labels(&r))
            h->label = p;
    }
}

static onq_code try_pair(finder *f, size_t box, const oq_detect_part *score, bool *added,
                         onq_error *err) {
    oq_detect_head h = {.box = {.output = box, .n = 4}, .score = *score, .background = OQ_NO_CLASS};
    const range r = range_of(f, score);
    oq_detections v = {0};
    find_labels(f, &h);
    if (h.label.n == 0)
        return add_rows(f, &h, added, err);
    *added = false;
    if (!are_probabilities(&r) || r.integers)
        return ONQ_OK;
    OQ_TRY(gather(f, &h, &v, err));
    h.boxes = form_of(&v);
    if (v.n == 0 || h.boxes == OQ_BOXES_PLACE)
        return ONQ_OK;
    *added = f->chosen = true;
    return OQ_PUSH(f->a, &f->heads, h) ? ONQ_OK : oq_fail_nomem(err);
}

/* Boxes [N, M, 4] or [M, 4] in one output and scores in another, once or for several sizes. */
static onq_code find_pairs(finder *f, onq_error *err) {
    for (size_t k = 0; k < f->n; k++) {
        const oq_datum *box = output_at(f, k);
        bool added = false;
        if (box == NULL || box->rank < 2 || box->rank > 3 || last_of(box) != 4)
            continue;
        for (size_t s = 0; s < f->n && !added; s++) {
            const oq_datum *d = s != k ? output_at(f, s) : NULL;
            oq_detect_part score;
            if (d != NULL && find_scores(box, d, s, &score))
                OQ_TRY(try_pair(f, k, &score, &added, err));
        }
    }
    /* Boxes of several sizes are seldom complete: what they lack is their place. */
    for (size_t i = 0; i < f->heads.n && f->heads.n > 1 && !f->chosen; i++)
        if (f->heads.v[i].boxes == OQ_BOXES_CENTRE)
            f->heads.v[i].boxes = OQ_BOXES_PLACE;
    return ONQ_OK;
}

/* All in one output: [N, M, 4 + 1 + C], where the fifth says that there is something, or
 * [N, 4 + C, M]. */
static onq_code find_rows(finder *f, onq_error *err) {
    for (size_t k = 0; k < f->n; k++) {
        const oq_datum *d = output_at(f, k);
        bool added = false;
        if (d == NULL || d->rank != 3 || last_of(d) < 5 || d->dims[1] < 5)
            continue;
        const bool across = d->dims[2] > d->dims[1];
        const uint32_t n = (uint32_t)(across ? d->dims[1] : d->dims[2]);
        const uint32_t object = across || n == 5 ? 0 : 1;
        const oq_detect_part all = {.output = k, .first = 4, .n = n - 4, .across = across};
        const range r = range_of(f, &all);
        oq_detect_head h = {
            .box = {.output = k, .n = 4, .across = across},
            .object = {.output = k, .first = 4, .n = object, .across = across},
            .score = {.output = k, .first = 4 + object, .n = n - 4 - object, .across = across},
            .background = OQ_NO_CLASS};
        if (!are_probabilities(&r))
            continue;
        OQ_TRY(add_rows(f, &h, &added, err));
        if (!added)
            continue;
        if (f->heads.v[f->heads.n - 1].boxes == OQ_BOXES_PLACE)
            f->heads.n--;
        return ONQ_OK;
    }
    return ONQ_OK;
}

/* ---- maps ---- */

static double longest_edge(const finder *f, size_t map) {
    int64_t edge = 0;
    for (size_t s = 0; s < f->n_samples; s++)
        for (size_t axis = 2; axis < 4; axis++)
            if (f->samples[s][map].dims[axis] > edge)
                edge = f->samples[s][map].dims[axis];
    return (double)edge;
}

/* Sizes around the pixels that are detections. The map of two columns with the larger values has
 * them, the other has what the middle is shifted by. Logarithms are no larger than that of the
 * map's own size. */
static onq_code find_sizes(const finder *f, oq_detect_head *h, onq_error *err) {
    const oq_datum *map = output_at(f, h->score.output);
    const double edge = longest_edge(f, h->score.output);
    double largest = -INFINITY;
    for (size_t k = 0; k < f->n; k++) {
        const oq_datum *d = output_at(f, k);
        oq_detections v = {0};
        double most = -INFINITY, least = INFINITY;
        if (d == NULL || k == h->score.output || d->rank != 4 || d->dims[2] != map->dims[2] ||
            d->dims[3] != map->dims[3] || (d->dims[1] != 2 && d->dims[1] != 4))
            continue;
        const uint32_t n = (uint32_t)d->dims[1];
        oq_detect_head own = *h;
        own.box = (oq_detect_part){.output = k, .n = n, .across = true};
        own.offset.n = 0;
        OQ_TRY(gather(f, &own, &v, err));
        for (size_t i = 0; i < v.n * n; i++) {
            most = fmax(most, v.v[i / n].box[i % n]);
            least = fmin(least, v.v[i / n].box[i % n]);
        }
        if (n == 4) {
            h->box = own.box;
            h->offset.n = 0;
            h->boxes = least >= 0 ? OQ_BOXES_SIDES : OQ_BOXES_PEAK;
            return ONQ_OK;
        }
        if (most > largest) {
            h->offset = h->box;
            h->box = own.box;
            h->boxes = most <= log(edge) ? OQ_BOXES_LOG_SIZE : OQ_BOXES_SIZE;
            largest = most;
        } else {
            h->offset = own.box;
        }
    }
    return ONQ_OK;
}

static onq_code find_maps(finder *f, onq_error *err) {
    for (size_t k = 0; k < f->n; k++) {
        const oq_datum *d = output_at(f, k);
        oq_detections v = {0};
        if (d == NULL || d->rank != 4 || d->dims[1] < 1)
            continue;
        oq_detect_head h = {.score = {.output = k, .n = (uint32_t)d->dims[1], .across = true},
                            .boxes = OQ_BOXES_PEAK,
                            .background = OQ_NO_CLASS};
        const range r = range_of(f, &h.score);
        if (!are_probabilities(&r) || r.integers || r.rows < MIN_ROWS * f->n_samples)
            continue;
        OQ_TRY(gather(f, &h, &v, err));
        if (v.n == 0 || MAX_FOUND * v.n > r.rows)
            continue;
        OQ_TRY(find_sizes(f, &h, err));
        if (h.box.n == 0) /* a mask, or a map of its own */
            continue;
        OQ_TRY_ALLOC(OQ_PUSH(f->a, &f->heads, h), err);
    }
    return ONQ_OK;
}

static bool same_outputs(const finder *f) {
    for (size_t s = 0; s < f->n_samples; s++)
        for (size_t k = 0; k < f->n; k++)
            if (f->samples[s][k].kind != f->samples[0][k].kind ||
                f->samples[s][k].rank != f->samples[0][k].rank)
                return false;
    return true;
}

onq_code oq_detector_find(oq_arena *a, const oq_datum *const *samples, size_t n_samples,
                          const oq_meaning *meaning, const oq_detector **out, onq_error *err) {
    static onq_code (*const ways[])(finder * f, onq_error * err) = {find_maps, find_chosen,
                                                                    find_pairs, find_rows};
    static const char *const why[] = {
        "the outputs are maps of scores and of sizes, as detectors have them",
        "the outputs are boxes with classes and scores",
        "the outputs are boxes and scores, as detectors have them",
        "the output has boxes with scores, as detectors have them"};
    finder f = {
        .a = a, .samples = samples, .n_samples = n_samples, .n = meaning->n, .meaning = meaning};
    *out = NULL;
    for (size_t i = 0; i < OQ_COUNT(ways) && n_samples > 0 && same_outputs(&f); i++) {
        OQ_TRY(ways[i](&f, err));
        if (f.heads.n == 0)
            continue;
        oq_detector *d = OQ_NEW(a, oq_detector);
        OQ_TRY_ALLOC(d != NULL, err);
        *d = (oq_detector){f.heads.v, f.heads.n, f.chosen, why[i]};
        *out = d;
        return ONQ_OK;
    }
    return ONQ_OK;
}
