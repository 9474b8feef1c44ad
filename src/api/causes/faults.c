/*
 * faults.c — see faults.h.
 */
#include "api/causes/faults.h"

#include "api/causes/cause_choice.h"
#include "api/causes/remedy_rows.h"
#include "onnx/operators.h"

#include <math.h>

#define MUCH   1.25 /* a range that is so many times another is another */
#define LITTLE 0.05 /* of a range: ends that differ less are no difference */

/* What stands out among tensors that agree: */
#define ALIKE   0.02 /* of a range: ends of one that agrees differ by less */
#define CLOSE   0.5  /* dB: weights that agree differ by less */
#define FAR     1.8  /* a range that is so many times another */
#define LOSSY   25.0 /* dB that a tensor of parameters that do not fit has at most */
#define CLIPPED 15.0 /* dB of one that is too narrow: methods clip a little on purpose */
#define WORSE   10.0 /* dB that it has less than with others; a channel of a weight too */
#define RARE    20   /* one in so many may stand out, but always one */
#define MOST    0.8  /* of the tensors must agree */

typedef struct comparing {
    const oq_debug *given, *again;
    oq_map weights, acts; /* of `again`, by name */
    size_t n_acts, n_other, n_clipped;
} comparing;

static bool differs(double a, double b) {
    const double x = fabs(a), y = fabs(b), least = 1e-12;
    return fmax(x, y) > least && fmax(x, y) > MUCH * fmin(x, y);
}

/* The channel that lost most by parameters that do not fit it, much worse than in the other model;
 * the number of channels where there is none. */
static uint64_t bad_channel(const oq_debug_weight *a, const oq_debug_weight *b) {
    const uint64_t n = a->channel_sqnr != NULL && b->channel_sqnr != NULL ? a->n_channels : 0;
    uint64_t found = a->n_channels;
    double most = WORSE;
    for (uint64_t c = 0; c < n && a->n_channels == b->n_channels; c++) {
        const double lost = b->channel_sqnr[c] - a->channel_sqnr[c];
        if (a->channel_sqnr[c] < LOSSY && lost > most) {
            most = lost;
            found = c;
        }
    }
    return found;
}

static bool is_other_weight(const oq_debug_weight *a, const oq_debug_weight *b) {
    return a->type != b->type || a->verdict.own + 3 < b->sqnr ||
           (a->type != OQ_INT32 &&
            (differs(a->q_hi - a->q_lo, b->q_hi - b->q_lo) || bad_channel(a, b) < a->n_channels));
}

static bool is_other_act(const oq_debug_act *a, const oq_debug_act *b) {
    return a->type != b->type || differs(a->q_hi - a->q_lo, b->q_hi - b->q_lo) ||
           fabs(a->q_lo - b->q_lo) > 0.25 * (b->q_hi - b->q_lo);
}

/* By how much of its range an activation has another one. */
static double shift_of(const oq_debug_act *a, const oq_debug_act *b) {
    const double width = b->q_hi - b->q_lo;
    return width > 0 ? (fabs(a->q_lo - b->q_lo) + fabs(a->q_hi - b->q_hi)) / width : 0;
}

static void say_types(oq_buf *out, oq_dtype has, oq_dtype would) {
    if (has != would)
        oq_buf_addf(out, ", and has the type %s where others have %s", oq_dtype_name((int64_t)has),
                    oq_dtype_name((int64_t)would));
}

static void say_weight(const oq_debug_weight *a, const oq_debug_weight *b, oq_buf *out) {
    oq_buf_addf(out, "The parameters of %s ", a->type == OQ_INT32 ? "bias" : "weight");
    oq_remedy_name(out, a->name);
    const uint64_t c = bad_channel(a, b);
    if (c < a->n_channels && a->n_channels > 1 && a->verdict.own + WORSE >= b->sqnr)
        oq_buf_addf(out,
                    " do not fit its channel %llu: its SQNR there is %.1f dB; quantized again it "
                    "is %.1f dB",
                    (unsigned long long)c, a->channel_sqnr[c], b->channel_sqnr[c]);
    else
        oq_buf_addf(out,
                    " do not fit its values: its SQNR is %.1f dB; quantized again it is %.1f dB",
                    a->verdict.own, b->sqnr);
    say_types(out, a->type, b->type);
    oq_buf_adds(out, ".");
}

static void say_act(const oq_debug_act *a, const oq_debug_act *b, oq_buf *out) {
    oq_buf_adds(out, "The range of activation ");
    oq_remedy_name(out, a->name);
    oq_buf_addf(out, " is %.3g to %.3g in this model; the samples give %.3g to %.3g", a->q_lo,
                a->q_hi, b->q_lo, b->q_hi);
    if (a->seen > 0 && a->clipped > 0)
        oq_buf_addf(out, ", and %.3g %% of its values are clipped",
                    100 * (double)a->clipped / (double)a->seen);
    say_types(out, a->type, b->type);
    oq_buf_adds(out, ".");
}

/* A constant that the quantizer took for an activation. The prepared model has a weight instead. */
static bool is_constant(const oq_debug *d, const oq_debug_act *a) {
    return oq_node_is_constant(oq_index_producer(&d->quantized_index, a->pre)) && !isnan(a->ideal);
}

/* True if a range loses what one of the values themselves would keep. */
static bool loses_much(const oq_debug_act *a) {
    return a->verdict.own < LOSSY && a->verdict.own + WORSE < a->ideal;
}

/* The activation of the model that was made again; NULL: it cannot be compared. */
static const oq_debug_act *act_again(const comparing *c, const oq_debug_act *a) {
    const uint32_t k = oq_map_find(&c->acts, a->name);
    const oq_debug_act *b = k != OQ_MAP_NONE ? &c->again->acts.v[k] : NULL;
    return b != NULL && a->n_params == 1 && b->n_params == 1 ? b : NULL;
}

static bool is_other(const comparing *c, uint32_t at) {
    const oq_debug *d = c->given;
    if (at < d->weights.n) {
        const uint32_t k = oq_map_find(&c->weights, d->weights.v[at].name);
        return k != OQ_MAP_NONE && is_other_weight(&d->weights.v[at], &c->again->weights.v[k]);
    }
    const oq_debug_act *a = &d->acts.v[at - d->weights.n];
    const oq_debug_act *b = act_again(c, a);
    return b != NULL && is_other_act(a, b);
}

/* True if the node of the float model that has this name reads the tensor. */
static bool reads(const oq_debug *d, oq_str node, oq_str tensor) {
    const oq_graph *g = d->float_index.graph;
    for (size_t i = 0; i < g->node.n; i++)
        if (oq_str_eq(g->node.v[i]->name, node))
            return oq_str_among(tensor, g->node.v[i]->input.v, g->node.v[i]->input.n);
    return false;
}

/* A bias of an integer operator has no scale of its own, but that of the input times that of the
 * weight. Where one of those is another, the bias only follows. */
static uint32_t behind_bias(const comparing *c, uint32_t at) {
    const oq_debug *d = c->given;
    if (at >= d->weights.n || d->weights.v[at].scale2 == NULL)
        return at;
    const oq_str node = d->weights.v[at].node;
    for (size_t i = 0; i < d->n_ranking; i++) {
        const uint32_t k = d->ranking[i];
        const bool there = k < d->weights.n ? oq_str_eq(d->weights.v[k].node, node)
                                            : reads(d, node, d->acts.v[k - d->weights.n].flt);
        if (k != at && there && is_other(c, k))
            return k;
    }
    return at;
}

/* Moves have the parameters of what they move: the first of these activations is the one at fault. */
static uint32_t source_of(const comparing *c, uint32_t at) {
    const oq_debug *d = c->given;
    if (at < d->weights.n)
        return at;
    const oq_debug_act *found = &d->acts.v[at - d->weights.n];
    for (size_t i = 0; i < d->acts.n; i++) {
        const oq_debug_act *a = &d->acts.v[i];
        if (a->position < found->position && a->q_lo == found->q_lo && a->q_hi == found->q_hi &&
            is_other(c, (uint32_t)(d->weights.n + i)))
            found = a;
    }
    return (uint32_t)(d->weights.n + (size_t)(found - d->acts.v));
}

/* The first row of the ranking that differs much, or the activation that differs most; fills the
 * counts. */
static uint32_t worst_row(comparing *c) {
    const oq_debug *d = c->given;
    uint32_t found = OQ_NO_ROW, nearest = OQ_NO_ROW;
    double most = LITTLE;
    for (size_t i = 0; i < d->n_ranking; i++) {
        const uint32_t at = d->ranking[i];
        const bool other = is_other(c, at);
        if (at >= d->weights.n) {
            const oq_debug_act *a = &d->acts.v[at - d->weights.n];
            const oq_debug_act *b = act_again(c, a);
            if (b != NULL && shift_of(a, b) > most) {
                most = shift_of(a, b);
                nearest = at;
            }
            c->n_acts++;
            c->n_other += other;
            c->n_clipped += other && a->seen > 0 && 1000 * a->clipped > a->seen;
        }
        if (other && found == OQ_NO_ROW)
            found = at;
    }
    return found != OQ_NO_ROW ? source_of(c, behind_bias(c, found)) : nearest;
}

/* An activation that the other model leaves float, and whose range loses what one of its values
 * would keep; OQ_NO_ROW. */
static uint32_t lonely_row(const comparing *c) {
    const oq_debug *d = c->given;
    for (size_t i = 0; i < d->n_ranking; i++) {
        const uint32_t at = d->ranking[i];
        const oq_debug_act *a = at >= d->weights.n ? &d->acts.v[at - d->weights.n] : NULL;
        if (a != NULL && act_again(c, a) == NULL && loses_much(a))
            return at;
    }
    return OQ_NO_ROW;
}

static void say_lonely(const oq_debug_act *a, oq_buf *out) {
    oq_buf_adds(out, "The range of activation ");
    oq_remedy_name(out, a->name);
    oq_buf_addf(out, " is %.3g to %.3g in this model; its values lie between %.3g and %.3g.",
                a->q_lo, a->q_hi, (double)a->lo, (double)a->hi);
}

/* `far`: the tensor that stands out where the others agree, or OQ_NO_ROW. */
static uint32_t say(comparing *c, uint32_t far, oq_buf *out) {
    const oq_debug *d = c->given;
    const uint32_t worst = worst_row(c), at = far != OQ_NO_ROW ? far : worst;
    const bool alone = at != OQ_NO_ROW && at >= d->weights.n &&
                       act_again(c, &d->acts.v[at - d->weights.n]) == NULL;
    const uint32_t lonely = alone ? at : at == OQ_NO_ROW ? lonely_row(c) : OQ_NO_ROW;
    if (far == OQ_NO_ROW && c->n_acts > 3 && 3 * c->n_other > c->n_acts) {
        oq_buf_addf(out,
                    "The ranges do not fit these samples: %zu of %zu activations have another "
                    "range than the samples give",
                    c->n_other, c->n_acts);
        if (c->n_clipped > 0)
            oq_buf_addf(out, ", and %zu of them clip%s values", c->n_clipped,
                        c->n_clipped == 1 ? "s" : "");
        oq_buf_adds(out, ". The model was calibrated with other samples, with other preprocessing "
                         "or by another method.");
    } else if (lonely != OQ_NO_ROW) {
        say_lonely(&d->acts.v[lonely - d->weights.n], out);
        return lonely;
    } else if (at == OQ_NO_ROW)
        oq_buf_adds(out, "The model is not what its own options make of the float model.");
    else if (at < d->weights.n)
        say_weight(&d->weights.v[at],
                   &c->again->weights.v[oq_map_find(&c->weights, d->weights.v[at].name)], out);
    else
        say_act(&d->acts.v[at - d->weights.n],
                &c->again->acts.v[oq_map_find(&c->acts, d->acts.v[at - d->weights.n].name)], out);
    return at;
}

/* ---- one that stands out ---- */

static bool agrees(const comparing *c, uint32_t at) {
    const oq_debug *d = c->given;
    if (at < d->weights.n) {
        const oq_debug_weight *a = &d->weights.v[at],
                              *b = &c->again->weights.v[oq_map_find(&c->weights, a->name)];
        return a->type == b->type && fabs(a->sqnr - b->sqnr) < CLOSE;
    }
    const oq_debug_act *a = &d->acts.v[at - d->weights.n], *b = act_again(c, a);
    return b != NULL ? shift_of(a, b) < ALIKE : a->verdict.own + WORSE >= a->ideal;
}

/* dB that the values of an activation would have in the range of the other one, where they fit into
 * it: rounding is off by a step at most, and evenly. */
static double would_have(const oq_debug_act *a, const oq_debug_act *b) {
    const oq_dtype_info *type = oq_dtype_find((int64_t)b->type);
    if (type == NULL)
        return -INFINITY;
    const double step = (b->q_hi - b->q_lo) / (exp2(type->bits) - 1);
    const bool fits = a->lo >= b->q_lo - step && a->hi <= b->q_hi + step;
    if (!fits || a->local.n == 0 || !(step > 0))
        return -INFINITY;
    return 10 * log10(12 * a->local.xx / (double)a->local.n / (step * step));
}

/* An activation whose range loses much that the range of the samples would keep, and is none that
 * other samples or a method would give: they widen or narrow it a little, and do not move it. */
static bool is_far_act(const oq_debug_act *a, const oq_debug_act *b) {
    const double width = a->q_hi - a->q_lo, fit = b->q_hi - b->q_lo;
    const bool wide = width > FAR * fit;
    const bool narrow = FAR * width < fit && a->verdict.own < CLIPPED;
    const bool moved = fabs(width - fit) < ALIKE * fit && fabs(a->q_lo - b->q_lo) > ALIKE * fit;
    return (wide || narrow || moved) && a->verdict.own < LOSSY &&
           a->verdict.own + WORSE < would_have(a, b);
}

static bool is_far(const comparing *c, uint32_t at) {
    const oq_debug *d = c->given;
    if (at < d->weights.n) {
        const oq_debug_weight *a = &d->weights.v[at],
                              *b = &c->again->weights.v[oq_map_find(&c->weights, a->name)];
        return (a->verdict.own < LOSSY && a->verdict.own + WORSE < b->sqnr) ||
               (a->type != OQ_INT32 && bad_channel(a, b) < a->n_channels);
    }
    const oq_debug_act *a = &d->acts.v[at - d->weights.n], *b = act_again(c, a);
    return b != NULL ? is_far_act(a, b) : loses_much(a);
}

/* --outlier_channels puts rows of it into a weight of their own (prepare/channels): what is left is
 * no weight that does not fit. */
static bool is_divided(const oq_debug *d, const oq_debug_weight *w) {
    const oq_graph *g = d->quantized_index.graph;
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_str name = g->initializer.v[i]->name;
        if (oq_str_cut_end(&name, "_outliers") && oq_str_eq(name, w->name))
            return true;
    }
    return false;
}

static bool is_comparable(const comparing *c, uint32_t at) {
    const oq_debug *d = c->given;
    if (at < d->weights.n)
        return oq_map_has(&c->weights, d->weights.v[at].name) && !is_divided(d, &d->weights.v[at]);
    const oq_debug_act *a = &d->acts.v[at - d->weights.n];
    return act_again(c, a) != NULL || is_constant(d, a);
}

/* How many tensors of a kind there are, agree, and are far off. */
typedef struct tally {
    size_t n, alike, far;
    uint32_t first; /* that is far off */
} tally;

static void add(tally *t, const comparing *c, uint32_t at) {
    t->n++;
    t->alike += agrees(c, at);
    if (is_far(c, at) && t->far++ == 0)
        t->first = at;
}

static bool is_rare(const tally *t) {
    return t->far > 0 && t->far * RARE <= t->n + RARE - 1 && t->alike > 1 &&
           (double)t->alike >= MOST * (double)(t->n - t->far);
}

/* Weights do not depend on samples, and no method rounds them that badly: they are of another float
 * model. */
static bool is_most(const tally *weights) {
    return weights->far > 1 && 2 * weights->far >= weights->n;
}

/* The worst of those that stand out, if they are rare and the others agree, or if they are most of
 * the weights; OQ_NO_ROW. Biases are counted apart: methods correct all of them. */
static uint32_t stands_out(const comparing *c) {
    const oq_debug *d = c->given;
    tally biases = {.first = OQ_NO_ROW}, others = biases, weights = biases;
    for (size_t i = 0; i < d->n_ranking; i++) {
        const uint32_t at = d->ranking[i];
        if (!is_comparable(c, at))
            continue;
        const bool bias = at < d->weights.n && d->weights.v[at].type == OQ_INT32;
        add(bias ? &biases : &others, c, at);
        if (at < d->weights.n && !bias)
            add(&weights, c, at);
    }
    return is_most(&weights)                     ? weights.first
           : is_rare(&others)                    ? source_of(c, others.first)
           : others.far == 0 && is_rare(&biases) ? biases.first
                                                 : OQ_NO_ROW;
}

/* ---- both ---- */

/* What is done with two models that were compared. */
typedef void use_fn(comparing *c, void *ctx);

static onq_code compare(const oq_diagnosing *g, oq_debug *again, use_fn *use, void *ctx,
                        onq_error *err) {
    comparing c = {.given = g->d, .again = again};
    OQ_TRY(oq_debug_match(again, err));
    OQ_TRY(oq_debug_weights(again, err));
    oq_map_init(&c.weights, &again->arena);
    oq_map_init(&c.acts, &again->arena);
    for (uint32_t i = 0; i < again->weights.n; i++)
        if (!oq_map_put(&c.weights, again->weights.v[i].name, i))
            return oq_fail_nomem(err);
    for (uint32_t i = 0; i < again->acts.n; i++)
        if (!oq_map_put(&c.acts, again->acts.v[i].name, i))
            return oq_fail_nomem(err);
    use(&c, ctx);
    return ONQ_OK;
}

static onq_code with_again(const oq_diagnosing *g, const oq_try *t, use_fn *use, void *ctx,
                           onq_error *err) {
    const oq_open_options how = {.data_root = oq_opt_str(g->job->opts, "data_root")};
    oq_model *m = NULL;
    oq_debug again;
    OQ_TRY(oq_model_open(g->job->env, t->made.path, &how, &m, err));
    oq_debug_init(&again, g->job->env, g->d->flt, m);
    const onq_code rc = compare(g, &again, use, ctx, err);
    oq_debug_release(&again);
    oq_model_free(m);
    return rc;
}

typedef struct saying {
    oq_buf *out;
    uint32_t row;
    bool hardly; /* the outputs hardly show it */
} saying;

static void use_say(comparing *c, void *ctx) {
    saying *s = ctx;
    s->row = say(c, s->hardly ? stands_out(c) : OQ_NO_ROW, s->out);
}

onq_code oq_fault_say(const oq_diagnosing *g, const oq_try *t, oq_buf *out, uint32_t *row,
                      onq_error *err) {
    saying s = {.out = out, .hardly = oq_gain_over(t->before, t->made.sqnr) < OQ_MIN_GAIN};
    OQ_TRY(with_again(g, t, use_say, &s, err));
    *row = s.row;
    if (s.hardly)
        oq_buf_adds(out, " The outputs hardly show it on these samples.");
    return ONQ_OK;
}

static void use_stands_out(comparing *c, void *ctx) {
    bool *yes = ctx;
    *yes = stands_out(c) != OQ_NO_ROW;
}

onq_code oq_fault_stands_out(const oq_diagnosing *g, const oq_try *t, bool *yes, onq_error *err) {
    *yes = false;
    return with_again(g, t, use_stands_out, yes, err);
}
