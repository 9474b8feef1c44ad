/*
 * nb_mixed.c — more bits for the layers that are known to need them: the presets k_quant_last and
 * k_quant_mixed of ONNX Runtime's model builder, which has the second from llama.cpp.
 *
 * Layers are known by the numbers in the names of nodes or weights (layers.7, layer.7, h.7,
 * blocks.7), their parts by the words that exporters use.
 */
#include "quantize/nbits/nbits.h"

#include <stdlib.h>

/* The number after one of the words for a layer, or -1. */
static int64_t layer_of(oq_str name) {
    static const char *const words[] = {"layers.", "layer.",  "blocks.", "block.",
                                        "h.",      "layers_", "layer_"};
    for (size_t w = 0; w < OQ_COUNT(words); w++) {
        const size_t n = strlen(words[w]);
        for (size_t i = 0; i + n < name.n; i++) {
            const bool begins =
                i == 0 || name.p[i - 1] == '.' || name.p[i - 1] == '/' || name.p[i - 1] == '_';
            if (!begins || memcmp(name.p + i, words[w], n) != 0)
                continue;
            int64_t v = 0;
            size_t at = i + n;
            for (; at < name.n && name.p[at] >= '0' && name.p[at] <= '9' && v < 100000; at++)
                v = v * 10 + (name.p[at] - '0');
            if (at > i + n)
                return v;
        }
    }
    return -1;
}

static bool has_word(oq_str name, const char *const *words, size_t n_words) {
    for (size_t i = 0; i < n_words; i++)
        if (oq_str_contains(name, oq_str_of(words[i])))
            return true;
    return false;
}

static bool is_last(const oq_graph *g, const oq_node *n) {
    static const char *const words[] = {"lm_head", "embed_out", "output_layer"};
    if (has_word(n->name, words, OQ_COUNT(words)) ||
        has_word(n->input.v[1], words, OQ_COUNT(words)))
        return true;
    for (size_t i = 0; i < g->output.n; i++)
        if (oq_str_eq(g->output.v[i]->name, n->output.v[0]))
            return true;
    return false;
}

/* The value projection of attention and the down projection of a layer. */
static bool is_sensitive(const oq_node *n) {
    static const char *const words[] = {"v_proj",       "qkv_proj", "down_proj",
                                        "value",        "c_attn",   "output.dense",
                                        "output/dense", "fc2",      "w2"};
    return has_word(n->name, words, OQ_COUNT(words)) ||
           has_word(n->input.v[1], words, OQ_COUNT(words));
}

int64_t oq_nb_layer_of(oq_str node, oq_str weight) {
    const int64_t own = layer_of(node);
    return own >= 0 ? own : layer_of(weight);
}

static int64_t layer_of_node(const oq_node *n) {
    return oq_nb_layer_of(n->name, n->input.v[1]);
}

/* use_more_bits of llama.cpp. */
static bool gets_more(int64_t layer, int64_t layers) {
    const int64_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static bool is_product(const oq_node *n) {
    return oq_str_is(n->op_type, "MatMul") && n->input.n >= 2 && n->output.n == 1 && n->name.n > 0;
}

static onq_code add_node(oq_nb_config *c, oq_str name, const oq_nb_how *how, onq_error *err) {
    const oq_nb_node node = {.name = name, .used = true, .how = *how};
    return oq_map_put(&c->node_map, node.name, (uint32_t)c->nodes.n) &&
                   OQ_PUSH(c->lists->arena, &c->nodes, node)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

onq_code oq_nb_mix(oq_nb_config *c, oq_nb_mixed how, const oq_graph *g, size_t *count,
                   onq_error *err) {
    oq_nb_how eight = c->how;
    int64_t layers = 0;
    eight.bits = 8;
    *count = 0;
    for (size_t i = 0; i < g->node.n; i++)
        if (is_product(g->node.v[i]) && layer_of_node(g->node.v[i]) >= layers)
            layers = layer_of_node(g->node.v[i]) + 1;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!is_product(n) || oq_map_has(&c->node_map, n->name))
            continue;
        const int64_t layer = layer_of_node(n);
        const bool more = is_last(g, n) || (how == OQ_NB_MIXED_LAYERS && layer >= 0 &&
                                            is_sensitive(n) && gets_more(layer, layers));
        if (!more)
            continue;
        OQ_TRY(add_node(c, n->name, &eight, err));
        (*count)++;
    }
    return ONQ_OK;
}

/* ---- tied tables ---- */

static bool is_turned(const oq_graph *g, oq_str table, oq_str weight) {
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *t = g->node.v[i];
        if (oq_str_is(t->op_type, "Transpose") && t->input.n == 1 && t->output.n == 1 &&
            oq_str_eq(t->input.v[0], table) && oq_str_eq(t->output.v[0], weight))
            return true;
    }
    return false;
}

/* The one of both that has settings gives them to the other. */
static onq_code share_how(oq_nb_config *c, oq_str a, oq_str b, onq_error *err) {
    const uint32_t has_a = oq_map_find(&c->node_map, a), has_b = oq_map_find(&c->node_map, b);
    if ((has_a == OQ_MAP_NONE) == (has_b == OQ_MAP_NONE))
        return ONQ_OK;
    const oq_nb_how how = c->nodes.v[has_a != OQ_MAP_NONE ? has_a : has_b].how;
    return how.leave ? ONQ_OK : add_node(c, has_a != OQ_MAP_NONE ? b : a, &how, err);
}

onq_code oq_nb_tie(oq_nb_config *c, const oq_graph *g, onq_error *err) {
    for (size_t i = 0; c->nodes.n > 0 && i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (!oq_str_is(n->op_type, "Gather") || n->input.n != 2 || n->name.n == 0)
            continue;
        for (size_t k = 0; k < g->node.n; k++) {
            const oq_node *p = g->node.v[k];
            if (is_product(p) &&
                (oq_map_has(&c->node_map, n->name) || oq_map_has(&c->node_map, p->name)) &&
                is_turned(g, n->input.v[0], p->input.v[1]))
                OQ_TRY(share_how(c, n->name, p->name, err));
        }
    }
    return ONQ_OK;
}
