/*
 * remedy_weights.c — remedies for weights: prepared, with a scale for each channel, with more bits.
 */
#include "api/causes/remedy_rows.h"

#include "onnx/operators.h"

#include <stdlib.h>

static const oq_recipe_option each_channel = {"per_channel", NULL};

/* ---- the float model is not prepared ---- */

typedef struct unprepared {
    size_t products, constants, norms;
} unprepared;

/* Of the float model; constants count that the quantized model still has. */
static unprepared look_at(const oq_debug *d) {
    const oq_index *ix = &d->float_index;
    unprepared u = {0};
    for (size_t i = 0; i < ix->graph->node.n; i++) {
        const oq_node *n = ix->graph->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        const int slot = oq_op_slot(t->weight);
        if (t->product == OQ_NO_PRODUCT || slot < 0)
            continue;
        u.products++;
        const oq_str weight = oq_node_input(n, (size_t)slot);
        u.constants += oq_node_is_constant(oq_index_producer(ix, weight)) &&
                       oq_node_is_constant(oq_index_producer(&d->quantized_index, weight));
        const oq_value *out = n->output.n > 0 ? oq_index_find(ix, n->output.v[0]) : NULL;
        u.norms += out != NULL && out->uses.n == 1 &&
                   oq_node_is(ix->graph->node.v[out->uses.v[0].node], "BatchNormalization");
    }
    return u;
}

bool oq_remedy_has_constants(const oq_diagnosing *g) {
    return look_at(g->d).constants > 0 && g->base.prepare.command == NULL;
}

onq_code oq_remedy_prepare_float(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                                 onq_error *err) {
    const unprepared u = look_at(g->d);
    const char *path = NULL;
    *applies = how->prepare.command == NULL && u.constants + u.norms > 0;
    if (!*applies)
        return ONQ_OK;
    how->prepare = (oq_recipe){.command = "preprocess", .prepares = true};
    OQ_TRY(oq_remake_float(&g->maker, &how->prepare, &path, err));
    *applies = path != NULL;
    *input = path;
    /* Where no weight was quantized, the model does not show whether channels had scales. */
    if (*applies && u.constants == u.products && !oq_remedy_has_option(&how->recipe, &each_channel))
        return oq_recipe_add(&how->recipe, &g->job->arena, each_channel.name, NULL, err);
    return ONQ_OK;
}

uint32_t oq_remedy_say_prepare(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const unprepared u = look_at(g->d);
    (void)t;
    oq_buf_adds(out, "The float model was not prepared: ");
    if (u.constants > 0)
        oq_buf_addf(out,
                    "the weights of %zu of %zu products are in Constant nodes and stay as large "
                    "and as slow as in float",
                    u.constants, u.products);
    if (u.norms > 0)
        oq_buf_addf(out, "%s%zu BatchNormalization node%s not folded into the weights",
                    u.constants > 0 ? ", and " : "", u.norms, u.norms == 1 ? " is" : "s are");
    oq_buf_adds(out, ".");
    return OQ_NO_ROW;
}

/* ---- one scale for all channels ---- */

onq_code oq_remedy_has_tensor_weights(oq_diagnosing *g, oq_again *how, const char **input,
                                      bool *applies, onq_error *err) {
    (void)input, (void)err;
    *applies = false;
    for (size_t i = 0; i < g->d->weights.n; i++) {
        const oq_debug_weight *w = &g->d->weights.v[i];
        *applies |= w->axis < 0 && oq_again_has_channels(w);
    }
    *applies &= oq_recipe_get(&how->recipe, "per_channel") == NULL;
    return ONQ_OK;
}

/* A channel that stretches the range of the others. */
bool oq_remedy_has_outlier_channels(const oq_diagnosing *g) {
    for (size_t i = 0; i < g->d->weights.n; i++)
        if (g->d->weights.v[i].verdict.reason == OQ_DEBUG_CHANNEL)
            return true;
    return false;
}

uint32_t oq_remedy_say_per_channel(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_weight *worst = NULL;
    size_t n = 0;
    (void)t;
    for (size_t i = 0; i < g->d->weights.n; i++) {
        const oq_debug_weight *w = &g->d->weights.v[i];
        if (w->axis >= 0 || !oq_again_has_channels(w))
            continue;
        n++;
        if (worst == NULL || w->verdict.own - w->spread < worst->verdict.own - worst->spread)
            worst = w;
    }
    oq_buf_addf(out, "%zu weight%s one scale for all channels", n, n == 1 ? " has" : "s have");
    if (worst != NULL) {
        oq_buf_adds(out, ", and small channels lose most: those of ");
        oq_remedy_name(out, worst->name);
        oq_buf_adds(out, " have an SQNR of ");
        oq_remedy_db(out, worst->verdict.own - worst->spread);
        oq_buf_adds(out, " on average");
    }
    oq_buf_adds(out, ".");
    return oq_remedy_weight_row(g, worst);
}

/* ---- weights of few bits ---- */

/* True if the option would become more, or with `less` smaller, than the model has. */
static bool changes(const oq_again *how, const char *option, long to, bool less) {
    const char *now = oq_recipe_get(&how->recipe, option);
    const long v = now != NULL ? strtol(now, NULL, 10) : 0;
    return v > 0 && (less ? v > to : v < to);
}

onq_code oq_remedy_has_fewer_than_4(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = changes(how, "bits", 4, false);
    return ONQ_OK;
}

onq_code oq_remedy_has_fewer_than_8(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = changes(how, "bits", 8, false);
    return ONQ_OK;
}

onq_code oq_remedy_has_large_blocks(oq_diagnosing *g, oq_again *how, const char **input,
                                    bool *applies, onq_error *err) {
    (void)g, (void)input, (void)err;
    *applies = changes(how, "block_size", 32, true);
    return ONQ_OK;
}

/* Weights of `static` in 4 bits. */
onq_code oq_remedy_has_small_type(oq_diagnosing *g, oq_again *how, const char **input,
                                  bool *applies, onq_error *err) {
    const char *type = oq_recipe_get(&how->recipe, "weight_type");
    (void)g, (void)input, (void)err;
    *applies = type != NULL && (strcmp(type, "qint4") == 0 || strcmp(type, "quint4") == 0);
    return ONQ_OK;
}

uint32_t oq_remedy_say_few_bits(const oq_diagnosing *g, const oq_try *t, oq_buf *out) {
    const oq_debug_weight *worst = NULL;
    (void)t;
    for (size_t i = 0; i < g->d->weights.n; i++)
        if (worst == NULL || g->d->weights.v[i].sqnr < worst->sqnr)
            worst = &g->d->weights.v[i];
    oq_buf_adds(out, "The weights have too few bits");
    if (worst != NULL) {
        const long long bits = worst->bits > 0 ? worst->bits : oq_debug_bits(g->d);
        oq_buf_addf(out, ": %lld", bits);
        if (worst->block > 0)
            oq_buf_addf(out, " in blocks of %llu", (unsigned long long)worst->block);
        oq_buf_adds(out, " leave an SQNR of ");
        oq_remedy_db(out, worst->sqnr);
        oq_buf_adds(out, " in ");
        oq_remedy_name(out, worst->name);
    }
    oq_buf_adds(out, ".");
    return oq_remedy_weight_row(g, worst);
}
