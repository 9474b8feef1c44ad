/*
 * upgrade_adapt.c — the adapters of upgrade.def, each named after what changed.
 *
 * They follow onnx/version_converter/adapters (1.22.0) in every name, order and default; see
 * upgrade.h for where they differ on purpose.
 */
#include "onnx/upgrade/upgrade_parts.h"

#define UP_ADAPTER(name)                                                                           \
    onq_code oq_up_##name(oq_upgrade *u, oq_up_graph *g, oq_node **node, oq_node **after,          \
                          onq_error *err)

/* ---- small parts ---- */

static onq_code add_input(oq_upgrade *u, oq_node *n, oq_str name, onq_error *err) {
    return name.p != NULL && oq_node_add_input(u->arena, n, name) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code set_int(oq_upgrade *u, oq_node *n, oq_str name, int64_t v, onq_error *err) {
    return oq_attr_set_int(u->arena, n, name, v) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code set_text(oq_upgrade *u, oq_node *n, oq_str name, oq_str v, onq_error *err) {
    return oq_attr_set_str(u->arena, n, name, v) ? ONQ_OK : oq_fail_nomem(err);
}

/* An attribute in the body of a function may refer to one of the function's: it has no value
 * yet. */
static onq_code no_reference(const oq_node *n, const char *name, onq_error *err) {
    const oq_attribute *a = oq_attr_find(n, name);
    if (a != NULL && a->ref_attr_name.n != 0)
        return oq_fail(
            err, ONQ_E_UNSUPPORTED,
            "attribute '%s' is the function's attribute '%.*s'; it has to become an input", name,
            OQ_STR(a->ref_attr_name));
    return ONQ_OK;
}

static onq_code wants_inputs(const oq_node *n, size_t least, onq_error *err) {
    if (n->input.n >= least)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_INVALID, "it has %zu inputs, but needs at least %zu", n->input.n,
                   least);
}

/* Where an input is added, nothing may stand there already. */
static onq_code has_inputs(const oq_node *n, size_t count, onq_error *err) {
    if (n->input.n == count)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_INVALID, "it has %zu inputs, and in the model's opset it takes %zu",
                   n->input.n, count);
}

/* The list attribute `name` as a Constant in front of the node and a further input of it. */
static onq_code ints_to_input(oq_upgrade *u, oq_up_graph *g, oq_node *n, const char *name,
                              onq_error *err) {
    OQ_TRY(no_reference(n, name, err));
    const oq_attribute *a = oq_attr_find(n, name);
    if (a == NULL || (a->type.v != OQ_ATTR_INTS && a->ints.n == 0))
        return oq_fail(err, ONQ_E_INVALID, "attribute '%s' is missing", name);
    OQ_TRY(add_input(u, n, oq_up_ints(u, g, a->ints.v, a->ints.n, false), err));
    oq_attr_remove(n, name);
    return ONQ_OK;
}

/* The float type in which a constant for `name` has to be: that of the tensor where it is known. */
static oq_dtype float_type_of(const oq_up_graph *g, const oq_node *n) {
    int32_t elem = n->input.n != 0 ? oq_up_type_of(g, n->input.v[0])->elem : 0;
    if (elem == 0 && n->output.n != 0)
        elem = oq_up_type_of(g, n->output.v[0])->elem;
    return oq_dtype_is_float(elem) ? (oq_dtype)elem : OQ_FLOAT;
}

static onq_code number_to_input(oq_upgrade *u, oq_up_graph *g, oq_node *n, double v, oq_dtype type,
                                onq_error *err) {
    return add_input(u, n, oq_up_floats(u, g, &v, 1, true, type), err);
}

/* A node that takes the place of *node: nameless, its first output a value of its own. The
 * converter lets a graph's output keep its name (and takes a number for the old value); any
 * other is renamed. */
static onq_code replace_node(oq_upgrade *u, oq_up_graph *g, oq_node **node, oq_node *fresh,
                             onq_error *err) {
    if ((*node)->output.n != 1)
        return oq_fail(err, ONQ_E_INVALID, "it has %zu outputs, but must have one",
                       (*node)->output.n);
    const oq_str old = (*node)->output.v[0];
    if (oq_up_is_output(g, old)) {
        fresh->output.v[0] = old;
        oq_up_skip_value(g);
    } else if (!oq_up_rename(u, g, old, fresh->output.v[0])) {
        return oq_fail_nomem(err);
    }
    *node = fresh;
    return ONQ_OK;
}

/* ---- 9 ---- */

UP_ADAPTER(batchnorm_spatial) {
    (void)u, (void)g, (void)after;
    OQ_TRY(no_reference(*node, "spatial", err));
    const int64_t spatial = oq_attr_int(*node, "spatial", 1);
    if (spatial != 1)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "spatial = %lld has no equivalent",
                       (long long)spatial);
    oq_attr_remove(*node, "spatial");
    return ONQ_OK;
}

/* Scan lost its batch dimension and the sequence lengths. Types lose their first dimension with
 * it. */
static bool drop_first_dim(oq_upgrade *u, oq_up_graph *g, oq_str name) {
    oq_up_type type = *oq_up_type_of(g, name);
    if (type.rank == 0 || type.shape == NULL)
        return true;
    oq_shape *shape = OQ_NEW(u->arena, oq_shape);
    if (shape == NULL)
        return false;
    for (size_t i = 1; i < type.shape->dim.n; i++)
        if (!OQ_PUSH(u->arena, &shape->dim, type.shape->dim.v[i]))
            return false;
    for (size_t i = 0; i < g->g->input.n + g->g->output.n; i++) {
        oq_value_info *v = i < g->g->input.n ? g->g->input.v[i] : g->g->output.v[i - g->g->input.n];
        if (oq_str_eq(v->name, name) && v->type != NULL && v->type->tensor_type != NULL)
            v->type->tensor_type->shape = shape;
    }
    type.shape = shape;
    type.rank = shape->dim.n;
    type.info = NULL;
    return oq_up_set_type(u, g, name, type);
}

UP_ADAPTER(scan_batch) {
    (void)after;
    oq_node *n = *node;
    OQ_TRY(wants_inputs(n, 1, err));
    oq_attribute *directions = oq_attr_find(n, "directions");
    if (directions != NULL) {
        oq_attribute moved = *directions;
        moved.name = OQ_S("scan_input_directions");
        oq_attr_remove(n, "directions");
        *directions = moved;
        OQ_TRY_ALLOC(OQ_PUSH(u->arena, &n->attribute, directions), err);
    }
    if (n->input.v[0].n != 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "sequence lengths have no equivalent");
    for (size_t i = 1; i < n->input.n; i++) {
        if (oq_up_type_of(g, n->input.v[i])->rank == 0)
            return oq_fail(err, ONQ_E_UNSUPPORTED, "the shape of input '%.*s' is not known",
                           OQ_STR(n->input.v[i]));
    }
    OQ_REMOVE_AT(&n->input, 0);
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY_ALLOC(drop_first_dim(u, g, n->input.v[i]), err);
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY_ALLOC(drop_first_dim(u, g, n->output.v[i]), err);
    return ONQ_OK;
}

UP_ADAPTER(upsample_scales) {
    (void)after;
    OQ_TRY(has_inputs(*node, 1, err));
    OQ_TRY(no_reference(*node, "scales", err));
    const oq_attribute *a = oq_attr_find(*node, "scales");
    if (a == NULL)
        return oq_fail(err, ONQ_E_INVALID, "attribute 'scales' is missing");
    double *v = OQ_NEW_ARRAY(&u->scratch, double, a->floats.n);
    OQ_TRY_ALLOC(v != NULL, err);
    for (size_t i = 0; i < a->floats.n; i++)
        v[i] = (double)a->floats.v[i];
    OQ_TRY(add_input(u, *node, oq_up_floats(u, g, v, a->floats.n, false, OQ_FLOAT), err));
    oq_attr_remove(*node, "scales");
    return ONQ_OK;
}

/* ---- 10 ---- */

UP_ADAPTER(slice_inputs) {
    (void)after;
    OQ_TRY(has_inputs(*node, 1, err));
    OQ_TRY(ints_to_input(u, g, *node, "starts", err));
    OQ_TRY(ints_to_input(u, g, *node, "ends", err));
    return oq_attr_find(*node, "axes") != NULL ? ints_to_input(u, g, *node, "axes", err) : ONQ_OK;
}

UP_ADAPTER(topk_input) {
    (void)after;
    OQ_TRY(has_inputs(*node, 1, err));
    OQ_TRY(no_reference(*node, "k", err));
    const oq_attribute *a = oq_attr_find(*node, "k");
    if (a == NULL || !a->i.has)
        return oq_fail(err, ONQ_E_INVALID, "attribute 'k' is missing");
    OQ_TRY(add_input(u, *node, oq_up_ints(u, g, &a->i.v, 1, false), err));
    oq_attr_remove(*node, "k");
    return ONQ_OK;
}

UP_ADAPTER(upsample_resize) {
    (void)after;
    OQ_TRY(has_inputs(*node, 2, err));
    oq_node *resize = oq_up_node(u, g, "Resize");
    OQ_TRY_ALLOC(resize != NULL, err);
    OQ_TRY(set_text(u, resize, OQ_S("mode"), oq_attr_str(*node, "mode", "nearest"), err));
    OQ_TRY(add_input(u, resize, (*node)->input.v[0], err));
    OQ_TRY(add_input(u, resize, (*node)->input.v[1], err));
    return replace_node(u, g, node, resize, err);
}

/* ---- 11 ---- */

UP_ADAPTER(clip_inputs) {
    (void)after;
    oq_node *n = *node;
    OQ_TRY(has_inputs(n, 1, err));
    OQ_TRY(no_reference(n, "min", err));
    OQ_TRY(no_reference(n, "max", err));
    const bool has_min = oq_attr_find(n, "min") != NULL, has_max = oq_attr_find(n, "max") != NULL;
    const oq_dtype type = float_type_of(g, n);
    /* The value that means "no lower bound" when there is an upper one. */
    const double lowest = type == OQ_DOUBLE    ? -DBL_MAX
                          : type == OQ_FLOAT16 ? -65504.0
                                               : (double)-FLT_MAX;
    if (has_min || has_max) {
        const double min = has_min ? (double)oq_attr_float(n, "min", 0) : lowest;
        OQ_TRY(number_to_input(u, g, n, min, type, err));
    }
    if (has_max)
        OQ_TRY(number_to_input(u, g, n, (double)oq_attr_float(n, "max", 0), type, err));
    oq_attr_remove(n, "min");
    oq_attr_remove(n, "max");
    return ONQ_OK;
}

/* `pads` becomes an initializer, `value` a Constant: so does the converter. */
UP_ADAPTER(pad_inputs) {
    (void)after;
    oq_node *n = *node;
    OQ_TRY(has_inputs(n, 1, err));
    OQ_TRY(no_reference(n, "pads", err));
    OQ_TRY(no_reference(n, "value", err));
    const oq_i64s *pads = oq_attr_ints(n, "pads");
    if (pads == NULL)
        return oq_fail(err, ONQ_E_INVALID, "attribute 'pads' is missing");
    const int64_t dims[] = {(int64_t)pads->n};
    const oq_str name = oq_up_value(u, g);
    OQ_TRY_ALLOC(name.p != NULL, err);
    oq_up_skip_value(g); /* a number for the name, one for the value */
    oq_tensor *t = oq_tensor_new(u->arena, name, OQ_INT64, dims, 1);
    OQ_TRY_ALLOC(t != NULL && oq_graph_add_init(u->arena, g->g, t), err);
    OQ_TRY(oq_tensor_set_typed_i(u->arena, t, pads->v, pads->n, err));
    OQ_TRY(add_input(u, n, name, err));
    oq_attr_remove(n, "pads");
    if (oq_str_is(oq_attr_str(n, "mode", "constant"), "constant"))
        OQ_TRY(number_to_input(u, g, n, (double)oq_attr_float(n, "value", 0), float_type_of(g, n),
                               err));
    oq_attr_remove(n,
                   "value"); /* the converter leaves it in the other modes, which does not load */
    return ONQ_OK;
}

/* X, scales -> X, roi, scales. The region is 0 to 1 in as many dimensions as are known (none: an
 * empty one). */
UP_ADAPTER(resize_roi) {
    (void)after;
    oq_node *n = *node;
    OQ_TRY(has_inputs(n, 2, err));
    const size_t rank = oq_up_type_of(g, n->input.v[0])->rank;
    double *v = OQ_NEW_ARRAY(&u->scratch, double, 2 * rank);
    OQ_TRY_ALLOC(v != NULL, err);
    for (size_t i = 0; i < rank; i++)
        v[rank + i] = 1.0;
    OQ_TRY(add_input(u, n, n->input.v[1], err));
    const oq_str roi = oq_up_floats(u, g, v, 2 * rank, false, OQ_FLOAT);
    OQ_TRY_ALLOC(roi.p != NULL, err);
    n->input.v[1] = roi;
    return ONQ_OK;
}

/* Upsample went with opset 10. A model of that opset may have one all the same. */
UP_ADAPTER(upsample_late) {
    OQ_TRY(oq_up_upsample_resize(u, g, node, after, err));
    return oq_up_resize_roi(u, g, node, after, err);
}

UP_ADAPTER(scatter_elements) {
    (void)after;
    OQ_TRY(wants_inputs(*node, 3, err));
    oq_node *scatter = oq_up_node(u, g, "ScatterElements");
    OQ_TRY_ALLOC(scatter != NULL, err);
    OQ_TRY(set_int(u, scatter, OQ_S("axis"), oq_attr_int(*node, "axis", 0), err));
    for (size_t i = 0; i < 3; i++)
        OQ_TRY(add_input(u, scatter, (*node)->input.v[i], err));
    return replace_node(u, g, node, scatter, err);
}

/* ---- 12, 13 ---- */

UP_ADAPTER(dropout_ratio) {
    (void)after;
    OQ_TRY(has_inputs(*node, 1, err));
    OQ_TRY(no_reference(*node, "ratio", err));
    const double ratio = (double)oq_attr_float(*node, "ratio", 0.5f);
    OQ_TRY(number_to_input(u, g, *node, ratio, OQ_FLOAT, err));
    oq_attr_remove(*node, "ratio");
    return ONQ_OK;
}

UP_ADAPTER(axes_input) {
    (void)after;
    OQ_TRY(has_inputs(*node, 1, err));
    return oq_attr_find(*node, "axes") != NULL ? ints_to_input(u, g, *node, "axes", err) : ONQ_OK;
}

UP_ADAPTER(split_input) {
    (void)after;
    OQ_TRY(has_inputs(*node, 1, err));
    return oq_attr_find(*node, "split") != NULL ? ints_to_input(u, g, *node, "split", err) : ONQ_OK;
}

/* Softmax over the axes from `axis` on becomes one over the last axis of a flattened tensor:
 *
 *      .- Shape ---------------------.
 *   x -+- Flatten - Softmax(axis -1) - Reshape - y
 */
UP_ADAPTER(softmax_axis) {
    oq_node *n = *node;
    OQ_TRY(wants_inputs(n, 1, err));
    OQ_TRY(no_reference(n, "axis", err));
    if (n->output.n != 1)
        return oq_fail(err, ONQ_E_INVALID, "it has %zu outputs, but must have one", n->output.n);
    const int64_t rank = (int64_t)oq_up_type_of(g, n->input.v[0])->rank;
    int64_t axis = oq_attr_int(n, "axis", 1);
    if (axis < 0)
        axis += rank;
    if (axis == rank - 1)
        return set_int(u, n, OQ_S("axis"), -1, err);

    const oq_str x = n->input.v[0], y = n->output.v[0];
    oq_node *shape = oq_up_node(u, g, "Shape");
    OQ_TRY_ALLOC(shape != NULL && oq_up_before(u, g, shape), err);
    OQ_TRY(add_input(u, shape, x, err));
    oq_node *flatten = oq_up_node(u, g, "Flatten");
    OQ_TRY_ALLOC(flatten != NULL && oq_up_before(u, g, flatten), err);
    OQ_TRY(add_input(u, flatten, x, err));
    OQ_TRY(set_int(u, flatten, OQ_S("axis"), axis, err));
    n->input.v[0] = flatten->output.v[0];
    OQ_TRY(set_int(u, n, OQ_S("axis"), -1, err));

    oq_str between = oq_str_cat(u->arena, y, OQ_S("_intermediate"));
    while (between.p != NULL && oq_up_is_known(g, between)) /* the converter would take it twice */
        between = oq_str_cat(u->arena, between, OQ_S("_"));
    oq_node *reshape = oq_node_new(u->arena, "Reshape", (oq_str){NULL, 0});
    if (between.p == NULL || reshape == NULL || !oq_up_take_over(g, y) ||
        !oq_node_add_output(u->arena, reshape, y))
        return oq_fail_nomem(err);
    n->output.v[0] = between;
    OQ_TRY(add_input(u, reshape, between, err));
    OQ_TRY(add_input(u, reshape, shape->output.v[0], err));
    *after = reshape;
    /* The shape goes with the name; the element type is known of both. */
    const oq_up_type type = {.elem = oq_up_type_of(g, y)->elem};
    return oq_up_set_type(u, g, between, type) ? ONQ_OK : oq_fail_nomem(err);
}

/* As Softmax. The converter leaves the axis, which means another one from 13 on; where it is the
 * last one, so does this. */
UP_ADAPTER(hardmax_axis) {
    OQ_TRY(wants_inputs(*node, 1, err));
    OQ_TRY(no_reference(*node, "axis", err));
    const int64_t rank = (int64_t)oq_up_type_of(g, (*node)->input.v[0])->rank;
    const int64_t axis = oq_attr_int(*node, "axis", 1);
    return axis == -1 || axis == rank - 1 ? ONQ_OK : oq_up_softmax_axis(u, g, node, after, err);
}

/* ---- 14 to 18 ---- */

/* Outputs 4 and 5 are gone; with them the node was in training mode, which is an attribute now. */
UP_ADAPTER(batchnorm_training) {
    (void)after;
    oq_node *n = *node;
    if (n->output.n < 4)
        return ONQ_OK;
    for (size_t i = 3; i < n->output.n; i++) {
        const oq_str name = n->output.v[i];
        bool used = false;
        OQ_TRY(oq_up_is_used(u, g, name, &used, err));
        if (used)
            return oq_fail(err, ONQ_E_UNSUPPORTED, "output %zu ('%.*s') has no equivalent", i,
                           OQ_STR(name));
    }
    n->output.n = 3;
    for (size_t i = 0; i < n->output.n; i++)
        if (n->output.v[i].n == 0)
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "output %zu has no name, and none can be left out in training mode", i);
    return set_int(u, n, OQ_S("training_mode"), 1, err);
}

UP_ADAPTER(layout) {
    (void)g, (void)after;
    return set_int(u, *node, OQ_S("layout"), 0, err);
}

UP_ADAPTER(roialign_mode) {
    (void)g, (void)after;
    return set_text(u, *node, OQ_S("coordinate_transformation_mode"), OQ_S("output_half_pixel"),
                    err);
}

UP_ADAPTER(lppool_ceil) {
    (void)g, (void)after;
    return set_int(u, *node, OQ_S("ceil_mode"), 0, err);
}

UP_ADAPTER(split_outputs) {
    (void)g, (void)after;
    if (oq_attr_find(*node, "num_outputs") != NULL || (*node)->input.n == 2)
        return ONQ_OK;
    return set_int(u, *node, OQ_S("num_outputs"), (int64_t)(*node)->output.n, err);
}

/* ---- 20, 21, 28 ---- */

UP_ADAPTER(dft_axis) {
    (void)after;
    oq_node *n = *node;
    OQ_TRY(no_reference(n, "axis", err));
    const int64_t axis = oq_attr_int(n, "axis", 1);
    if (n->input.n > 2)
        OQ_TRY(has_inputs(n, 2, err));
    while (n->input.n < 2) {
        oq_up_skip_value(g); /* an omitted input is a value of the converter's */
        OQ_TRY(add_input(u, n, OQ_S(""), err));
    }
    OQ_TRY(add_input(u, n, oq_up_ints(u, g, &axis, 1, true), err));
    oq_attr_remove(n, "axis");
    return ONQ_OK;
}

UP_ADAPTER(gridsample_mode) {
    (void)g, (void)after;
    const oq_str mode = oq_attr_str(*node, "mode", "");
    if (oq_str_is(mode, "bilinear"))
        return set_text(u, *node, OQ_S("mode"), OQ_S("linear"), err);
    if (oq_str_is(mode, "bicubic"))
        return set_text(u, *node, OQ_S("mode"), OQ_S("cubic"), err);
    return ONQ_OK;
}

/* A node of two inputs in front of the one that is adapted; the name of its output. */
static oq_str binary(oq_upgrade *u, oq_up_graph *g, const char *op, oq_str a, oq_str b) {
    oq_node *n = oq_up_node(u, g, op);
    if (n == NULL || !oq_node_add_input(u->arena, n, a) || !oq_node_add_input(u->arena, n, b) ||
        !oq_up_before(u, g, n))
        return (oq_str){NULL, 0};
    return n->output.v[0];
}

/* The number of channels if the shape has it, else -1. */
static int64_t channels_of(const oq_up_type *x) {
    if (x->shape == NULL || x->shape->dim.n < 2 || !x->shape->dim.v[1]->dim_value.has)
        return -1;
    return x->shape->dim.v[1]->dim_value.v;
}

/* Scale and bias were one for each group, now they are one for each channel:
 *   Expand(Reshape(scale, [-1, 1]), [1, channels / groups]) -> Reshape(.., [-1]) */
UP_ADAPTER(groupnorm_channels) {
    (void)after;
    oq_node *n = *node;
    OQ_TRY(wants_inputs(n, 3, err));
    OQ_TRY(no_reference(n, "num_groups", err));
    const int64_t groups = oq_attr_int(n, "num_groups", 0);
    if (groups < 1)
        return oq_fail(err, ONQ_E_INVALID, "num_groups is %lld", (long long)groups);
    if (channels_of(oq_up_type_of(g, n->input.v[0])) == groups)
        return ONQ_OK;

    oq_node *shape = oq_up_node(u, g, "Shape");
    OQ_TRY_ALLOC(shape != NULL && oq_up_before(u, g, shape), err);
    OQ_TRY(set_int(u, shape, OQ_S("start"), 1, err));
    OQ_TRY(set_int(u, shape, OQ_S("end"), 2, err));
    OQ_TRY(add_input(u, shape, n->input.v[0], err));
    const int64_t one = 1, column[] = {-1, 1}, flat = -1;
    const oq_str divisor = oq_up_ints(u, g, &groups, 1, false);
    const oq_str each =
        divisor.p != NULL ? binary(u, g, "Div", shape->output.v[0], divisor) : divisor;
    const oq_str ones = each.p != NULL ? oq_up_ints(u, g, &one, 1, false) : each;
    oq_node *concat = ones.p != NULL ? oq_up_node(u, g, "Concat") : NULL;
    OQ_TRY_ALLOC(concat != NULL && oq_up_before(u, g, concat), err);
    OQ_TRY(set_int(u, concat, OQ_S("axis"), 0, err));
    OQ_TRY(add_input(u, concat, ones, err));
    OQ_TRY(add_input(u, concat, each, err));
    const oq_str to_column = oq_up_ints(u, g, column, 2, false);
    const oq_str to_flat = to_column.p != NULL ? oq_up_ints(u, g, &flat, 1, false) : to_column;
    for (size_t i = 1; i < 3; i++) {
        oq_str v = to_flat.p != NULL ? binary(u, g, "Reshape", n->input.v[i], to_column) : to_flat;
        if (v.p != NULL)
            v = binary(u, g, "Expand", v, concat->output.v[0]);
        if (v.p != NULL)
            v = binary(u, g, "Reshape", v, to_flat);
        OQ_TRY_ALLOC(v.p != NULL, err);
        n->input.v[i] = v;
    }
    return ONQ_OK;
}

/* Integer tensors are no longer accepted. */
UP_ADAPTER(float_only) {
    (void)u, (void)after;
    const int32_t elem = (*node)->input.n != 0 ? oq_up_type_of(g, (*node)->input.v[0])->elem : 0;
    const oq_dtype_info *info = oq_dtype_find(elem);
    if (info != NULL && (info->cls == OQ_CLASS_INT || info->cls == OQ_CLASS_UINT))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "%s input has no equivalent", info->name);
    return ONQ_OK;
}
