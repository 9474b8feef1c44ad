/*
 * shape_ml.c — the ai.onnx.ml operators: classifiers, regressors, encoders.
 */
#include "shape/sop.h"

static size_t count_of(const oq_rctx *c, const char *name) {
    const oq_attribute *a = oq_r_attr(c, name);
    return a == NULL ? 0 : a->strings.n + a->ints.n + a->floats.n;
}

/* The batch size of [C] or [N, C]. */
static oq_sdim batch_of(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    if (x == NULL || x->rank == 0)
        return oq_sdim_unknown();
    return x->rank == 1 ? oq_sdim_num(1) : x->dims[0];
}

static int32_t label_type(const oq_rctx *c) {
    return count_of(c, "classlabels_strings") > 0 ? OQ_STRING : OQ_INT64;
}

static void set_scores(oq_rctx *c, size_t n_classes) {
    const oq_sdim dims[2] = {batch_of(c),
                             n_classes > 0 ? oq_sdim_num((int64_t)n_classes) : oq_sdim_unknown()};
    oq_r_set(c, 0, label_type(c), dims, 1);
    oq_r_set(c, 1, OQ_FLOAT, dims, 2);
}

void oq_rule_linear_classifier(oq_rctx *c) {
    const size_t labels =
        count_of(c, label_type(c) == OQ_STRING ? "classlabels_strings" : "classlabels_ints");
    size_t n = count_of(c, "intercepts");
    n = n == 1 && labels == 2 ? 2 : n;
    set_scores(c, n);
}

/* onnx knows the labels' type only (SVM, and trees before version 3). */
void oq_rule_svm_classifier(oq_rctx *c) {
    if (c->plain) {
        oq_r_set_elem(c, 0, label_type(c));
        return;
    }
    const size_t n = count_of(c, "classlabels_strings") + count_of(c, "classlabels_ints");
    set_scores(c, n);
}

void oq_rule_tree_classifier(oq_rctx *c) {
    const size_t n = count_of(c, "classlabels_strings");
    if (c->plain && c->opset < 3) {
        oq_r_set_elem(c, 0, label_type(c));
        return;
    }
    set_scores(c, n > 0 ? n : count_of(c, "classlabels_int64s"));
}

static void set_targets(oq_rctx *c, int32_t elem_type, const char *attr, int64_t fallback) {
    const int64_t n = oq_r_int(c, attr, fallback);
    const oq_sdim dims[2] = {batch_of(c), n > 0 ? oq_sdim_num(n) : oq_sdim_unknown()};
    oq_r_set(c, 0, elem_type, dims, 2);
}

void oq_rule_tree_regressor(oq_rctx *c) {
    set_targets(c, OQ_FLOAT, "n_targets", 0);
}

void oq_rule_linear_regressor(oq_rctx *c) {
    set_targets(c, OQ_FLOAT, "targets", 1);
}

void oq_rule_svm_regressor(oq_rctx *c) {
    const oq_sdim dims[2] = {batch_of(c), oq_sdim_num(1)};
    oq_r_set(c, 0, OQ_FLOAT, dims, 2);
}

void oq_rule_tree_ensemble(oq_rctx *c) {
    const oq_vtype *x = oq_r_type(c, 0);
    OQ_R_FAIL_IF(x == NULL || x->kind != OQ_V_TENSOR, c, "input 0 is not a tensor");
    set_targets(c, x->elem_type, "n_targets", 0);
}

void oq_rule_array_feature_extractor(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0), *y = oq_r_shape(c, 1);
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0) && x != NULL);
    if (x->rank <= 1) {
        /* The runtime gives [1, number of indices]. */
        if (!c->plain && x->rank == 1 && y != NULL) {
            const oq_sdim dims[2] = {oq_sdim_num(1), oq_r_product(c, y->dims, 0, y->rank)};
            oq_r_set_shape(c, 0, dims, 2);
        }
        return;
    }
    oq_r_set_last(c, 0, x, x->rank - 1,
                  y != NULL && y->rank > 0 ? oq_r_product(c, y->dims, 0, y->rank)
                                           : oq_sdim_unknown());
}

/* Float outputs of the input's shape: Imputer keeps the type, Normalizer and Scaler give float. */
void oq_rule_to_float(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_FLOAT);
    oq_r_pass_shape(c, 0, 0);
}

/* A map becomes a tensor; CastMap says which. */
void oq_rule_cast_map(oq_rctx *c) {
    if (oq_r_str_is(c, "cast_to", "TO_FLOAT", "TO_INT64")) {
        oq_r_set_elem(c, 0, OQ_INT64);
    } else {
        oq_r_set_elem(c, 0,
                      oq_r_str_is(c, "cast_to", "TO_FLOAT", "TO_STRING") ? OQ_STRING : OQ_FLOAT);
    }
}

void oq_rule_dict_vectorizer(oq_rctx *c) {
    const oq_vtype *x = oq_r_type(c, 0);
    OQ_R_FAIL_IF(x == NULL || x->kind != OQ_V_MAP || x->inner == NULL, c, "input 0 is not a map");
    oq_r_set_elem(c, 0, x->inner->elem_type);
    if (!c->plain) {
        const size_t n = count_of(c, "string_vocabulary") + count_of(c, "int64_vocabulary");
        const oq_sdim dims[2] = {oq_sdim_num(1), oq_sdim_num((int64_t)n)};
        oq_r_set_shape(c, 0, dims, 2);
    }
}

/* Strings to integers or back. */
static void set_mapped(oq_rctx *c, int32_t from) {
    if (from == OQ_STRING || from == OQ_INT64)
        oq_r_set_elem(c, 0, from == OQ_STRING ? OQ_INT64 : OQ_STRING);
}

void oq_rule_category_mapper(oq_rctx *c) {
    const int32_t e = oq_r_elem(c, 0);
    set_mapped(c, e);
    if (e != 0)
        oq_r_pass_shape(c, 0, 0);
}

void oq_rule_label_encoder_1(oq_rctx *c) {
    set_mapped(c, oq_r_elem(c, 0));
    if (!c->plain)
        oq_r_pass_shape(c, 0, 0);
}

void oq_rule_label_encoder(oq_rctx *c) {
    const oq_attribute *t = oq_r_attr(c, "values_tensor");
    if (t != NULL && t->t != NULL) {
        oq_r_set_elem(c, 0, t->t->data_type.v);
    } else if (count_of(c, "values_strings") > 0) {
        oq_r_set_elem(c, 0, OQ_STRING);
    } else if (count_of(c, "values_int64s") > 0) {
        oq_r_set_elem(c, 0, OQ_INT64);
    } else if (count_of(c, "values_floats") > 0) {
        oq_r_set_elem(c, 0, OQ_FLOAT);
    } else {
        oq_r_fail(c, "no values");
        return;
    }
    oq_r_pass_shape(c, 0, 0);
}

void oq_rule_one_hot_encoder(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    const size_t n = count_of(c, "cats_int64s") + count_of(c, "cats_strings");
    if (x == NULL && c->plain)
        return;
    oq_r_set_elem(c, 0, OQ_FLOAT);
    if (x != NULL)
        oq_r_set_last(c, 0, x, x->rank, oq_sdim_num((int64_t)n));
}

/* The columns of all inputs side by side, as float. */
void oq_rule_feature_vectorizer(oq_rctx *c) {
    const int64_t *sizes;
    size_t n;
    oq_sdim sum = oq_sdim_num(0);
    oq_r_set_elem(c, 0, OQ_FLOAT);
    for (size_t i = 0; oq_r_ints(c, "inputdimensions", &sizes, &n) && i < n; i++)
        sum = oq_sdim_addn(c->ds, sum, sizes[i]);
    const oq_sdim dims[2] = {batch_of(c), oq_sdim_is(sum, 0) ? oq_sdim_unknown() : sum};
    oq_r_set_shape(c, 0, dims, 2);
}

void oq_rule_zip_map(oq_rctx *c) {
    oq_vtype *value = oq_r_new_type(c, OQ_V_TENSOR), *map = oq_r_new_type(c, OQ_V_MAP);
    oq_vtype *seq = oq_r_new_type(c, OQ_V_SEQUENCE);
    OQ_R_NEED(value != NULL && map != NULL && seq != NULL);
    value->elem_type = OQ_FLOAT;
    value->has_shape = true;
    map->elem_type = count_of(c, "classlabels_int64s") > 0    ? OQ_INT64
                     : count_of(c, "classlabels_strings") > 0 ? OQ_STRING
                                                              : 0;
    map->inner = value;
    seq->inner = map;
    oq_r_set_type(c, 0, seq);
}
