/*
 * qoperator_gemm.c — Gemm as MatMul and Add, for dynamic quantization
 * (ONNXModel.replace_gemm_with_matmul).
 *
 * Only where alpha and beta are 1 and A is not transposed. A constant B that is transposed is
 * turned: the float tensor becomes a producer that transposes when it is written (if it is ever
 * written), and the quantizer knows the original, so that it is quantized as it lies in the file.
 *
 * The reference turns B in place even when others read it, which breaks them; here a shared B is
 * copied, once for all that read it turned. It also renames a Gemm that the user excluded by name, and then quantizes it; here it
 * stays a Gemm.
 */
#include "quantize/qoperator/qo_state.h"

typedef struct turn {
    oq_span raw;
    uint64_t rows, cols, size; /* of the original; bytes of an element */
} turn;

typedef struct pass {
    oq_qo_shared *sh;
    oq_map uses; /* name -> how often a node reads it, in the whole model */
    OQ_VEC(oq_graph *) path;
} pass;

static onq_code make_turned(const oq_producer *self, uint8_t *out, onq_error *err) {
    const turn *t = self->ctx;
    (void)err;
    for (uint64_t r = 0; r < t->rows; r++)
        for (uint64_t c = 0; c < t->cols; c++)
            memcpy(out + (c * t->rows + r) * t->size, t->raw.p + (r * t->cols + c) * t->size,
                   t->size);
    return ONQ_OK;
}

static onq_code count_uses(void *ctx, oq_graph *g, onq_error *err) {
    pass *p = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        for (size_t k = 0; k < g->node.v[i]->input.n; k++) {
            const oq_str name = g->node.v[i]->input.v[k];
            const uint32_t n = oq_map_find(&p->uses, name);
            OQ_TRY_ALLOC(oq_map_put(&p->uses, name, n == OQ_MAP_NONE ? 1 : n + 1), err);
        }
    }
    return ONQ_OK;
}

/* The constant `name` and the graph it is in, from the innermost outwards. */
static oq_tensor *find_constant(const pass *p, oq_str name, oq_graph **where) {
    for (size_t i = p->path.n; i > 0; i--) {
        oq_tensor *t = oq_graph_find_init(p->path.v[i - 1], name);
        if (t != NULL) {
            *where = p->path.v[i - 1];
            return t;
        }
    }
    return NULL;
}

static void remove_input(oq_graph *g, oq_str name) {
    for (size_t i = 0; i < g->input.n; i++) {
        if (oq_str_eq(g->input.v[i]->name, name)) {
            OQ_REMOVE_AT(&g->input, i);
            return;
        }
    }
}

/* B turned; *name is what the MatMul reads. */
static onq_code turn_constant(pass *p, oq_tensor *b, oq_graph *g, oq_str *name, onq_error *err) {
    oq_model *m = p->sh->job.model;
    oq_arena *a = &m->arena;
    for (size_t i = 0; i < p->sh->turned.n; i++) {
        if (p->sh->turned.v[i].origin == b) {
            *name = p->sh->turned.v[i].tensor->name;
            return ONQ_OK;
        }
    }
    turn *t = OQ_NEW(a, turn);
    oq_producer *make = OQ_NEW(a, oq_producer);
    const int64_t dims[2] = {b->dims.v[1], b->dims.v[0]};
    oq_tensor *turned = oq_tensor_new(a, b->name, (oq_dtype)b->data_type.v, dims, 2);
    OQ_TRY_ALLOC(t != NULL && make != NULL && turned != NULL, err);
    OQ_TRY(oq_model_data(m, b, &t->raw, err));
    t->rows = (uint64_t)b->dims.v[0];
    t->cols = (uint64_t)b->dims.v[1];
    t->size = t->rows * t->cols != 0 ? t->raw.n / (t->rows * t->cols) : 0;
    *make = (oq_producer){.size = t->raw.n, .make = make_turned, .ctx = t};
    oq_tensor_set_producer(turned, make);
    if (oq_map_find(&p->uses, b->name) > 1) {
        turned->name = oq_fresh_tensor(&p->sh->names, b->name, "_Transposed");
        OQ_TRY_ALLOC(turned->name.p != NULL, err);
    } else {
        oq_graph_remove_init(g, b->name);
        remove_input(g, b->name);
    }
    *name = turned->name;
    if (!oq_graph_add_init(a, g, turned) ||
        !OQ_PUSH(p->sh->arena, &p->sh->turned, (oq_qo_turned){turned, b}))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static bool can_turn(const oq_tensor *b) {
    const oq_dtype_info *d = oq_dtype_find(b->data_type.v);
    return b->dims.n == 2 && d != NULL && d->bits >= 8;
}

/* Appends the replacement of the Gemm to `list`. */
static onq_code replace(pass *p, oq_node *gemm, oq_vec_any *list_any, onq_error *err) {
    OQ_VEC(oq_node *) *list = (void *)list_any;
    oq_arena *a = &p->sh->job.model->arena;
    oq_fresh *names = &p->sh->names;
    oq_str b = gemm->input.v[1];
    if (oq_gemm_turns_b(gemm)) {
        oq_graph *where = NULL;
        oq_tensor *t = find_constant(p, b, &where);
        if (t != NULL && can_turn(t)) {
            OQ_TRY(turn_constant(p, t, where, &b, err));
        } else {
            const oq_str out = oq_fresh_tensor(names, b, "_Transposed");
            oq_node *n = oq_node_make(a, "Transpose", oq_fresh_node_of(names, gemm, "_Transpose"),
                                      &b, 1, &out, 1);
            OQ_TRY_ALLOC(!names->failed && n != NULL && OQ_PUSH(p->sh->arena, list, n), err);
            b = out;
        }
    }
    const bool has_c = gemm->input.n > 2 && gemm->input.v[2].n != 0;
    const oq_str out = gemm->output.v[0];
    const oq_str mid = has_c ? oq_fresh_tensor(names, out, "_MatMul") : out;
    const oq_str in[2] = {gemm->input.v[0], b};
    oq_node *mul =
        oq_node_make(a, "MatMul", oq_fresh_node_of(names, gemm, "_MatMul"), in, 2, &mid, 1);
    OQ_TRY_ALLOC(!names->failed && mul != NULL && OQ_PUSH(p->sh->arena, list, mul), err);
    oq_node_carry(mul, gemm);
    if (!has_c)
        return ONQ_OK;
    const oq_str sum[2] = {mid, gemm->input.v[2]};
    oq_node *add = oq_node_make(a, "Add", oq_fresh_node_of(names, gemm, "_Add"), sum, 2, &out, 1);
    OQ_TRY_ALLOC(!names->failed && add != NULL && OQ_PUSH(p->sh->arena, list, add), err);
    return ONQ_OK;
}

static bool replaceable(const pass *p, const oq_node *n) {
    oq_qconfig *c = p->sh->job.run->config;
    return oq_str_is(n->op_type, "Gemm") && n->domain.n == 0 && n->input.n >= 2 &&
           n->output.n >= 1 && oq_attr_float(n, "alpha", 1.0f) == 1.0f &&
           oq_attr_float(n, "beta", 1.0f) == 1.0f && !oq_gemm_turns_a(n) &&
           !oq_pick_has(&c->nodes_to_exclude, n->name) &&
           (!c->trained || oq_qo_trained_gemm(p->sh, n));
}

static onq_code replace_in(pass *p, oq_graph *g, unsigned depth, onq_error *err) {
    OQ_VEC(oq_node *) list = {0};
    if (depth > 100)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested deeper than 100");
    OQ_TRY_ALLOC(OQ_PUSH(p->sh->arena, &p->path, g), err);
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        for (size_t k = 0; k < n->attribute.n; k++) {
            const oq_attribute *at = n->attribute.v[k];
            if (at->g != NULL)
                OQ_TRY(replace_in(p, at->g, depth + 1, err));
            for (size_t j = 0; j < at->graphs.n; j++)
                OQ_TRY(replace_in(p, at->graphs.v[j], depth + 1, err));
        }
        if (replaceable(p, n))
            OQ_TRY(replace(p, n, (oq_vec_any *)(void *)&list, err));
        else if (!OQ_PUSH(p->sh->arena, &list, n))
            return oq_fail_nomem(err);
    }
    p->path.n--;
    OQ_TRY_ALLOC(oq_graph_set_nodes(&p->sh->job.model->arena, g, list.v, list.n), err);
    return ONQ_OK;
}

onq_code oq_qo_replace_gemm(oq_qo_shared *sh, onq_error *err) {
    pass p = {.sh = sh};
    oq_graph *g = sh->job.model->proto->graph;
    oq_map_init(&p.uses, sh->arena);
    OQ_TRY(oq_walk_graphs(g, count_uses, &p, err));
    return replace_in(&p, g, 0, err);
}
