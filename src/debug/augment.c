/*
 * augment.c — see augment.h. Which tensors: those that calibration selects, in their order. The
 * reference iterates over a set there, so its order changes from run to run.
 */
#include "debug/augment.h"

#include "calibrate/select.h"
#include "onnx/edit.h"
#include "prepare/preprocess.h"
#include "quantize/ort/stamp.h"

/* onnx.helper.make_tensor_value_info(name, type, [-1]) */
static oq_value_info *flat_info(oq_arena *a, oq_str name, oq_dtype type) {
    const int64_t dim = 0;
    oq_value_info *info = oq_value_info_new(a, name, (int32_t)type, &dim, 1, true);
    if (info != NULL)
        info->type->tensor_type->shape->dim.v[0]->dim_value = OQ_I64(-1);
    return info;
}

static onq_code save_tensor(oq_model *m, const oq_names *names, const oq_cal_target *t,
                            oq_str shape, onq_error *err) {
    oq_arena *a = &m->arena;
    oq_graph *g = m->proto->graph;
    const oq_str out = oq_str_cat(a, t->name, OQ_S(OQ_DEBUG_SAVED));
    OQ_TRY_ALLOC(out.p != NULL, err);
    if (oq_names_has(names, out))
        return oq_fail(
            err, ONQ_E_INVALID,
            "%s: the model already has a tensor '%.*s'; give the model without the added outputs",
            m->path, OQ_STR(out));
    const oq_str in[2] = {t->name, shape};
    oq_node *n = oq_node_make(a, "Reshape", out, in, 2, &out, 1);
    oq_value_info *info = flat_info(a, out, t->type);
    if (n == NULL || info == NULL || !oq_graph_add_node(a, g, n) || !OQ_PUSH(a, &g->output, info))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* The tensors to save; an empty list is not an error here. */
static onq_code select_tensors(oq_model *m, const oq_str *op_types, size_t n, oq_arena *a,
                               oq_cal_targets *out, onq_error *err) {
    oq_cal_options o;
    oq_cal_defaults(&o, OQ_CAL_MINMAX);
    o.op_types = op_types;
    o.n_op_types = n;
    const onq_code rc = oq_cal_select(m, NULL, &o, a, out, err);
    if (rc != ONQ_E_UNSUPPORTED || out->all.n > 0)
        return rc;
    oq_error_clear(err);
    return ONQ_OK;
}

onq_code oq_debug_augment(oq_model *m, const oq_str *op_types, size_t n_op_types, onq_error *err) {
    static const int64_t flat = -1, one = 1;
    oq_arena *a = &m->arena;
    oq_cal_targets targets;
    oq_names names;
    oq_model_touch(m);
    OQ_TRY(oq_prep_shapes(m, NULL, NULL, err));
    OQ_TRY(oq_stamp_inferred(m, err));
    OQ_TRY(select_tensors(m, op_types, n_op_types, a, &targets, err));
    OQ_TRY(oq_names_collect(&names, a, m, err));
    const oq_str shape = oq_names_unique(&names, OQ_S("LinearReshape_onq"));
    oq_tensor *t = shape.p != NULL ? oq_tensor_new(a, shape, OQ_INT64, &one, 1) : NULL;
    OQ_TRY_ALLOC(t != NULL && oq_graph_add_init(a, m->proto->graph, t), err);
    OQ_TRY(oq_tensor_set_raw(a, t, &flat, sizeof flat, err));
    for (size_t i = 0; i < targets.all.n; i++)
        OQ_TRY(save_tensor(m, &names, &targets.all.v[i], shape, err));
    return ONQ_OK;
}
