/*
 * nb_reshape.c — MatMul with a weight of [1, ..., K, N] gives its result the rank of the weight;
 * MatMulNBits has no such dimensions. The nodes here put them in front again, as the reference's
 * _build_nbits_output_reshape: the shape of A without its last dimension and N, with ones before.
 */
#include "quantize/nbits/nb_run.h"

/* Small integer constants: a scalar, or a vector of one. */
static const struct {
    const char *name;
    bool vector;
    int64_t value; /* RANK and COLUMNS stand for the weight's */
} constants[] = {
#define RANK    INT64_MAX
#define COLUMNS INT64_MIN
    {"_zero", false, 0},    {"_one", false, 1},       {"_two", false, 2},
    {"_one_vec", true, 1},  {"_rank_b", false, RANK}, {"_n_vec", true, COLUMNS},
    {"_zero_vec", true, 0},
};

/* The nodes. A name that begins with _ gets the prefix; "A", "in" and "out" are the tensors
 * around. */
static const struct {
    const char *op_type, *name, *output;
    const char *input[4];
} nodes[] = {
    {"Shape", "_shape_a", "_a_shape", {"A"}},
    {"Shape", "_shape_of_a_shape", "_a_shape_of_shape", {"_a_shape"}},
    {"Gather", "_gather_rank", "_a_rank", {"_a_shape_of_shape", "_zero"}},
    {"Max", "_max_rank_eff", "_a_rank_eff", {"_a_rank", "_two"}},
    {"Sub", "_sub", "_extra_raw", {"_rank_b", "_a_rank_eff"}},
    {"Max", "_max", "_extra_count", {"_extra_raw", "_zero"}},
    {"Reshape", "_reshape_extra", "_extra_count_vec", {"_extra_count", "_one_vec"}},
    {"ConstantOfShape", "_const_ones", "_extra_ones", {"_extra_count_vec"}},
    {"Sub", "_sub_one", "_a_rank_m1", {"_a_rank", "_one"}},
    {"Reshape", "_reshape_rank_m1", "_a_rank_m1_vec", {"_a_rank_m1", "_one_vec"}},
    {"Slice",
     "_slice_a_prefix",
     "_a_prefix_shape",
     {"_a_shape", "_zero_vec", "_a_rank_m1_vec", "_zero_vec"}},
    {"Concat", "_concat_target", "_target_shape", {"_extra_ones", "_a_prefix_shape", "_n_vec"}},
    {"Reshape", "_reshape_out", "out", {"in", "_target_shape"}},
};

typedef struct around {
    oq_arena *a;
    oq_str prefix, input, before, after;
} around;

static oq_str name_of(const around *s, const char *word) {
    if (word[0] == '_')
        return oq_str_cat(s->a, s->prefix, oq_str_of(word));
    return word[0] == 'A' ? s->input : word[0] == 'i' ? s->before : s->after;
}

static onq_code add_constants(const around *s, oq_graph *g, const oq_tensor *weight,
                              onq_error *err) {
    static const int64_t one[] = {1};
    for (size_t i = 0; i < OQ_COUNT(constants); i++) {
        const int64_t said = constants[i].value;
        const int64_t v = said == RANK      ? (int64_t)weight->dims.n
                          : said == COLUMNS ? weight->dims.v[weight->dims.n - 1]
                                            : said;
        const oq_str name = name_of(s, constants[i].name);
        oq_tensor *t = oq_tensor_new(s->a, name, OQ_INT64, one, constants[i].vector ? 1 : 0);
        OQ_TRY_ALLOC(name.p != NULL && t != NULL && oq_graph_add_init(s->a, g, t), err);
        OQ_TRY(oq_tensor_set_raw(s->a, t, &v, sizeof v, err));
    }
    return ONQ_OK;
}

/* What ConstantOfShape fills with. */
static onq_code set_value(const around *s, oq_node *n, onq_error *err) {
    static const int64_t one[] = {1};
    const oq_str name = name_of(s, "_one_value");
    oq_tensor *t = oq_tensor_new(s->a, name, OQ_INT64, one, 1);
    OQ_TRY_ALLOC(name.p != NULL && t != NULL, err);
    OQ_TRY(oq_tensor_set_typed_i(s->a, t, one, 1, err));
    return oq_attr_set_tensor(s->a, n, OQ_S("value"), t) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_node(const around *s, oq_nb_state *r, oq_nb_scope *to, size_t i,
                         onq_error *err) {
    oq_str in[4];
    size_t n_in = 0;
    for (; n_in < 4 && nodes[i].input[n_in] != NULL; n_in++) {
        in[n_in] = name_of(s, nodes[i].input[n_in]);
        OQ_TRY_ALLOC(in[n_in].p != NULL, err);
    }
    const oq_str name = name_of(s, nodes[i].name), out = name_of(s, nodes[i].output);
    oq_node *n = oq_node_make(s->a, nodes[i].op_type, name, in, n_in, &out, 1);
    if (n == NULL || name.p == NULL || out.p == NULL || !OQ_PUSH(r->scratch, &to->out, n))
        return oq_fail_nomem(err);
    if (oq_str_is(n->op_type, "ConstantOfShape"))
        return set_value(s, n, err);
    if (oq_str_is(n->op_type, "Concat") && !oq_attr_set_int(s->a, n, OQ_S("axis"), 0))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_nb_emit_reshape(oq_nb_state *r, oq_nb_scope *s, oq_graph *g, oq_str prefix, oq_str a,
                            const oq_tensor *weight, oq_str before, oq_str after, onq_error *err) {
    /* The output's name makes the names unique where nodes share theirs. */
    const oq_str begin = oq_str_cat(r->arena, prefix, OQ_S("_"));
    OQ_TRY_ALLOC(begin.p != NULL, err);
    const oq_str whole = oq_str_cat(r->arena, begin, after);
    const around names = {r->arena, whole, a, before, after};
    OQ_TRY_ALLOC(whole.p != NULL, err);
    OQ_TRY(add_constants(&names, g, weight, err));
    for (size_t i = 0; i < OQ_COUNT(nodes); i++)
        OQ_TRY(add_node(&names, r, s, i, err));
    return ONQ_OK;
}
