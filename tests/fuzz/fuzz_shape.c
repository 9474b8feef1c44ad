/*
 * fuzz_shape.c — shape inference over arbitrary models.
 *
 * The first byte says how to read the rest: even, as a model file; odd, as a program that builds a
 * graph: inputs, small constants, then nodes of sop.def with inputs among the values so far and
 * attributes with awkward numbers, so that rules meet what no exporter writes. Plain and symbolic
 * inference must end, a refusal must say why, sizes in the result must not be negative in symbolic
 * mode, and the model must still encode with the results written into it.
 */
#include "onnx/edit.h"
#include "shape/shape.h"
#include "shape/sop.h"

#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    const uint8_t *p;
    size_t n;
} bytes;

static unsigned next(bytes *b) {
    if (b->n == 0)
        return 0;
    b->n--;
    return *b->p++;
}

static int64_t number(bytes *b) {
    static const int64_t odd[] = {0,         1,         -1,      2, 3,  -2, INT64_MAX, INT64_MIN,
                                  INT32_MAX, INT32_MIN, 1 << 20, 7, 16, 64, 1000,      -7};
    const unsigned v = next(b);
    return v < 128 ? (int64_t)v % 8 : odd[v % OQ_COUNT(odd)];
}

static oq_str value_name(oq_arena *a, unsigned i) {
    return oq_str_format(a, "v%u", i);
}

static void check(const oq_vtype *t, bool symbolic) {
    if (t == NULL)
        return;
    for (uint32_t i = 0; symbolic && t->has_shape && i < t->rank; i++)
        if (oq_sdim_is_unknown(t->dims[i]) || (oq_sdim_is_num(t->dims[i]) && t->dims[i].n < 0))
            abort();
    check(t->inner, symbolic);
}

static void infer(oq_model *m, const oq_shape_options *opts) {
    onq_error err = ONQ_ERROR_INIT;
    oq_shapes *s = NULL;
    const onq_code rc = oq_shapes_infer(m, opts, &s, &err);
    MUST_EXPLAIN(rc, err);
    for (size_t i = 0; rc == ONQ_OK && i < m->proto->graph->node.n; i++) {
        const oq_node *n = m->proto->graph->node.v[i];
        for (size_t o = 0; o < n->output.n; o++)
            if (n->output.v[o].n > 0)
                check(oq_shapes_find(s, NULL, n->output.v[o]), opts->symbolic);
    }
    if (rc == ONQ_OK && opts->auto_merge) {
        oq_buf out;
        oq_buf_init(&out, &m->env->alloc);
        if (oq_shapes_write(s, m, &err) != ONQ_OK || oq_model_encode(m, &out, &err) != ONQ_OK) {
            fprintf(stderr, "%s\n", err.text);
            if (err.code == ONQ_E_NOMEM)
                abort();
        }
        oq_buf_release(&out);
    }
    oq_shapes_free(s);
}

static void infer_all(oq_model *m) {
    infer(m, &(oq_shape_options){.data_prop = true});
    infer(m, &(oq_shape_options){.strict = true});
    infer(m, &(oq_shape_options){.symbolic = true, .strict = true});
    infer(m, &(oq_shape_options){.symbolic = true, .auto_merge = true, .guess_output_rank = true});
}

static void add_input(oq_arena *a, oq_graph *g, bytes *b, unsigned i) {
    oq_value_info *vi = OQ_NEW(a, oq_value_info);
    oq_type *t = OQ_NEW(a, oq_type);
    oq_tensor_type *tt = OQ_NEW(a, oq_tensor_type);
    vi->name = value_name(a, i);
    vi->type = t;
    t->tensor_type = tt;
    tt->elem_type = OQ_I32((int32_t)(next(b) % 24));
    tt->shape = OQ_NEW(a, oq_shape);
    const unsigned rank = next(b) % 6;
    for (unsigned k = 0; k < rank; k++) {
        oq_dim *d = OQ_NEW(a, oq_dim);
        const unsigned how = next(b);
        if (how % 3 == 0)
            d->dim_value = OQ_I64(number(b));
        else if (how % 3 == 1)
            d->dim_param = oq_str_format(a, how % 2 ? "n%u" : "n%u + 1", how % 5);
        (void)OQ_PUSH(a, &tt->shape->dim, d);
    }
    if (next(b) % 8 == 0)
        tt->shape = NULL;
    (void)OQ_PUSH(a, &g->input, vi);
}

static void add_constant(oq_arena *a, oq_graph *g, bytes *b, unsigned i) {
    const bool real = next(b) % 3 == 0;
    int64_t ints[6], dim = next(b) % 7;
    double reals[6];
    for (int64_t k = 0; k < 6; k++) {
        ints[k] = number(b);
        reals[k] = (double)ints[k] / 4;
    }
    dim = dim > 6 ? 6 : dim;
    const size_t n = dim == 0 ? 1 : (size_t)dim;
    oq_tensor *t =
        oq_tensor_new(a, value_name(a, i), real ? OQ_FLOAT : OQ_INT64, &dim, dim == 0 ? 0 : 1);
    if (real)
        (void)oq_tensor_set_typed_f(a, t, reals, n, NULL);
    else
        (void)oq_tensor_set_typed_i(a, t, ints, n, NULL);
    (void)OQ_PUSH(a, &g->initializer, t);
}

static void add_attribute(oq_arena *a, oq_node *n, bytes *b) {
    static const char *const names[] = {"K",
                                        "N",
                                        "Nq",
                                        "allowzero",
                                        "auto_pad",
                                        "axes",
                                        "axis",
                                        "batch_dims",
                                        "bits",
                                        "blocksize",
                                        "cast_to",
                                        "ceil_mode",
                                        "channels_last",
                                        "coordinate_transformation_mode",
                                        "dilations",
                                        "dim",
                                        "direction",
                                        "dtype",
                                        "end",
                                        "ends",
                                        "equation",
                                        "fmod",
                                        "gather_axis",
                                        "group",
                                        "hidden_size",
                                        "inverse",
                                        "keep_aspect_ratio_policy",
                                        "keepdims",
                                        "kernel_shape",
                                        "kv_num_heads",
                                        "layout",
                                        "n_targets",
                                        "new_axis",
                                        "ngram_indexes",
                                        "noop_with_empty_axes",
                                        "num_branches",
                                        "num_heads",
                                        "num_outputs",
                                        "num_scan_inputs",
                                        "onesided",
                                        "operator",
                                        "output_dtype",
                                        "output_height",
                                        "output_padding",
                                        "output_shape",
                                        "output_tensor_ranks",
                                        "output_tensor_types",
                                        "pads",
                                        "perm",
                                        "pooled_shape",
                                        "q_num_heads",
                                        "qkv_hidden_sizes",
                                        "quantize_axis",
                                        "reduction",
                                        "scales",
                                        "shape",
                                        "size",
                                        "split",
                                        "start",
                                        "starts",
                                        "step",
                                        "strides",
                                        "to",
                                        "transA",
                                        "transB",
                                        "transBatchA",
                                        "value",
                                        "value_ints"};
    static const char *const texts[] = {
        "SAME_UPPER",     "VALID",      "bidirectional",      "none",   "ij,jk->ik",
        "...i,i...->...", "not_larger", "tf_crop_and_resize", "unfold", "qsa",
        "LATENT",         "TO_INT64"};
    oq_attribute *at = OQ_NEW(a, oq_attribute);
    at->name = oq_str_of(names[next(b) % OQ_COUNT(names)]);
    at->i = OQ_I64(number(b));
    at->f = OQ_F32((float)number(b));
    at->s = oq_str_of(texts[next(b) % OQ_COUNT(texts)]);
    const unsigned n_ints = next(b) % 9;
    for (unsigned k = 0; k < n_ints; k++) {
        const int64_t v = number(b);
        (void)OQ_PUSH(a, &at->ints, v);
        (void)OQ_PUSH(a, &at->floats, (float)v / 2);
    }
    (void)OQ_PUSH(a, &n->attribute, at);
}

static void run_program(onq_env *env, bytes *b) {
    oq_model *m = NULL;
    if (oq_model_new(env, 8, 1 + next(b) % 28, &m, NULL) != ONQ_OK)
        return;
    oq_arena *a = &m->arena;
    oq_graph *g = m->proto->graph;
    (void)oq_model_set_opset(m, OQ_S("com.microsoft"), 1, NULL);
    (void)oq_model_set_opset(m, OQ_S("ai.onnx.ml"), 1 + next(b) % 5, NULL);
    (void)oq_model_set_opset(m, OQ_S("org.pytorch.aten"), 1, NULL);
    unsigned n_values = 0;
    for (; n_values < 4; n_values++)
        add_input(a, g, b, n_values);
    for (; n_values < 8; n_values++)
        add_constant(a, g, b, n_values);
    for (unsigned i = 0; i < 24 && b->n > 0; i++) {
        const oq_sop *op = &oq_sops[(next(b) * 256 + next(b)) % oq_sop_count];
        oq_node *n = oq_node_new(a, op->type, OQ_S("n"));
        n->domain = oq_str_of(op->domain);
        for (unsigned k = next(b) % 7; k > 0; k--) {
            const unsigned v = next(b);
            (void)oq_node_add_input(a, n, v == 255 ? OQ_S("") : value_name(a, v % n_values));
        }
        for (unsigned k = 1 + next(b) % 4; k > 0; k--)
            (void)oq_node_add_output(a, n, value_name(a, n_values++));
        for (unsigned k = next(b) % 5; k > 0; k--)
            add_attribute(a, n, b);
        (void)oq_graph_add_node(a, g, n);
    }
    infer_all(m);
    oq_model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onq_env *env = onq_env_new(NULL);
    if (env == NULL || size == 0) {
        onq_env_free(env);
        return 0;
    }
    if (data[0] % 2 == 1) {
        run_program(env, &(bytes){data + 1, size - 1});
    } else {
        oq_model *m = NULL;
        if (oq_model_open_memory(env, data + 1, size - 1, NULL, &m, NULL) == ONQ_OK)
            infer_all(m);
        oq_model_free(m);
    }
    onq_env_free(env);
    return 0;
}

/* A program is bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return size > 1 && data[0] % 2 == 0 ? mutate_model(data, size, max, seed, 1)
                                        : LLVMFuzzerMutate(data, size, max);
}
