/*
 * shape_text.c — strings and images.
 */
#include "shape/sop.h"

void oq_rule_string_split(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    if (c->plain && (x == NULL || x->elem_type != OQ_STRING))
        return;
    oq_r_set_elem(c, 0, OQ_STRING);
    oq_r_set_elem(c, 1, OQ_INT64);
    if (oq_r_append_dim(c, 0, 0))
        oq_r_pass_shape(c, 0, 1);
}

/* Stop words may drop out: the last axis is open. */
void oq_rule_string_normalizer(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_STRING);
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(x != NULL);
    const bool one = x->rank == 2 && (oq_sdim_is_num(x->dims[0]) ? x->dims[0].n == 1 : !c->plain);
    OQ_R_FAIL_IF(x->rank != 1 && !one, c, "the input must be [C] or [1, C]");
    const bool drops = oq_r_attr(c, "stopwords") != NULL || c->plain;
    const oq_sdim last = drops ? oq_r_fresh(c, 0, x->rank - 1) : x->dims[x->rank - 1];
    const oq_sdim dims[2] = {x->rank == 2 ? oq_sdim_num(1) : last, last};
    oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_tfidf_vectorizer(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_FLOAT);
    const oq_vtype *x = oq_r_shape(c, 0);
    const int64_t *ix;
    size_t n;
    OQ_R_NEED(x != NULL);
    int64_t most = -1;
    for (size_t i = 0; oq_r_ints(c, "ngram_indexes", &ix, &n) && i < n; i++)
        most = ix[i] > most ? ix[i] : most;
    OQ_R_FAIL_IF(most < 0 || most == INT64_MAX || x->rank < 1 || x->rank > 2, c,
                 "ngram_indexes or the input's rank do not fit");
    const oq_sdim dims[2] = {x->rank == 2 ? x->dims[0] : oq_sdim_num(most + 1),
                             oq_sdim_num(most + 1)};
    oq_r_set_shape(c, 0, dims, x->rank);
}

void oq_rule_image_decoder(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_UINT8);
    const bool grey = oq_r_str_is(c, "pixel_format", "RGB", "Grayscale");
    const oq_sdim dims[3] = {oq_r_fresh(c, 0, 0), oq_r_fresh(c, 0, 1),
                             c->plain ? oq_sdim_unknown() : oq_sdim_num(grey ? 1 : 3)};
    oq_r_set_shape(c, 0, dims, 3);
}
