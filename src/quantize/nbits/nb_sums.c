/*
 * nb_sums.c — zero points that are not integers, for kernels that take integers only.
 *
 * A block of a column is scale x (q - zero), and its part of a product is
 *
 *     scale x sum of x (q - 2^(bits-1))  +  (2^(bits-1) - zero) x scale x sum of x
 *
 * The first is a symmetric MatMulNBits, for which the runtime has fast kernels; the second a small
 * MatMul of the sums of the blocks of x, which all weights that read x share. MatMulNBits with float
 * zero points computes the same and unpacks the weight on every run.
 */
#include "quantize/nbits/nb_run.h"

#define MAX_RANK 8

static bool push(oq_nb_state *r, oq_nb_scope *s, oq_node *n) {
    return n != NULL && !r->names.failed && OQ_PUSH(r->scratch, &s->out, n);
}

oq_str oq_nb_add_ints(oq_nb_state *r, oq_nb_scope *s, oq_str prefix, const char *suffix,
                      const int64_t *v, size_t n, onq_error *err) {
    const int64_t dims[] = {(int64_t)n};
    const oq_str name = oq_fresh_tensor(&r->names, prefix, suffix);
    oq_tensor *t = name.p != NULL ? oq_tensor_new(r->arena, name, OQ_INT64, dims, 1) : NULL;
    if (t == NULL || !oq_graph_add_init(r->arena, s->graph, t) ||
        oq_tensor_set_raw(r->arena, t, v, n * sizeof *v, err) != ONQ_OK)
        return (oq_str){0};
    return name;
}

/* The shape [d0, d1, ..., blocks, block] where the rank of x is known. */
static oq_str known_shape(oq_nb_state *r, oq_nb_scope *s, oq_str x, size_t rank, uint64_t blocks,
                          uint64_t block, onq_error *err) {
    int64_t v[MAX_RANK + 1] = {0}; /* 0: the dimension as it is */
    v[rank - 1] = (int64_t)blocks;
    v[rank] = (int64_t)block;
    return oq_nb_add_ints(r, s, x, "_blocks_shape", v, rank + 1, err);
}

/* The same computed: Concat(Shape(x) without its last, [blocks, block]). */
static oq_str computed_shape(oq_nb_state *r, oq_nb_scope *s, oq_str x, uint64_t blocks,
                             uint64_t block, onq_error *err) {
    const int64_t tail[] = {(int64_t)blocks, (int64_t)block}, zero = 0, last = -1;
    const oq_str end = oq_nb_add_ints(r, s, x, "_blocks_end", tail, 2, err);
    const oq_str from = oq_nb_add_ints(r, s, x, "_blocks_from", &zero, 1, err);
    const oq_str to = oq_nb_add_ints(r, s, x, "_blocks_to", &last, 1, err);
    const oq_str all = oq_fresh_tensor(&r->names, x, "_shape");
    const oq_str head = oq_fresh_tensor(&r->names, x, "_shape_head");
    const oq_str shape = oq_fresh_tensor(&r->names, x, "_blocks_shape");
    if (end.p == NULL || from.p == NULL || to.p == NULL || r->names.failed)
        return (oq_str){0};
    const oq_str cut[] = {all, from, to}, both[] = {head, end};
    oq_node *join = oq_node_make(r->arena, "Concat", (oq_str){0}, both, 2, &shape, 1);
    return push(r, s, oq_node_make(r->arena, "Shape", (oq_str){0}, &x, 1, &all, 1)) &&
                   push(r, s, oq_node_make(r->arena, "Slice", (oq_str){0}, cut, 3, &head, 1)) &&
                   join != NULL && oq_attr_set_int(r->arena, join, OQ_S("axis"), 0) &&
                   push(r, s, join)
               ? shape
               : (oq_str){0};
}

/* ReduceSum over the last axis, which was an attribute before opset 13. */
static oq_node *reduce(oq_nb_state *r, oq_nb_scope *s, oq_str x, oq_str from, oq_str to,
                       onq_error *err) {
    const int64_t axis = -1;
    const bool attribute = oq_model_opset(r->job->model, OQ_S("")) < 13;
    const oq_str axes = attribute ? from : oq_nb_add_ints(r, s, x, "_blocks_axis", &axis, 1, err);
    const oq_str in[] = {from, axes};
    oq_node *n = axes.p != NULL ? oq_node_make(r->arena, "ReduceSum", (oq_str){0}, in,
                                               attribute ? 1 : 2, &to, 1)
                                : NULL;
    if (n == NULL || !oq_attr_set_int(r->arena, n, OQ_S("keepdims"), 0) ||
        (attribute && !oq_attr_set_ints(r->arena, n, OQ_S("axes"), &axis, 1)))
        return NULL;
    return n;
}

/* The sums of the blocks of x, made when the first weight needs them. */
static onq_code sums_of(oq_nb_state *r, oq_nb_scope *s, oq_str x, uint64_t k, uint64_t block,
                        oq_str *out, onq_error *err) {
    for (size_t i = 0; i < r->sums.n; i++) {
        const oq_nb_sum *had = &r->sums.v[i];
        *out = had->name;
        if (had->scope == s && had->block == block && oq_str_eq(had->of, x))
            return ONQ_OK;
    }
    const int64_t rank = oq_nb_rank_of(s, x);
    const oq_str shape = rank > 0 && rank <= MAX_RANK
                             ? known_shape(r, s, x, (size_t)rank, k / block, block, err)
                             : computed_shape(r, s, x, k / block, block, err);
    const oq_str cut = oq_fresh_tensor(&r->names, x, "_in_blocks");
    *out = oq_fresh_tensor(&r->names, x, "_block_sums");
    if (shape.p == NULL || r->names.failed)
        return oq_fail_nomem(err);
    const oq_str in[] = {x, shape};
    const oq_nb_sum made = {.scope = s, .of = x, .name = *out, .block = block};
    return push(r, s, oq_node_make(r->arena, "Reshape", (oq_str){0}, in, 2, &cut, 1)) &&
                   push(r, s, reduce(r, s, x, cut, *out, err)) &&
                   OQ_PUSH(r->scratch, &r->sums, made)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

onq_code oq_nb_emit_sums(oq_nb_state *r, const oq_nb_choice *c, oq_str blocks, oq_str output,
                         onq_error *err) {
    oq_str sums = {0};
    OQ_TRY(sums_of(r, c->scope, c->node->input.v[0], c->weight.k, c->how.block, &sums, err));
    const oq_str offsets = oq_fresh_tensor(&r->names, output, "_offsets");
    const oq_str in[] = {sums, c->done->wide[OQ_NB_ZEROS]}, both[] = {blocks, offsets};
    const oq_str product = oq_fresh_node_of(&r->names, c->node, "_offsets");
    const oq_str sum = oq_fresh_node_of(&r->names, c->node, "_Add");
    return push(r, c->scope, oq_node_make(r->arena, "MatMul", product, in, 2, &offsets, 1)) &&
                   push(r, c->scope, oq_node_make(r->arena, "Add", sum, both, 2, &output, 1))
               ? ONQ_OK
               : oq_fail_nomem(err);
}
