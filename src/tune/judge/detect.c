/*
 * detect.c — reading detections from outputs and matching them; see detect.h.
 */
#include "tune/judge/detect.h"

#include "base/keyed.h"
#include "onnx/tensor.h"

#include <math.h>

#define DETECTED       0.3  /* a score */
#define SAME           0.5  /* overlap of two boxes that are the same */
#define OVERLAPS       0.45 /* of two boxes of which the worse one is left out */
#define MAX_DETECTIONS 300  /* detections of one sample, the best ones */
#define PEAK           1.5  /* pixels around the middle of a box whose size is not known */

/* ---- outputs as rows ---- */

bool oq_detect_grid_of(const oq_detect_part *p, const oq_datum *outputs, size_t n,
                       oq_detect_grid *out) {
    const oq_datum *d = p->output < n ? &outputs[p->output] : NULL;
    const size_t least = p->alone ? 1 : p->across ? 3 : 2;
    if (p->n == 0 || d == NULL || d->kind != OQ_DATUM_TENSOR || d->strings != NULL ||
        d->rank < least)
        return false;
    const uint64_t last = (uint64_t)d->dims[d->rank - 1];
    oq_detect_grid g = {.d = d, .width = last};
    g.columns = p->alone ? 1 : p->across ? (uint64_t)d->dims[1] : last;
    g.images = p->across || (p->alone && d->rank > 1) ? (uint64_t)d->dims[0] : 1;
    if (!p->across && !p->alone && d->rank > 2)
        g.images = d->count == 0 ? 0 : d->count / last / (uint64_t)d->dims[d->rank - 2];
    g.rows = g.images * g.columns > 0 ? d->count / g.images / g.columns : 0;
    *out = g;
    return p->first + p->n <= g.columns || d->count == 0;
}

double oq_detect_at(const oq_detect_part *p, const oq_detect_grid *g, uint64_t image, uint64_t row,
                    uint64_t column) {
    const uint64_t at = p->across ? (image * g->columns + p->first + column) * g->rows + row
                                  : (image * g->rows + row) * g->columns + p->first + column;
    const oq_dtype_info *info = oq_dtype_find((int64_t)g->d->dtype);
    assert(at < g->d->count);
    return info != NULL && info->cls == OQ_CLASS_REAL
               ? oq_raw_get_real(g->d->dtype, g->d->data, at)
               : (double)oq_raw_get_int(g->d->dtype, g->d->data, at);
}

typedef struct row_view {
    const oq_detect_head *h;
    oq_detect_grid box, score, object, label, offset;
} row_view;

/* The best class of a row, and its score. */
static double best_score(const row_view *v, uint64_t image, uint64_t row, uint32_t *label) {
    const oq_detect_part *p = &v->h->score;
    double best = -INFINITY, sum = 0, most = -INFINITY;
    for (uint32_t i = 0; i < p->n; i++) {
        const double x = oq_detect_at(p, &v->score, image, row, i);
        most = fmax(most, x);
        if (i != v->h->background && x > best) {
            best = x;
            *label = i;
        }
    }
    if (v->h->scores == OQ_SCORES_SIGMOID)
        return 1 / (1 + exp(-best));
    if (v->h->scores == OQ_SCORES_PLAIN)
        return best;
    for (uint32_t i = 0; i < p->n; i++)
        sum += exp(oq_detect_at(p, &v->score, image, row, i) - most);
    return exp(best - most) / sum;
}

static bool detect(const row_view *v, uint64_t image, uint64_t row, oq_detection *x) {
    const oq_detect_head *h = v->h;
    *x = (oq_detection){.image = (uint32_t)image, .place = row, .width = v->score.width};
    const double object = h->object.n > 0 ? oq_detect_at(&h->object, &v->object, image, row, 0) : 1;
    if (!(object > DETECTED))
        return false;
    x->score = object * best_score(v, image, row, &x->label);
    if (!(x->score > DETECTED))
        return false;
    if (h->label.n > 0) {
        const double label = oq_detect_at(&h->label, &v->label, image, row, 0);
        x->label = label >= 0 && label < OQ_NO_CLASS ? (uint32_t)label : OQ_NO_CLASS;
    }
    for (uint32_t i = 0; i < h->box.n; i++)
        x->box[i] = oq_detect_at(&h->box, &v->box, image, row, i);
    for (uint32_t i = 0; i < h->offset.n; i++)
        x->box[2 + i] = oq_detect_at(&h->offset, &v->offset, image, row, i);
    return true;
}

onq_code oq_detect_add(const oq_detect_head *h, size_t at, const oq_datum *outputs, size_t n,
                       oq_arena *a, oq_detections *out, onq_error *err) {
    row_view v = {.h = h};
    const struct {
        const oq_detect_part *part;
        oq_detect_grid *grid;
    } parts[] = {
        {&h->box, &v.box}, {&h->object, &v.object}, {&h->label, &v.label}, {&h->offset, &v.offset}};
    if (!oq_detect_grid_of(&h->score, outputs, n, &v.score))
        return ONQ_OK;
    for (size_t i = 0; i < OQ_COUNT(parts); i++)
        if (parts[i].part->n > 0 &&
            (!oq_detect_grid_of(parts[i].part, outputs, n, parts[i].grid) ||
             parts[i].grid->rows != v.score.rows || parts[i].grid->images != v.score.images))
            return ONQ_OK;
    for (uint64_t image = 0; image < v.score.images; image++)
        for (uint64_t row = 0; row < v.score.rows; row++) {
            oq_detection x;
            if (!detect(&v, image, row, &x))
                continue;
            x.head = at;
            OQ_TRY_ALLOC(OQ_PUSH(a, out, x), err);
        }
    return ONQ_OK;
}

/* ---- boxes ---- */

static void set_corners(oq_detection *x, double left, double top, double right, double bottom) {
    x->box[0] = left;
    x->box[1] = top;
    x->box[2] = right;
    x->box[3] = bottom;
}

static void make_corners(oq_detect_boxes form, oq_detection *x) {
    const double *b = x->box;
    const bool is_log = form == OQ_BOXES_LOG_SIZE, sized = is_log || form == OQ_BOXES_SIZE;
    const double column = (double)(x->place % x->width) + 0.5 + (sized ? b[3] : 0);
    const uint64_t row = x->place / x->width;
    const double line = (double)row + 0.5 + (sized ? b[2] : 0);
    const double high = !sized ? PEAK : (is_log ? exp(b[0]) : b[0]) / 2;
    const double wide = !sized ? PEAK : (is_log ? exp(b[1]) : b[1]) / 2;
    switch (form) {
    case OQ_BOXES_CORNERS:
        break;
    case OQ_BOXES_CENTRE:
        set_corners(x, b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2);
        break;
    case OQ_BOXES_PLACE:
        set_corners(x, 2 * (double)x->place, 0, 2 * (double)x->place + 1, 1);
        break;
    case OQ_BOXES_SIDES:
        set_corners(x, column - b[0], line - b[1], column + b[2], line + b[3]);
        break;
    case OQ_BOXES_PEAK:
    case OQ_BOXES_SIZE:
    case OQ_BOXES_LOG_SIZE:
        set_corners(x, column - wide, line - high, column + wide, line + high);
        break;
    }
}

/* Intersection over union; 0 of boxes that cannot be the same. */
static double overlap(const oq_detector *d, const oq_detection *x, const oq_detection *y) {
    if (x->image != y->image || x->label != y->label)
        return 0;
    if (x->head != y->head && d->heads[x->head].boxes == OQ_BOXES_PLACE)
        return 0;
    const double wide = fmin(x->box[2], y->box[2]) - fmax(x->box[0], y->box[0]);
    const double high = fmin(x->box[3], y->box[3]) - fmax(x->box[1], y->box[1]);
    const double both = wide > 0 && high > 0 ? wide * high : 0;
    const double all = (x->box[2] - x->box[0]) * (x->box[3] - x->box[1]) +
                       (y->box[2] - y->box[0]) * (y->box[3] - y->box[1]) - both;
    return all > 0 ? both / all : 0;
}

/* The detections of one sample, the best first, without those that a better one covers. */
static onq_code read_all(const oq_detector *d, const oq_datum *outputs, size_t n, oq_arena *a,
                         oq_detections *out, onq_error *err) {
    oq_detections all = {0};
    for (size_t i = 0; i < d->n; i++)
        OQ_TRY(oq_detect_add(&d->heads[i], i, outputs, n, a, &all, err));
    oq_keyed *order = OQ_NEW_ARRAY(a, oq_keyed, all.n + 1);
    OQ_TRY_ALLOC(order != NULL, err);
    for (size_t i = 0; i < all.n; i++)
        order[i] = (oq_keyed){-all.v[i].score, (uint32_t)i};
    oq_keyed_sort(order, all.n);
    for (size_t i = 0; i < all.n && i < MAX_DETECTIONS; i++) {
        oq_detection *x = &all.v[order[i].at];
        bool covered = false;
        make_corners(d->heads[x->head].boxes, x);
        for (size_t k = 0; k < out->n && !covered && !d->chosen; k++)
            covered = overlap(d, x, &out->v[k]) > OVERLAPS;
        OQ_TRY_ALLOC(covered || OQ_PUSH(a, out, *x), err);
    }
    return ONQ_OK;
}

/* The one that overlaps most and is not taken yet, or NULL. */
static oq_detection *find_same(const oq_detector *d, const oq_detection *x, oq_detections *among) {
    oq_detection *best = NULL;
    double most = 0;
    for (size_t i = 0; i < among->n; i++) {
        const double o = among->v[i].taken ? 0 : overlap(d, x, &among->v[i]);
        if (o >= SAME && o > most) {
            most = o;
            best = &among->v[i];
        }
    }
    return best;
}

onq_code oq_detect_compare(const oq_detector *d, const oq_datum *flt, const oq_datum *quantized,
                           size_t n, const onq_allocator *alloc, oq_detected *out, onq_error *err) {
    OQ_SCRATCH(own, alloc);
    oq_detections a = {0}, b = {0};
    double same = 0;
    OQ_TRY(read_all(d, flt, n, &own, &a, err));
    OQ_TRY(read_all(d, quantized, n, &own, &b, err));
    for (size_t i = 0; i < a.n; i++) {
        oq_detection *x = find_same(d, &a.v[i], &b);
        if (x == NULL)
            continue;
        x->taken = true;
        same++;
    }
    *out = (oq_detected){(double)a.n, (double)(a.n + b.n), (double)(a.n + b.n) - 2 * same};
    assert(out->apart >= 0);
    return ONQ_OK;
}

bool oq_detector_has(const oq_detector *d, size_t output) {
    bool has = false;
    for (size_t i = 0; i < d->n; i++) {
        const oq_detect_head *h = &d->heads[i];
        has |= h->box.output == output || h->score.output == output ||
               (h->label.n > 0 && h->label.output == output);
    }
    return has;
}
