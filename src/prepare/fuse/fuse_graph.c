/*
 * fuse_graph.c — what the rewrites share: constants, uses, renames. See fuse.h.
 */
#include "prepare/fuse/fuse.h"

#include "base/text/real.h"

onq_code oq_fuse_begin(oq_fuse *f, onq_error *err) {
    const size_t n = f->g->node.n;
    OQ_TRY(oq_index_build(&f->ix, f->scratch, f->g, NULL, err));
    f->opset = oq_model_opset(f->m, OQ_S(""));
    f->ir_version = f->m->proto->ir_version.v;
    f->busy = OQ_NEW_ARRAY(f->scratch, bool, n + 1);
    f->gone = OQ_NEW_ARRAY(f->scratch, bool, n + 1);
    OQ_TRY_ALLOC(f->busy != NULL && f->gone != NULL, err);
    oq_map_init(&f->renames, f->scratch);
    oq_map_init(&f->seen, f->scratch);
    return ONQ_OK;
}

oq_tensor *oq_fuse_const(const oq_fuse *f, oq_str name) {
    const oq_value *v = name.n != 0 ? oq_index_find(&f->ix, name) : NULL;
    if (v == NULL || v->init == NULL || v->producer != OQ_NO_NODE)
        return NULL;
    /* From IR version 4 on an initializer that is an input too is only its default. */
    return v->is_input && f->ir_version >= 4 ? NULL : v->init;
}

/* No runtime takes a model in which two graphs, one inside of the other, have something of the same
 * name. */
oq_tensor *oq_fuse_weight(const oq_fuse *f, oq_str name) {
    oq_graph *main = f->m->proto->graph;
    const oq_value *v = name.n != 0 ? oq_index_find(&f->ix, name) : NULL;
    if (f->g == main || v == NULL || oq_value_is_defined(v))
        return oq_fuse_const(f, name);
    /* From IR version 4 on an initializer that is an input too is only its default. */
    for (size_t i = 0; i < main->input.n && f->ir_version >= 4; i++)
        if (oq_str_eq(main->input.v[i]->name, name))
            return NULL;
    return oq_graph_find_init(main, name);
}

uint32_t oq_fuse_maker(const oq_fuse *f, oq_str name) {
    const oq_value *v = name.n != 0 ? oq_index_find(&f->ix, name) : NULL;
    return v != NULL && v->producer != OQ_NO_NODE && !f->busy[v->producer] ? v->producer
                                                                           : OQ_NO_NODE;
}

bool oq_fuse_sole(const oq_fuse *f, oq_str name) {
    const oq_value *v = oq_index_find(&f->ix, name);
    return v != NULL && v->uses.n == 1 && !v->is_output && v->uses.v[0].slot != OQ_SLOT_INNER;
}

uint32_t oq_fuse_user(const oq_fuse *f, oq_str name) {
    if (!oq_fuse_sole(f, name))
        return OQ_NO_NODE;
    const uint32_t i = oq_index_find(&f->ix, name)->uses.v[0].node;
    return f->busy[i] ? OQ_NO_NODE : i;
}

bool oq_fuse_one_output(const oq_fuse *f, const oq_node *n) {
    if (n->output.n == 0 || n->output.v[0].n == 0)
        return false;
    for (size_t i = 1; i < n->output.n; i++) {
        const oq_value *v = n->output.v[i].n != 0 ? oq_index_find(&f->ix, n->output.v[i]) : NULL;
        if (v != NULL && (v->uses.n != 0 || v->is_output))
            return false;
    }
    return true;
}

/* ---- values ---- */

onq_code oq_fuse_floats(oq_fuse *f, oq_tensor *t, float **v, size_t *n, onq_error *err) {
    *v = NULL;
    if (t == NULL || (t->data_type.v != OQ_FLOAT && t->data_type.v != OQ_FLOAT16))
        return ONQ_OK;
    return oq_tensor_floats(f->m, t, f->scratch, v, n, err);
}

bool oq_fuse_scalar(oq_fuse *f, oq_str name, double *v) {
    oq_tensor *t = oq_fuse_const(f, name);
    uint64_t count = 0;
    oq_span s;
    if (t == NULL || !oq_dtype_is_float(t->data_type.v) ||
        oq_tensor_count(t, &count, NULL) != ONQ_OK || count != 1 ||
        oq_model_data(f->m, t, &s, NULL) != ONQ_OK)
        return false;
    *v = oq_raw_get_real((oq_dtype)t->data_type.v, s.p, 0);
    return true;
}

bool oq_fuse_scalar_is(oq_fuse *f, oq_str name, double want, double delta) {
    double v;
    return oq_fuse_scalar(f, name, &v) && fabs(v - want) < delta;
}

onq_code oq_fuse_ints(oq_fuse *f, oq_str name, int64_t **v, size_t *n, onq_error *err) {
    oq_tensor *t = oq_fuse_const(f, name);
    *v = NULL;
    *n = 0;
    if (t == NULL || (t->data_type.v != OQ_INT64 && t->data_type.v != OQ_INT32))
        return ONQ_OK;
    return oq_tensor_i64s(f->m, t, f->scratch, v, n, err);
}

static onq_code set_floats(oq_fuse *f, oq_tensor *t, const float *v, size_t n, onq_error *err) {
    if (t->data_type.v == OQ_FLOAT)
        return oq_tensor_set_raw(&f->m->arena, t, v, n * sizeof(float), err);
    uint16_t *h = OQ_NEW_ARRAY(f->scratch, uint16_t, n + 1);
    OQ_TRY_ALLOC(h != NULL, err);
    oq_f32_to_f16_n(v, h, n);
    return oq_tensor_set_raw(&f->m->arena, t, h, n * sizeof *h, err);
}

static size_t product(const int64_t *dims, size_t rank) {
    size_t n = 1;
    for (size_t i = 0; i < rank; i++)
        n *= (size_t)dims[i];
    return n;
}

onq_code oq_fuse_add_floats(oq_fuse *f, oq_str base, oq_dtype dt, const float *v,
                            const int64_t *dims, size_t rank, oq_str *name, onq_error *err) {
    *name = oq_names_unique(f->names, base);
    oq_tensor *t = name->p != NULL ? oq_tensor_new(&f->m->arena, *name, dt, dims, rank) : NULL;
    OQ_TRY_ALLOC(t != NULL && OQ_PUSH(f->scratch, &f->inits, t), err);
    return set_floats(f, t, v, product(dims, rank), err);
}

onq_code oq_fuse_add_ints(oq_fuse *f, oq_str base, const int64_t *v, size_t n, oq_str *name,
                          onq_error *err) {
    const int64_t dims[1] = {(int64_t)n};
    *name = oq_names_unique(f->names, base);
    oq_tensor *t = name->p != NULL ? oq_tensor_new(&f->m->arena, *name, OQ_INT64, dims, 1) : NULL;
    OQ_TRY_ALLOC(t != NULL && OQ_PUSH(f->scratch, &f->inits, t), err);
    return oq_tensor_set_raw(&f->m->arena, t, v, n * sizeof *v, err);
}

oq_node *oq_fuse_add_node(oq_fuse *f, const oq_node *like, const char *op, const oq_str *in,
                          size_t n_in, oq_str *out) {
    const oq_str base = oq_node_label(like);
    oq_arena *a = &f->m->arena;
    const oq_str name =
        oq_names_unique(f->names, oq_str_format(a, "%.*s_%s", (int)base.n, base.p, op));
    *out = oq_names_unique(f->names, oq_str_format(a, "%.*s_%s_output", (int)base.n, base.p, op));
    oq_node *n =
        name.p != NULL && out->p != NULL ? oq_node_make(a, op, name, in, n_in, out, 1) : NULL;
    return n != NULL && OQ_PUSH(f->scratch, &f->nodes, n) ? n : NULL;
}

onq_code oq_fuse_put(oq_fuse *f, oq_tensor *t, const float *v, const int64_t *dims, size_t rank,
                     oq_str *name, onq_error *err) {
    if (!oq_fuse_sole(f, t->name) || t->dims.n != rank ||
        memcmp(t->dims.v, dims, rank * sizeof *dims) != 0) {
        const oq_str base = oq_str_cat(&f->m->arena, t->name, OQ_S("_fused"));
        return base.p == NULL ? oq_fail_nomem(err)
                              : oq_fuse_add_floats(f, base, (oq_dtype)t->data_type.v, v, dims, rank,
                                                   name, err);
    }
    oq_tensor_clear_data(t);
    *name = t->name;
    return set_floats(f, t, v, product(dims, rank), err);
}

/* ---- the graph ---- */

void oq_fuse_keep(oq_fuse *f, uint32_t i) {
    assert(i < f->g->node.n && !f->gone[i]);
    f->busy[i] = true;
}

void oq_fuse_drop(oq_fuse *f, uint32_t i) {
    assert(i < f->g->node.n && !f->gone[i]);
    f->busy[i] = f->gone[i] = true;
}

bool oq_fuse_set_input(oq_fuse *f, oq_node *n, size_t i, oq_str name) {
    while (n->input.n <= i)
        if (!oq_node_add_input(&f->m->arena, n, (oq_str){"", 0}))
            return false;
    n->input.v[i] = name;
    return true;
}

onq_code oq_fuse_rename(oq_fuse *f, oq_str from, oq_str to, onq_error *err) {
    /* If `to` itself was renamed in this round, its new name counts. */
    for (uint32_t at; (at = oq_map_find(&f->renames, to)) != OQ_MAP_NONE;)
        to = f->to.v[at];
    if (!OQ_PUSH(f->scratch, &f->to, to) || !oq_map_put(&f->renames, from, (uint32_t)(f->to.n - 1)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_fuse_bypass(oq_fuse *f, uint32_t i, size_t slot, bool *done, onq_error *err) {
    assert(oq_fuse_free(f, i));
    oq_node *n = oq_fuse_node(f, i);
    const oq_str in = n->input.v[slot], out = n->output.v[0];
    const oq_value *vo = oq_index_find(&f->ix, out), *vi = oq_index_find(&f->ix, in);
    if (vo == NULL || vi == NULL)
        return ONQ_OK;
    if (!vo->is_output) {
        oq_fuse_drop(f, i);
        *done = true;
        return oq_fuse_rename(f, out, in, err);
    }
    /* The name of an output stays: whoever makes the input makes the output instead. */
    const uint32_t maker = oq_fuse_maker(f, in);
    if (maker == OQ_NO_NODE || vi->is_output || oq_map_has(&f->renames, in))
        return ONQ_OK;
    for (size_t k = 0; k < vi->uses.n; k++)
        if (vi->uses.v[k].slot == OQ_SLOT_INNER)
            return ONQ_OK;
    oq_fuse_node(f, maker)->output.v[vi->producer_slot] = out;
    oq_fuse_keep(f, maker);
    oq_fuse_drop(f, i);
    *done = true;
    return oq_fuse_rename(f, in, out, err);
}

int oq_fuse_rank(const oq_fuse *f, oq_str name) {
    oq_tensor_info info;
    if (!oq_shapes_tensor(f->shapes, f->g, name, &info) || !info.has_shape)
        return -1;
    return (int)info.rank;
}

bool oq_fuse_is_float(const oq_fuse *f, oq_str name) {
    return oq_shapes_elem_type(f->shapes, f->g, name) == OQ_FLOAT;
}

int oq_fuse_dims(const oq_fuse *f, oq_str name, int64_t out[8]) {
    oq_tensor_info info;
    if (!oq_shapes_tensor(f->shapes, f->g, name, &info) || !info.has_shape || !info.is_fixed ||
        info.rank > 8)
        return -1;
    for (size_t i = 0; i < info.rank; i++)
        out[i] = info.dims[i].n;
    return (int)info.rank;
}
