/*
 * unit.c — see unit.h.
 */
#include "quantize/cost/unit.h"

#include "onnx/attr.h"
#include "onnx/codec/schema.h"
#include "onnx/graph.h"
#include "shape/macs.h"

#define MAX_STEPS 16 /* nodes between a constant and its reader */

/* ---- a copy of the model with fixed inputs ---- */

typedef struct fixing {
    oq_arena *arena;
    const oq_unit_sizes *sizes; /* or NULL */
    oq_map names;               /* symbol -> index in fixed */
    oq_dim_fixes fixed;
} fixing;

/* The size of a symbol is the same wherever it stands. */
static bool size_of(fixing *f, const oq_io_dim *d, int64_t fallback, int64_t *out) {
    const uint32_t at = d->param.n > 0 ? oq_map_find(&f->names, d->param) : OQ_MAP_NONE;
    *out = d->value >= 0 ? d->value : at != OQ_MAP_NONE ? f->fixed.v[at].value : fallback;
    for (size_t i = 0; f->sizes != NULL && d->value < 0 && i < f->sizes->n_dims; i++)
        if (oq_str_eq(f->sizes->dims[i].name, d->param))
            *out = f->sizes->dims[i].value;
    if (d->value >= 0 || d->param.n == 0 || at != OQ_MAP_NONE)
        return true;
    const oq_dim_fix fresh = {d->param, *out};
    return oq_map_put(&f->names, d->param, (uint32_t)f->fixed.n) &&
           OQ_PUSH(f->arena, &f->fixed, fresh);
}

static onq_code fix_input(fixing *f, oq_model *m, const oq_io *io, const oq_datum *seen,
                          onq_error *err) {
    int64_t *dims = OQ_NEW_ARRAY(f->arena, int64_t, io->rank + 1);
    bool ok = dims != NULL;
    if (seen != NULL && seen->kind == OQ_DATUM_TENSOR && seen->rank == io->rank)
        return oq_input_fix(m, io->name, seen->dims, seen->rank, err);
    for (size_t i = 0; ok && i < io->rank; i++)
        ok = size_of(f, &io->dims[i], i == 0 ? 1 : OQ_UNIT_AXIS, &dims[i]);
    return ok ? oq_input_fix(m, io->name, dims, io->rank, err) : oq_fail_nomem(err);
}

onq_code oq_inputs_settle(oq_model *m, oq_arena *a, const oq_unit_sizes *sizes, oq_dim_fixes *fixed,
                          onq_error *err) {
    fixing f = {.arena = a, .sizes = sizes};
    oq_ios inputs;
    oq_graph *g = m->proto->graph;
    oq_map_init(&f.names, a);
    OQ_TRY(oq_model_inputs(m, a, &inputs, err));
    const oq_sample *s = sizes != NULL ? sizes->sample : NULL;
    for (size_t k = 0; k < inputs.n; k++)
        OQ_TRY(fix_input(&f, m, &inputs.v[k], s != NULL && k < s->n_inputs ? &s->inputs[k] : NULL,
                         err));
    /* What the outputs say may speak of the symbols: it is found again. */
    for (size_t i = 0; i < g->output.n; i++)
        if (g->output.v[i]->type != NULL && g->output.v[i]->type->tensor_type != NULL)
            g->output.v[i]->type->tensor_type->shape = NULL;
    if (fixed != NULL)
        *fixed = f.fixed;
    return ONQ_OK;
}

/* ---- one unit ---- */

typedef struct finding {
    oq_units *out;
    oq_arena *arena;
    const oq_shapes *shapes;
    oq_graph *main;
    oq_index outer; /* of main: where inner graphs look for constants */
} finding;

/* The shape of a tensor; what is not known is 1, and said to be a guess. */
static onq_code shape_of(const finding *f, const oq_graph *g, const oq_node *n, size_t slot,
                         oq_unit_shape *out, bool *guessed, onq_error *err) {
    oq_tensor_info info = {0};
    const oq_str name = slot < n->input.n ? n->input.v[slot] : n->output.v[0];
    *out = (oq_unit_shape){0};
    if (!oq_shapes_tensor(f->shapes, g == f->main ? NULL : g, name, &info) || !info.has_shape) {
        *guessed = true;
        return ONQ_OK;
    }
    int64_t *dims = OQ_NEW_ARRAY(f->arena, int64_t, info.rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    for (size_t i = 0; i < info.rank; i++) {
        const bool known = oq_sdim_is_num(info.dims[i]) && info.dims[i].n >= 0;
        dims[i] = known ? info.dims[i].n : 1;
        *guessed |= !known;
    }
    *out = (oq_unit_shape){dims, info.rank};
    return ONQ_OK;
}

/* True if no sample changes the tensor. */
static bool is_constant(const oq_index *ix, oq_str name) {
    for (int steps = 0; ix != NULL && steps < MAX_STEPS; steps++) {
        const oq_value *v = oq_index_resolve(&ix, name);
        const oq_node *n = oq_value_node(ix, v);
        if (oq_node_is_constant(n) || (v != NULL && (v->init != NULL || v->sparse_init != NULL)))
            return true;
        if (n == NULL || n->input.n == 0 ||
            !(oq_op_traits_of(n->op_type)->repeats >= OQ_REPEATS_SOME || oq_node_is_pair(n) ||
              oq_str_is(n->op_type, "Cast")))
            return false;
        name = n->input.v[0];
    }
    return false;
}

static bool is_one_place(const oq_unit_shape *s) {
    bool one = s->rank > 2;
    for (size_t i = 2; i < s->rank; i++)
        one &= s->dims[i] == 1;
    return one;
}

static oq_unit_kind kind_of_conv(const oq_unit *u) {
    const int64_t group = oq_attr_int(u->node, "group", 1);
    if (group > 1)
        return u->weight.rank > 1 && u->weight.dims[1] == 1 ? OQ_UNIT_DEPTHWISE : OQ_UNIT_GROUPED;
    return is_one_place(&u->in) && is_one_place(&u->out) ? OQ_UNIT_POOLED : OQ_UNIT_DENSE;
}

static void measure_conv(oq_unit *u) {
    u->kind = u->product == OQ_CONV_TRANSPOSE ? OQ_UNIT_TRANSPOSE : kind_of_conv(u);
    for (size_t i = 1; i < u->weight.rank; i++)
        u->depth *= (double)u->weight.dims[i];
}

static void measure_matrix(oq_unit *u, bool has_constant) {
    const bool turned = u->product == OQ_GEMM && oq_gemm_turns_a(u->node);
    if (u->in.rank > 0)
        u->depth = (double)u->in.dims[turned ? 0 : u->in.rank - 1];
    u->kind = has_constant ? OQ_UNIT_DENSE : OQ_UNIT_PAIR;
}

/* The Relu or Clip that alone reads the node's output, or NULL. */
static const oq_node *activation_of(const oq_index *ix, const oq_node *n) {
    const oq_value *v = oq_index_find(ix, n->output.v[0]);
    if (v == NULL || v->is_output || v->uses.n != 1 || v->uses.v[0].slot != 0)
        return NULL;
    const oq_node *reader = ix->graph->node.v[v->uses.v[0].node];
    return oq_op_traits_of(reader->op_type)->clips ? reader : NULL;
}

static onq_code add_unit(finding *f, const oq_index *ix, const oq_node *n, onq_error *err) {
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    oq_unit u = {.node = n, .graph = ix->graph, .product = traits->product, .depth = 1};
    if (traits->product == OQ_NO_PRODUCT || traits->form != OQ_FORM_FLOAT || n->input.n < 2 ||
        n->output.n == 0)
        return ONQ_OK;
    OQ_TRY(shape_of(f, ix->graph, n, 0, &u.in, &u.guessed, err));
    OQ_TRY(shape_of(f, ix->graph, n, 1, &u.weight, &u.guessed, err));
    OQ_TRY(shape_of(f, ix->graph, n, n->input.n, &u.out, &u.guessed, err));
    if (u.product == OQ_CONV || u.product == OQ_CONV_TRANSPOSE)
        measure_conv(&u);
    else
        measure_matrix(&u, is_constant(ix, n->input.v[0]) || is_constant(ix, n->input.v[1]));
    u.act = activation_of(ix, n);
    u.macs = oq_node_macs(f->shapes, ix->graph == f->main ? NULL : ix->graph, n);
    f->out->macs += u.macs;
    return OQ_PUSH(f->arena, &f->out->all, u) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_units(void *ctx, oq_graph *g, onq_error *err) {
    finding *f = ctx;
    oq_index inner;
    if (g != f->main)
        OQ_TRY(oq_index_build(&inner, f->arena, g, &f->outer, err));
    const oq_index *ix = g != f->main ? &inner : &f->outer;
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(add_unit(f, ix, g->node.v[i], err));
    return ONQ_OK;
}

static onq_code find_in_copy(oq_units *out, oq_arena *a, oq_model *m, const oq_unit_sizes *sizes,
                             onq_error *err) {
    const oq_shape_options symbolic = {.symbolic = true};
    oq_shapes *shapes = NULL;
    OQ_TRY(oq_inputs_settle(m, a, sizes, NULL, err));
    finding f = {.out = out, .arena = a, .main = m->proto->graph};
    OQ_TRY(oq_index_build(&f.outer, a, f.main, NULL, err));
    OQ_TRY(oq_shapes_infer(m, &symbolic, &shapes, err));
    f.shapes = shapes;
    const onq_code rc = oq_walk_graphs(f.main, add_units, &f, err);
    oq_shapes_free(shapes);
    return rc;
}

onq_code oq_units_find(oq_units *out, oq_arena *a, oq_model *m, const oq_unit_sizes *sizes,
                       onq_error *err) {
    oq_model_proto *const own = m->proto;
    *out = (oq_units){0};
    m->proto = oq_message_clone(a, OQ_SCHEMA_model_proto, own);
    const onq_code rc = m->proto != NULL ? find_in_copy(out, a, m, sizes, err) : oq_fail_nomem(err);
    m->proto = own;
    return rc;
}
