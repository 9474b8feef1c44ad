/*
 * channels_out.c — a range for each channel of a Conv's output.
 *
 *     Conv -> y        becomes   Conv with rows and bias / s -> y' -> Mul(s) -> y
 *     Conv -> Relu     becomes   the same with the Mul after the Relu
 *
 * s puts all channels into -z .. 255 - z, with the zero point z that makes the sum of the squared
 * steps smallest. What the readers of y do not tell apart is cut off first: below zero before Relu,
 * below -3 before HardSwish.
 */
#include "prepare/channels/channels_parts.h"

/* ---- what readers tell apart ---- */

typedef struct cut {
    double low, high;
    oq_node *relu; /* the only reader */
} cut;

static void clip_bounds(oq_channel_state *s, const oq_node *n, cut *c) {
    double *const bounds[2] = {&c->low, &c->high};
    for (size_t i = 0; i < 2; i++) {
        oq_tensor *t = oq_index_init(&s->ix, oq_node_input(n, i + 1));
        oq_span data;
        if (t != NULL && t->data_type.v == OQ_FLOAT &&
            oq_model_data(s->c->see.model, t, &data, NULL) == ONQ_OK && data.n == sizeof(float))
            *bounds[i] = oq_raw_get_real(OQ_FLOAT, data.p, 0);
    }
}

/* HardSigmoid is constant below -beta / alpha and above (1 - beta) / alpha. */
static void gate_bounds(const oq_node *n, cut *c) {
    const double alpha = (double)oq_attr_float(n, "alpha", 0.2f);
    const double beta = (double)oq_attr_float(n, "beta", 0.5f);
    if (alpha > 0) {
        c->low = -beta / alpha;
        c->high = (1 - beta) / alpha;
    }
}

/* y and HardSigmoid(y) meet in a Mul that is the other reader of y. */
static bool is_swish(const oq_channel_state *s, oq_str y, const oq_node *gate, const oq_node *mul) {
    return oq_node_is(mul, "Mul") && mul->input.n == 2 &&
           ((oq_str_eq(mul->input.v[0], y) && oq_str_eq(mul->input.v[1], gate->output.v[0])) ||
            (oq_str_eq(mul->input.v[1], y) && oq_str_eq(mul->input.v[0], gate->output.v[0]))) &&
           oq_index_find(&s->ix, gate->output.v[0])->uses.n == 1;
}

static cut find_cut(oq_channel_state *s, const oq_value *y) {
    cut c = {-INFINITY, INFINITY, NULL};
    if (y->is_output || y->uses.n == 0 || y->uses.n > 2 || y->uses.v[0].slot == OQ_SLOT_INNER)
        return c;
    oq_node *n = s->ix.graph->node.v[y->uses.v[0].node];
    if (y->uses.n == 2) {
        oq_node *other = s->ix.graph->node.v[y->uses.v[1].node];
        oq_node *gate = oq_node_is(n, "HardSigmoid")       ? n
                        : oq_node_is(other, "HardSigmoid") ? other
                                                           : NULL;
        if (gate != NULL && is_swish(s, y->name, gate, gate == n ? other : n)) {
            gate_bounds(gate, &c);
            c.high = INFINITY; /* there it is the identity */
        }
        return c;
    }
    if (oq_node_is(n, "Relu")) {
        c.low = 0;
        c.relu = n;
    } else if (oq_node_is(n, "Clip")) {
        clip_bounds(s, n, &c);
    } else if (oq_node_is(n, "HardSigmoid")) {
        gate_bounds(n, &c);
    } else if (oq_node_is(n, "HardSwish")) {
        c.low = -3;
    }
    return c;
}

/* ---- scales ---- */

double oq_channel_step(double low, double high, int zero) {
    const double up = zero < 255 ? high / (255 - zero) : (high > 0 ? INFINITY : 0);
    const double down = zero > 0 ? -low / zero : (low < 0 ? INFINITY : 0);
    return fmax(up, down);
}

int oq_channel_zero(const double *low, const double *high, const double *weight, uint64_t n) {
    int best = 0;
    double least = INFINITY;
    for (int z = 0; z < 256; z++) {
        double sum = 0;
        for (uint64_t c = 0; c < n && sum < least; c++) {
            const double step = oq_channel_step(low[c], high[c], z);
            sum += step * step * (weight != NULL ? weight[c] : 1.0);
        }
        if (sum < least) {
            least = sum;
            best = z;
        }
    }
    return best;
}

void oq_channel_floor(double *step, uint64_t n, double part) {
    double most = 0;
    for (uint64_t c = 0; c < n; c++)
        most = fmax(most, step[c]);
    for (uint64_t c = 0; c < n; c++)
        step[c] = most > 0 ? fmax(step[c], most * part) : 1.0;
}

/* The part of the noise that one range for all channels makes and scales leave. */
static double noise_left(const double *low, const double *high, const double *step, uint64_t n) {
    double least = 0, most = 0, sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        least = fmin(least, low[i]);
        most = fmax(most, high[i]);
        sum += step[i] * step[i];
    }
    const double one = (most - least) / 255;
    return one > 0 ? sum / ((double)n * one * one) : 1;
}

/* ---- the edit ---- */

/* The output becomes another tensor; a Mul with the scales makes the old one. */
static onq_code give_back(oq_channel_state *s, oq_node *last, const float *scale, uint64_t n,
                          size_t rank, oq_str *scaled, onq_error *err) {
    const oq_str y = last->output.v[0];
    int64_t dims[OQ_CHANNEL_AXES] = {(int64_t)n, 1, 1, 1, 1, 1, 1, 1};
    oq_str factor;
    *scaled = oq_fresh_tensor(&s->names, y, "_channels");
    OQ_TRY(oq_channel_constant(s, y, "_channel_scale", scale, dims, rank - 1, &factor, err));
    if (scaled->p == NULL ||
        oq_channel_node(s, "Mul", y, "_channels", (oq_str[]){*scaled, factor}, 2, y) == NULL)
        return oq_fail_nomem(err);
    last->output.v[0] = *scaled;
    return ONQ_OK;
}

static onq_code scale_output(oq_channel_state *s, oq_channel_product *p, onq_error *err) {
    const oq_value *y = oq_index_find(&s->ix, p->node->output.v[0]);
    const uint64_t n = p->n_out;
    const size_t rank = p->weight->dims.n;
    double *low = OQ_NEW_ARRAY(&s->once, double, n + 1);
    double *high = OQ_NEW_ARRAY(&s->once, double, n + 1);
    double *step = OQ_NEW_ARRAY(&s->once, double, n + 1);
    float *scale = OQ_NEW_ARRAY(&s->once, float, n + 1);
    float *inverse = OQ_NEW_ARRAY(&s->once, float, n + 1);
    if (low == NULL || high == NULL || step == NULL || scale == NULL || inverse == NULL)
        return oq_fail_nomem(err);
    const cut c = find_cut(s, y);
    for (uint64_t i = 0; i < n; i++) {
        low[i] = fmin(fmax((double)p->out->low[i], c.low), 0);
        high[i] = fmax(fmin((double)p->out->high[i], c.high), 0);
    }
    const int zero = oq_channel_zero(low, high, NULL, n);
    for (uint64_t i = 0; i < n; i++)
        step[i] = oq_channel_step(low[i], high[i], zero);
    oq_channel_floor(step, n, OQ_CHANNEL_FLOOR_OUT);
    if (noise_left(low, high, step, n) > OQ_WORTH_A_NODE)
        return ONQ_OK;
    for (uint64_t i = 0; i < n; i++) {
        scale[i] = (float)step[i];
        inverse[i] = (float)(1 / step[i]);
        if (!isfinite(scale[i]) || !isfinite(inverse[i]))
            return ONQ_OK;
    }
    oq_str scaled;
    p->node->name = oq_node_label(p->node); /* a node without a name went by its output */
    OQ_TRY(oq_channel_scale_rows(s, p->node, inverse, err));
    if (c.relu != NULL) {
        const oq_str before = oq_fresh_tensor(&s->names, y->name, "_channels");
        OQ_TRY_ALLOC(before.p != NULL, err);
        p->node->output.v[0] = c.relu->input.v[0] = before;
    }
    OQ_TRY(give_back(s, c.relu != NULL ? c.relu : p->node, scale, n, rank, &scaled, err));
    OQ_TRY(oq_channel_moved(s, p->node->output.v[0], p->out, inverse, err));
    if (c.relu != NULL)
        OQ_TRY(oq_channel_moved_relu(s, scaled, err));
    s->c->n_out++;
    if (isinf(c.low) && isinf(c.high))
        return ONQ_OK;
    /* Of a Relu it is the input: its output has no more anyway. */
    const oq_channel_range range = {p->node->output.v[0], -zero, 255 - zero};
    return OQ_PUSH(&s->c->see.model->arena, &s->c->ranges, range) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_channel_outputs(oq_channel_state *s, onq_error *err) {
    for (size_t i = 0; i < s->products.n; i++) {
        oq_channel_product *p = &s->products.v[i];
        if (p->out == NULL || p->out->skip || p->out->count == 0)
            continue;
        const size_t before = s->c->n_out;
        OQ_TRY(scale_output(s, p, err));
        oq_channel_edited(s);
        if (s->c->n_out > before)
            OQ_TRY(oq_channel_index(s, err));
    }
    return ONQ_OK;
}
