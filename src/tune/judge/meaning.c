/*
 * meaning.c — see meaning.h.
 */
#include "tune/judge/meaning.h"

#include "base/vec.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "samples/columns.h"
#include "tune/judge/detect.h"

#include <math.h>

#define MAX_STEPS 16 /* nodes that only move values before an output */

static const char of_numbers[] = "the output holds the number of a class";
static const char of_linear[] = "the output comes from a linear operator, as scores of classes do";

static const oq_metric_info metrics[OQ_METRICS] = {
    {"agreement", "the same class as float", false, true, 0, 100, 0.5},
    {"sample_agreement", "all classes of a sample the same as float's", false, true, 0, 100, 0.5},
    {"text_agreement", "the same text as float's", false, true, 0, 100, 0.5},
    {"sqnr", "signal to noise of the worst output", false, false, -INFINITY, INFINITY, 1},
    {"cosine", "cosine of the worst output", false, false, -1, 1, 0},
    {"neighbours", "the same nearest other embedding as float's", false, true, 0, 100, 0.5},
    {"iou", "intersection over union of the masks", false, true, 0, 100, 0.5},
    {"detections", "detections that float and the model have in common", false, true, 0, 100, 0.5},
    {"kl", "divergence from float's distribution", true, false, 0, INFINITY, 0},
    {"perplexity_rise", "rise of the perplexity", true, false, 0, INFINITY, 0},
    {"accuracy_drop", "right answers lost", true, true, 0, 100, 0.5},
    {"metric", "the measure of --evaluate", false, false, -INFINITY, INFINITY, 0},
};

const oq_metric_info *oq_metric_of(oq_metric m) {
    assert(m < OQ_METRICS && metrics[m].name != NULL);
    return &metrics[m];
}

bool oq_metric_find(oq_str name, oq_metric *out) {
    for (int i = 0; i < OQ_METRICS; i++)
        if (oq_str_is(name, metrics[i].name)) {
            *out = (oq_metric)i;
            return true;
        }
    return false;
}

/* ---- links ---- */

double oq_link_before(oq_link link, double v, double least) {
    if (link == OQ_LINK_SOFTMAX)
        return log(v > least ? v : least) - log(least);
    if (link == OQ_LINK_SIGMOID) {
        const double p = v < least ? least : v > 1 - least ? 1 - least : v;
        return log(p / (1 - p));
    }
    return v;
}

static bool is_one_of(oq_str op, const char *const *names) {
    for (; *names != NULL; names++)
        if (oq_str_is(op, *names))
            return true;
    return false;
}

static bool moves_values(oq_str op) {
    static const char *const names[] = {"Identity",  "Reshape", "Squeeze", "Unsqueeze", "Flatten",
                                        "Transpose", "Cast",    "Slice",   NULL};
    return is_one_of(op, names);
}

/* The node that computes the values of a tensor, or NULL. */
static const oq_node *last_node(const oq_index *ix, oq_str name) {
    const oq_node *n = oq_index_producer(ix, name);
    for (int i = 0; i < MAX_STEPS && n != NULL && moves_values(n->op_type); i++)
        n = n->input.n > 0 ? oq_index_producer(ix, n->input.v[0]) : NULL;
    return n;
}

static bool is_op(const oq_node *n, const char *op) {
    return n != NULL && oq_str_is(n->op_type, op);
}

/* The producer of an input if it is this operator, or NULL. */
static const oq_node *input_by(const oq_index *ix, const oq_node *n, size_t at, const char *op) {
    const oq_node *from =
        n != NULL && at < n->input.n ? oq_index_producer(ix, n->input.v[at]) : NULL;
    return is_op(from, op) ? from : NULL;
}

/* A linear operator, or an Add after one: what a classifier without Softmax ends with. */
static bool is_linear(const oq_index *ix, const oq_node *n) {
    static const char *const names[] = {"Gemm", "MatMul", "FusedMatMul", "FusedGemm", NULL};
    for (size_t i = 0; is_op(n, "Add") && i < n->input.n; i++) {
        const oq_node *before = last_node(ix, n->input.v[i]);
        if (before != NULL && is_one_of(before->op_type, names))
            return true;
    }
    return n != NULL && is_one_of(n->op_type, names);
}

/* The sum of these very values. */
static bool sums_up(const oq_index *ix, const oq_node *n, oq_str values) {
    for (int i = 0; i < MAX_STEPS && n != NULL && (moves_values(n->op_type) || is_op(n, "Expand"));
         i++)
        n = n->input.n > 0 ? oq_index_producer(ix, n->input.v[0]) : NULL;
    return is_op(n, "ReduceSum") && n->input.n > 0 && oq_str_eq(n->input.v[0], values);
}

/* exp(x) / sum(exp(x)), or the product with the reciprocal of the sum. */
static bool is_written_softmax(const oq_index *ix, const oq_node *n) {
    if (n == NULL || n->input.n != 2 || (!is_op(n, "Div") && !is_op(n, "Mul")))
        return false;
    for (size_t i = 0; i < 2; i++) {
        const oq_node *other = oq_index_producer(ix, n->input.v[1 - i]);
        if (is_op(n, "Div") && i == 1)
            break;
        if (is_op(n, "Mul") && is_op(other, "Reciprocal") && other->input.n > 0)
            other = oq_index_producer(ix, other->input.v[0]);
        else if (is_op(n, "Mul"))
            continue;
        if (input_by(ix, n, i, "Exp") != NULL && sums_up(ix, other, n->input.v[i]))
            return true;
    }
    return false;
}

/* x - log(sum(exp(x))). */
static bool is_written_log_softmax(const oq_index *ix, const oq_node *n) {
    const oq_node *log = is_op(n, "Sub") ? input_by(ix, n, 1, "Log") : NULL;
    const oq_node *sum = input_by(ix, log, 0, "ReduceSum");
    const oq_node *exp = input_by(ix, sum, 0, "Exp");
    return exp != NULL && n->input.n == 2 && oq_str_eq(exp->input.v[0], n->input.v[0]);
}

/* Why an output holds classes, or NULL. */
static const char *find_link(const oq_index *ix, const oq_node *n, oq_link *link) {
    *link = OQ_LINK_NONE;
    if (n == NULL)
        return NULL;
    if (is_op(n, "Softmax")) {
        *link = OQ_LINK_SOFTMAX;
        return "the output comes from a Softmax";
    }
    if (is_written_softmax(ix, n)) {
        *link = OQ_LINK_SOFTMAX;
        return "the output comes from a Softmax that is written out";
    }
    if (is_op(n, "LogSoftmax") || is_written_log_softmax(ix, n))
        return "the output comes from a LogSoftmax";
    if (is_op(n, "Sigmoid")) {
        *link = OQ_LINK_SIGMOID;
        return is_linear(ix, last_node(ix, n->input.v[0]))
                   ? "the output comes from a Sigmoid for each class"
                   : NULL;
    }
    if (is_op(n, "ArgMax") || is_op(n, "ArgMin"))
        return of_numbers;
    if (is_op(n, "TopK"))
        return "the output holds the numbers of the best classes";
    return is_linear(ix, n) ? of_linear : NULL;
}

static onq_code is_probability(const oq_index *ix, oq_str name, int depth, oq_arena *a, bool *is,
                               onq_error *err);

/* Of each branch. */
static onq_code are_probabilities(const oq_index *ix, const oq_node *n, oq_str name, int depth,
                                  oq_arena *a, bool *are, onq_error *err) {
    size_t at = 0, branches = 0;
    while (at + 1 < n->output.n && !oq_str_eq(n->output.v[at], name))
        at++;
    *are = true;
    for (size_t i = 0; i < n->attribute.n && *are; i++) {
        oq_graph *g = n->attribute.v[i]->g;
        oq_index inner;
        if (g == NULL || at >= g->output.n)
            continue;
        branches++;
        OQ_TRY(oq_index_build(&inner, a, g, ix, err));
        OQ_TRY(is_probability(&inner, g->output.v[at]->name, depth + 1, a, are, err));
    }
    *are &= branches > 0;
    return ONQ_OK;
}

/* What a Sigmoid made, also where means are taken of it, or each branch of an If ends with one. */
static onq_code is_probability(const oq_index *ix, oq_str name, int depth, oq_arena *a, bool *is,
                               onq_error *err) {
    *is = false;
    for (int i = 0; i < MAX_STEPS; i++) {
        const oq_value *v = oq_index_resolve(&ix, name); /* branches move values from around them */
        const oq_node *n = v != NULL ? oq_value_node(ix, v) : NULL;
        if (is_op(n, "If") && depth < OQ_MAX_GRAPH_DEPTH)
            return are_probabilities(ix, n, name, depth, a, is, err);
        *is = is_op(n, "Sigmoid");
        if (n == NULL || n->input.n == 0 || !(moves_values(n->op_type) || is_op(n, "ReduceMean")))
            return ONQ_OK;
        name = n->input.v[0];
    }
    return ONQ_OK;
}

bool oq_meaning_is_state(const oq_meaning *m, size_t output) {
    return m->states != NULL && output < m->n && m->states[output];
}

static void take_classes(oq_meaning *m, size_t output) {
    m->classes = output;
    m->why = output < m->n ? m->whys[output] : NULL;
    m->scores_alone = output < m->n && m->links[output] == OQ_LINK_SIGMOID;
}

onq_code oq_meaning_find(oq_model *m, const oq_roles *roles, oq_arena *a, oq_meaning *out,
                         onq_error *err) {
    oq_index ix;
    oq_ios ins, outs;
    oq_roles found;
    oq_graph *g = m->proto->graph;
    oq_link *v = OQ_NEW_ARRAY(a, oq_link, g->output.n + 1);
    const char **whys = OQ_NEW_ARRAY(a, const char *, g->output.n + 1);
    OQ_TRY_ALLOC(v != NULL && whys != NULL, err);
    OQ_TRY(oq_index_build(&ix, a, g, NULL, err));
    OQ_TRY(oq_model_inputs(m, a, &ins, err));
    OQ_TRY(oq_model_outputs(m, a, &outs, err));
    OQ_TRY(oq_roles_find(a, &ins, &outs, &found, err));
    if (roles == NULL)
        roles = &found;
    *out = (oq_meaning){.links = v,
                        .whys = whys,
                        .n = g->output.n,
                        .classes = g->output.n,
                        .decides = g->output.n,
                        .states = roles->n_states < outs.n ? roles->states : NULL,
                        .language = roles->language};
    for (size_t i = 0; i < g->output.n; i++) {
        bool probability = false;
        whys[i] = find_link(&ix, last_node(&ix, g->output.v[i]->name), &v[i]);
        OQ_TRY(is_probability(&ix, g->output.v[i]->name, 0, a, &probability, err));
        if (probability)
            v[i] = OQ_LINK_SIGMOID;
        if (oq_meaning_is_state(out, i)) {
            whys[i] = NULL;
            continue;
        }
        if (probability && out->decides == g->output.n)
            out->decides = i;
        if (whys[i] != NULL && out->why == NULL)
            take_classes(out, i);
    }
    if (roles->language.is) {
        out->classes = roles->language.logits;
        out->why = "this is a language model";
        out->scores_alone = false;
    }
    return ONQ_OK;
}

/* ---- coordinates and grades ---- */

/* Why the columns hold numbers rather than scores, or NULL. A row of a sequence is often of the same
 * class, so there only the sign counts. */
static const char *numbers_in(const oq_columns *c) {
    switch (oq_columns_kind_of(c)) {
    case OQ_COLUMNS_ONE_SIGN:
        return "the output comes from a linear operator, but its numbers all have one sign, which "
               "scores of classes do not";
    case OQ_COLUMNS_APART:
        return "the output comes from a linear operator, but its columns differ more from each "
               "other than samples do, as in coordinates";
    default:
        return NULL;
    }
}

/* False: not all samples have these columns. */
static onq_code look_at(size_t output, const oq_datum *const *samples, size_t n_samples,
                        oq_arena *a, oq_columns *c, bool *all, onq_error *err) {
    OQ_TRY(oq_columns_begin(c, &samples[0][output], a, err));
    *all = true;
    for (size_t i = 0; i < n_samples && *all; i++)
        *all = oq_columns_add(c, &samples[i][output]);
    return ONQ_OK;
}

/* Along more axes than two, parts of one are mostly weights. */
onq_code oq_meaning_find_parts(oq_meaning *m, const oq_datum *const *samples, size_t n_samples,
                               oq_arena *a, onq_error *err) {
    for (size_t k = 0; k < m->n && m->classes == m->n && n_samples > 0; k++) {
        oq_columns c;
        bool all = false;
        if (oq_meaning_is_state(m, k) || samples[0][k].rank != 2)
            continue;
        OQ_TRY(look_at(k, samples, n_samples, a, &c, &all, err));
        if (!all || !oq_columns_are_probabilities(&c))
            continue;
        oq_link *links = OQ_NEW_ARRAY(a, oq_link, m->n);
        OQ_TRY_ALLOC(links != NULL, err);
        memcpy(links, m->links, m->n * sizeof *links);
        links[k] = OQ_LINK_SOFTMAX;
        m->links = links;
        m->classes = k;
        m->why = "each row of the output adds up to one, as probabilities of classes do";
    }
    return ONQ_OK;
}

onq_code oq_meaning_look(oq_meaning *m, const oq_datum *const *samples, size_t n_samples,
                         oq_arena *a, onq_error *err) {
    const size_t at = m->classes;
    const oq_datum *first = n_samples > 0 && at < m->n ? &samples[0][at] : NULL;
    oq_columns c;
    if (first == NULL || m->why != of_linear || m->language.is || first->rank < 2)
        return ONQ_OK;
    bool all = false;
    OQ_TRY(look_at(at, samples, n_samples, a, &c, &all, err));
    if (!all)
        return ONQ_OK;
    m->numbers = numbers_in(&c);
    if (m->numbers == NULL)
        return ONQ_OK;
    /* Where one is a coordinate, so may be the others that are like it. */
    size_t next = at + 1;
    while (next < m->n && (m->whys[next] == NULL || m->whys[next] == of_linear))
        next++;
    take_classes(m, next);
    return ONQ_OK;
}

/* ---- one probability ---- */

#define LEAST_SIDE 0.1 /* of all numbers, on each side */

/* One number in a row, or in a step: [N, 1], [N, T, 1], [T] and a number alone. */
static bool is_one_each(const oq_datum *d) {
    const oq_dtype_info *info = oq_dtype_find((int64_t)d->dtype);
    return d->kind == OQ_DATUM_TENSOR && info != NULL && info->cls == OQ_CLASS_REAL &&
           d->rank <= 3 && (d->rank < 2 || d->dims[d->rank - 1] == 1);
}

/* Landmarks with the probability that there is a face, for example: the landmarks count too. */
static bool has_other_answers(const oq_meaning *m, size_t decides) {
    for (size_t i = 0; i < m->n; i++)
        if (i != decides && m->links[i] != OQ_LINK_SIGMOID && !oq_meaning_is_state(m, i))
            return true;
    return false;
}

void oq_meaning_decide(oq_meaning *m, const oq_datum *const *samples, size_t n_samples) {
    double above = 0, of = 0;
    const size_t at = m->decides;
    if (at >= m->n || m->language.is || m->detector != NULL || has_other_answers(m, at) ||
        (m->why != NULL && m->classes != at))
        return;
    for (size_t i = 0; i < n_samples; i++) {
        const oq_datum *d = &samples[i][at];
        if (!is_one_each(d))
            return;
        for (uint64_t k = 0; k < d->count; k++)
            above += oq_datum_real(d, k) > OQ_DECIDED_AT;
        of += (double)d->count;
    }
    m->classes = at;
    m->decision = true;
    m->both_sides = of > 0 && fmin(above, of - above) >= LEAST_SIDE * of;
    m->why = "the output is one probability, and what counts is on which side of one half it is";
}

/* ---- the target ---- */

uint64_t oq_sequences_of(const oq_datum *d, int64_t batch) {
    return d->rank >= 3 && batch > 0 && d->dims[0] == batch ? (uint64_t)batch : 1;
}

oq_default_target oq_meaning_target(const oq_meaning *m, const oq_datum *outputs, size_t n_outputs,
                                    int64_t batch) {
    const oq_datum *d = m->classes < n_outputs ? &outputs[m->classes] : NULL;
    const oq_dtype_info *info = d != NULL ? oq_dtype_find((int64_t)d->dtype) : NULL;
    const bool real = info != NULL && info->cls == OQ_CLASS_REAL;
    const int64_t last = d != NULL && d->rank > 0 ? d->dims[d->rank - 1] : 0;
    const oq_default_target none = {
        OQ_METRIC_SQNR, 30, m->numbers != NULL ? m->numbers : "no output is known to hold classes"};
    if (m->detector != NULL)
        return (oq_default_target){OQ_METRIC_DETECTIONS, 95, m->detector->why};
    if (d == NULL || d->kind != OQ_DATUM_TENSOR || d->count == 0)
        return none;
    if (m->why == of_numbers && d->rank == 2 && d->dims[0] == batch && d->dims[1] > 1)
        return (oq_default_target){OQ_METRIC_SAMPLE_AGREEMENT, 98,
                                   "the output holds the numbers of classes, several in a row"};
    if (!real || (m->decision && m->both_sides))
        return (oq_default_target){OQ_METRIC_AGREEMENT, 99, m->why};
    if (m->decision)
        return (oq_default_target){
            OQ_METRIC_SQNR, 30,
            "the output is one probability, and few of float's are on the other side of one half"};
    /* Along the last of four axes lie pixels more often than classes. */
    if (last < 2 || d->rank > 3 || (m->scores_alone && d->rank != 2))
        return none;
    if (m->language.is)
        return (oq_default_target){OQ_METRIC_KL, 0.1, m->why};
    const uint64_t rows = d->count / (uint64_t)last;
    if (d->rank == 3 && rows > oq_sequences_of(d, batch))
        return (oq_default_target){
            m->is_text ? OQ_METRIC_TEXT_AGREEMENT : OQ_METRIC_SAMPLE_AGREEMENT, 98, m->why};
    return (oq_default_target){OQ_METRIC_AGREEMENT, 99, m->why};
}
