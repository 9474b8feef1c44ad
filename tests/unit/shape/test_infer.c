/*
 * test_infer.c — the engine: values followed into shapes, subgraphs, functions, hints, merging,
 * writing, limits, failing allocations.
 */
#include "shape/infer.h"
#include "shape/shape.h"

#include "build_model.h"
#include "testing.h"

#include <stdio.h>
#include <time.h>

static const oq_shape_options symbolic = {.symbolic = true};

static oq_shapes *infer(bm *b, const oq_shape_options *opts) {
    oq_shapes *s = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_shapes_infer(b->m, opts, &s, &err), err);
    return s;
}

/* "FLOAT[n,3]", "FLOAT" without a shape, "?" when nothing is known. */
static const char *text_of(const oq_shapes *s, const oq_graph *g, const char *name, char *out,
                           size_t size) {
    const oq_vtype *t = oq_shapes_find(s, g, oq_str_of(name));
    oq_buf b;
    oq_buf_init(&b, oq_alloc_default());
    while (t != NULL && t->kind == OQ_V_SEQUENCE) {
        oq_buf_adds(&b, "seq ");
        t = t->inner;
    }
    oq_buf_adds(&b, t == NULL ? "?" : oq_dtype_name(t->elem_type));
    if (t != NULL && t->has_shape) {
        oq_buf_addc(&b, '[');
        for (uint32_t i = 0; i < t->rank; i++) {
            oq_buf_adds(&b, i > 0 ? "," : "");
            oq_sdim_print(&b, t->dims[i]);
        }
        oq_buf_addc(&b, ']');
    }
    snprintf(out, size, "%s", b.p);
    oq_buf_release(&b);
    return out;
}

#define IS_IN(s, g, name, want)                                                                    \
    do {                                                                                           \
        char is_text[512];                                                                         \
        assert_string_equal(text_of((s), (g), (name), is_text, sizeof is_text), (want));           \
    } while (0)
#define IS(s, name, want) IS_IN(s, NULL, name, want)

static void values_become_shapes(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "batch,seq,12,64");
    bm_i64(&b, "zero", "", (const int64_t[]){0});
    bm_i64(&b, "one", "", (const int64_t[]){1});
    bm_i64(&b, "axis", "1", (const int64_t[]){0});
    bm_i64(&b, "rest", "1", (const int64_t[]){-1});
    bm_node(&b, "Shape", "n0", "x", "s", "");
    bm_node(&b, "Gather", "n1", "s zero", "b", "");
    bm_node(&b, "Gather", "n2", "s one", "q", "");
    bm_node(&b, "Unsqueeze", "n3", "b axis", "b1", "");
    bm_node(&b, "Unsqueeze", "n4", "q axis", "q1", "");
    bm_node(&b, "Concat", "n5", "b1 q1 rest", "target", "axis=0");
    bm_node(&b, "Reshape", "n6", "x target", "y", "");
    bm_node(&b, "Mul", "n7", "q one", "q2", "");
    bm_node(&b, "Range", "n8", "zero q2 one", "ids", "");
    /* A mask by the pattern Where(Equal(target, -1), ones, target). */
    bm_node(&b, "Equal", "n9", "target rest", "open", "");
    bm_node(&b, "Where", "n10", "open one target", "dims", "");
    bm_node(&b, "ConstantOfShape", "n11", "dims", "mask", "");
    bm_node(&b, "Slice", "n12", "x axis q1 axis", "cut", "");
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "y", "FLOAT[batch,seq,768]");
    IS(s, "ids", "INT64[seq]");
    IS(s, "mask", "FLOAT[batch,seq,1]");
    IS(s, "cut", "FLOAT[Min(batch, seq),seq,12,64]");
    oq_shapes_free(s);
    /* Without following values, only constants count. */
    s = infer(&b, NULL);
    IS(s, "y", "FLOAT[unk__0,unk__1,unk__2]");
    IS(s, "ids", "INT64[unk__3]");
    oq_shapes_free(s);
    bm_end(&b);
}

/* Sizes through float arithmetic, as exporters of interpolation write it. */
static void float_arithmetic_stays_exact(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n,3,h,w");
    bm_i64(&b, "two", "1", (const int64_t[]){2});
    bm_i64(&b, "four", "1", (const int64_t[]){4});
    bm_f32(&b, "scale", "1", (const float[]){1.5f});
    bm_node(&b, "Shape", "n0", "x", "s", "");
    bm_node(&b, "Slice", "n1", "s two four", "hw", "");
    bm_node(&b, "Cast", "n2", "hw", "hwf", "to=1");
    bm_node(&b, "Mul", "n3", "hwf scale", "big", "");
    bm_node(&b, "Floor", "n4", "big", "whole", "");
    bm_node(&b, "Cast", "n5", "whole", "sizes", "to=7");
    bm_i64(&b, "none", "1", (const int64_t[]){0});
    bm_node(&b, "Slice", "n6", "s none two", "nc", "");
    bm_node(&b, "Concat", "n7", "nc sizes", "all", "axis=0");
    bm_node(&b, "Resize", "n8", "x _ _ all", "y", "");
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "y", "FLOAT[n,3,h + floor(h/2),w + floor(w/2)]");
    oq_shapes_free(s);
    bm_end(&b);
}

/* Inputs with the dims of a run. */
static void given_dims(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n,3,?");
    bm_input(&b, "w", OQ_FLOAT, "3,k");
    bm_node(&b, "Shape", "n0", "x", "s", "");
    bm_node(&b, "ConstantOfShape", "n1", "s", "y", "");
    bm_node(&b, "Transpose", "n2", "w", "z", "");
    const oq_given_shape given[] = {{OQ_S("x"), (const int64_t[]){2, 3, 5}, 3},
                                    {OQ_S("w"), (const int64_t[]){3}, 1}};
    oq_shape_options o = {.symbolic = true, .given = given, .n_given = 2};
    oq_shapes *s = infer(&b, &o);
    IS(s, "y", "FLOAT[2,3,5]");
    IS(s, "z", "FLOAT[k,3]"); /* another rank: what is declared stays */
    oq_shapes_free(s);
    bm_end(&b);
}

static void branches(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "c", OQ_BOOL, "");
    bm_input(&b, "x", OQ_FLOAT, "n,4");
    bm_raw(&b, "yes", OQ_BOOL, "", "\1", 1);
    for (int known = 0; known < 2; known++) {
        oq_node *n =
            bm_node(&b, "If", known ? "if1" : "if0", known ? "yes" : "c", known ? "k" : "y", "");
        oq_graph *around = bm_enter(&b, n, "then_branch");
        bm_node(&b, "Relu", "r", "x", known ? "tk" : "ty", "");
        bm_output(&b, known ? "tk" : "ty", OQ_FLOAT, NULL);
        bm_leave(&b, around);
        around = bm_enter(&b, n, "else_branch");
        bm_node(&b, "Concat", "cc", "x x", known ? "ek" : "ey", "axis=1");
        bm_output(&b, known ? "ek" : "ey", OQ_FLOAT, NULL);
        bm_leave(&b, around);
    }
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "y", "FLOAT[n,If_0_o0__d1]");
    IS(s, "k", "FLOAT[n,4]");
    const oq_graph *inner = b.g->node.v[0]->attribute.v[1]->g;
    IS_IN(s, inner, "ey", "FLOAT[n,8]");
    IS_IN(s, inner, "x", "FLOAT[n,4]");
    oq_shapes_free(s);
    s = infer(&b, NULL);
    IS(s, "y", "FLOAT[n,unk__0]");
    oq_shapes_free(s);
    bm_end(&b);
}

/* A loop that appends to one value, keeps another, and scans. */
static void loops(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n,4");
    bm_i64(&b, "trips", "", (const int64_t[]){7});
    bm_raw(&b, "yes", OQ_BOOL, "", "\1", 1);
    oq_node *n = bm_node(&b, "Loop", "loop", "trips yes x x", "grown same rows", "");
    oq_graph *around = bm_enter(&b, n, "body");
    bm_input(&b, "i", OQ_INT64, "");
    bm_input(&b, "go", OQ_BOOL, "");
    bm_input(&b, "g", OQ_FLOAT, NULL);
    bm_input(&b, "k", OQ_FLOAT, NULL);
    bm_node(&b, "Identity", "id", "go", "go2", "");
    bm_node(&b, "Concat", "cc", "g x", "g2", "axis=0");
    bm_node(&b, "Relu", "r", "k", "k2", "");
    bm_node(&b, "Neg", "ng", "k", "row", "");
    bm_output(&b, "go2", OQ_BOOL, "");
    bm_output(&b, "g2", OQ_FLOAT, NULL);
    bm_output(&b, "k2", OQ_FLOAT, NULL);
    bm_output(&b, "row", OQ_FLOAT, NULL);
    bm_leave(&b, around);
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "grown", "FLOAT[Loop_0_o0__d0,4]");
    IS(s, "same", "FLOAT[n,4]");
    IS(s, "rows", "FLOAT[7,n,4]");
    oq_shapes_free(s);
    s = infer(&b, NULL);
    IS(s, "grown", "FLOAT");
    IS(s, "rows", "FLOAT");
    oq_shapes_free(s);
    bm_end(&b);
}

static void scans(void **state) {
    (void)state;
    for (int old = 0; old < 2; old++) {
        bm b;
        bm_begin(&b, NULL, old ? 8 : 17);
        bm_input(&b, "h0", OQ_FLOAT, old ? "n,4" : "4");
        bm_input(&b, "xs", OQ_FLOAT, old ? "n,t,4" : "t,4");
        oq_node *n =
            bm_node(&b, "Scan", "scan", old ? "_ h0 xs" : "h0 xs", "h ys", "num_scan_inputs=1");
        oq_graph *around = bm_enter(&b, n, "body");
        bm_input(&b, "h_in", OQ_FLOAT, NULL);
        bm_input(&b, "x", OQ_FLOAT, NULL);
        bm_node(&b, "Add", "a", "h_in x", "h_out", "");
        bm_node(&b, "Concat", "c", "h_out x", "y", "axis=0");
        bm_output(&b, "h_out", OQ_FLOAT, NULL);
        bm_output(&b, "y", OQ_FLOAT, NULL);
        bm_leave(&b, around);
        oq_shapes *s = infer(&b, &symbolic);
        IS(s, "h", old ? "FLOAT[n,4]" : "FLOAT[4]");
        IS(s, "ys", old ? "FLOAT[n,t,8]" : "FLOAT[t,8]");
        oq_shapes_free(s);
        bm_end(&b);
    }
}

static void sequence_map(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n,4");
    bm_node(&b, "SequenceConstruct", "s", "x x", "seq", "");
    oq_node *n = bm_node(&b, "SequenceMap", "m", "seq", "out", "");
    oq_graph *around = bm_enter(&b, n, "body");
    bm_input(&b, "e", OQ_FLOAT, NULL);
    bm_node(&b, "Transpose", "t", "e", "f", "");
    bm_output(&b, "f", OQ_FLOAT, NULL);
    bm_leave(&b, around);
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "out", "seq FLOAT[4,n]");
    oq_shapes_free(s);
    bm_end(&b);
}

static oq_function *add_function(bm *b, const char *name, const char *in, const char *out) {
    oq_function *f = OQ_NEW(b->a, oq_function);
    oq_opset *op = OQ_NEW(b->a, oq_opset);
    f->name = bm_str(b, name);
    f->domain = OQ_S("my");
    op->version = OQ_I64(17);
    assert_true(OQ_PUSH(b->a, &f->opset_import, op));
    op = OQ_NEW(b->a, oq_opset);
    op->domain = OQ_S("my");
    op->version = OQ_I64(1);
    assert_true(OQ_PUSH(b->a, &f->opset_import, op));
    assert_true(OQ_PUSH(b->a, &f->input, bm_str(b, in)));
    assert_true(OQ_PUSH(b->a, &f->output, bm_str(b, out)));
    assert_true(OQ_PUSH(b->a, &b->m->proto->functions, f));
    return f;
}

static oq_node *in_function(bm *b, oq_function *f, const char *op, const char *in,
                            const char *out) {
    oq_node *n = oq_node_new(b->a, "", OQ_S(""));
    n->op_type = bm_str(b, op);
    assert_true(oq_node_add_input(b->a, n, bm_str(b, in)));
    assert_true(oq_node_add_output(b->a, n, bm_str(b, out)));
    assert_true(OQ_PUSH(b->a, &f->node, n));
    return n;
}

static void functions(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    assert_int_equal(oq_model_set_opset(b.m, OQ_S("my"), 1, NULL), ONQ_OK);
    bm_input(&b, "x", OQ_FLOAT, "n,3,4");
    oq_function *f = add_function(&b, "Flat", "a", "z");
    assert_true(OQ_PUSH(b.a, &f->attribute, OQ_S("at")));
    oq_node *n = in_function(&b, f, "Flatten", "a", "z");
    assert_true(oq_attr_set_int(b.a, n, OQ_S("axis"), 0));
    n->attribute.v[0]->ref_attr_name = OQ_S("at");
    bm_node(&b, "Flat", "call", "x", "y", "at=2")->domain = OQ_S("my");
    bm_node(&b, "Flat", "call2", "x", "d", "")->domain = OQ_S("my");
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "y", "FLOAT[3*n,4]");
    IS(s, "d", "FLOAT[n,12]");
    oq_shapes_free(s);
    s = infer(&b, NULL);
    IS(s, "y", "FLOAT[unk__0,4]");
    oq_shapes_free(s);
    bm_end(&b);
}

/* Functions that call each other twice, forty deep: visits are limited, not 2^40. */
static void exponential_functions_end(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    assert_int_equal(oq_model_set_opset(b.m, OQ_S("my"), 1, NULL), ONQ_OK);
    bm_input(&b, "x", OQ_FLOAT, "n");
    char name[16], below[16];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "F%d", i);
        snprintf(below, sizeof below, "F%d", i - 1);
        oq_function *f = add_function(&b, name, "a", "z");
        if (i == 0) {
            in_function(&b, f, "Relu", "a", "z");
        } else {
            in_function(&b, f, below, "a", "h")->domain = OQ_S("my");
            in_function(&b, f, below, "h", "z")->domain = OQ_S("my");
        }
    }
    bm_node(&b, "F39", "call", "x", "y", "")->domain = OQ_S("my");
    /* A function that calls itself. */
    oq_function *self = add_function(&b, "Self", "a", "z");
    in_function(&b, self, "Self", "a", "z")->domain = OQ_S("my");
    bm_node(&b, "Self", "again", "x", "w", "")->domain = OQ_S("my");
    oq_shapes *s = infer(&b, &symbolic);
    oq_shapes_free(s);
    bm_end(&b);
}

static void nested_loops_end(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n");
    oq_graph *around[24];
    char carry[16];
    for (int d = 0; d < 24; d++) {
        snprintf(carry, sizeof carry, "_ _ %s", d == 0 ? "x" : "v");
        oq_node *n = bm_node(&b, "Loop", "loop", carry, "w", "");
        around[d] = bm_enter(&b, n, "body");
        bm_input(&b, "i", OQ_INT64, "");
        bm_input(&b, "c", OQ_BOOL, "");
        bm_input(&b, "v", OQ_FLOAT, NULL);
        bm_node(&b, "Identity", "id", "c", "c2", "");
        bm_output(&b, "c2", OQ_BOOL, "");
    }
    bm_node(&b, "Concat", "cc", "v x", "w", "axis=0");
    for (int d = 23; d >= 0; d--) {
        bm_output(&b, "w", OQ_FLOAT, NULL);
        bm_leave(&b, around[d]);
    }
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "w", "FLOAT[Loop_0_o0__d0]");
    oq_shapes_free(s);
    bm_end(&b);
}

/* What the file says where inference finds nothing; never against what it finds. */
static void hints(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n,4");
    bm_node(&b, "Mystery", "m", "x", "y", "")->domain = OQ_S("some.where");
    bm_node(&b, "Relu", "r", "y", "z", "");
    bm_node(&b, "Relu", "r2", "x", "stale", "");
    bm_info(&b, "y", OQ_FLOAT, "n,unk__4,8");
    bm_info(&b, "stale", OQ_FLOAT, "1,4");
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "z", "FLOAT[n,Mystery_0_o0__d1,8]");
    IS(s, "stale", "FLOAT[n,4]");
    oq_shape_report r;
    oq_shapes_report(s, &r);
    assert_ptr_equal(r.first_no_rule, b.g->node.v[0]);
    assert_int_equal(r.n_values, 3);
    oq_shapes_free(s);
    s = infer(&b, NULL);
    IS(s, "z", "FLOAT[n,unk__4,8]");
    IS(s, "stale", "FLOAT[1,4]");
    oq_shapes_free(s);
    bm_end(&b);
}

static void plain_knows_no_contrib(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    assert_int_equal(oq_model_set_opset(b.m, OQ_S("com.microsoft"), 1, NULL), ONQ_OK);
    bm_input(&b, "x", OQ_FLOAT, "n,4");
    bm_node(&b, "Gelu", "g", "x", "y", "")->domain = OQ_S("com.microsoft");
    bm_node(&b, "Relu", "r", "y", "z", "");
    oq_shapes *s = infer(&b, NULL);
    assert_int_equal(oq_shapes_elem_type(s, NULL, OQ_S("y")), 0);
    assert_int_equal(oq_shapes_elem_type(s, NULL, OQ_S("z")), 0);
    assert_int_equal(oq_shapes_elem_type(s, NULL, OQ_S("x")), OQ_FLOAT);
    oq_shapes_free(s);
    s = infer(&b, &symbolic);
    oq_tensor_info info;
    assert_true(oq_shapes_tensor(s, NULL, OQ_S("z"), &info));
    assert_int_equal(info.rank, 2);
    assert_false(info.is_fixed);
    assert_false(oq_sdim_is_num(info.dims[0]));
    assert_true(oq_sdim_is(info.dims[1], 4));
    assert_false(oq_shapes_tensor(s, NULL, OQ_S("nothing"), &info));
    oq_shapes_free(s);
    bm_end(&b);
}

static void order_of_nodes(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "n,4");
    bm_node(&b, "Relu", "second", "y", "z", "");
    bm_node(&b, "Relu", "first", "x", "y", "");
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "z", "FLOAT[n,4]");
    oq_shapes_free(s);
    /* onnx goes in the order of the file. */
    s = infer(&b, NULL);
    IS(s, "z", "?");
    oq_shapes_free(s);
    bm_end(&b);
}

static void open_input_dims(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "-1,?,n");
    bm_node(&b, "Relu", "r", "x", "y", "");
    oq_shapes *s = infer(&b, &symbolic);
    IS(s, "y", "FLOAT[x_d0,x_d1,n]");
    oq_shapes_free(s);
    s = infer(&b, NULL);
    IS(s, "y", "FLOAT[-1,unk__0,n]");
    oq_shapes_free(s);
    bm_end(&b);
}

static void strict_mode(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    oq_shapes *s = NULL;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "2,4");
    bm_input(&b, "y", OQ_FLOAT, "3,4");
    bm_node(&b, "Add", "sum", "x y", "z", "");
    oq_shape_options opts = {.strict = true};
    assert_fails(oq_shapes_infer(b.m, &opts, &s, &err), ONQ_E_INVALID, err, "node 'sum' (Add)");
    assert_null(s);
    opts.strict = false;
    s = infer(&b, &opts);
    IS(s, "z", "?");
    oq_shapes_free(s);
    bm_end(&b);
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "2,4");
    bm_node(&b, "Mystery", "what", "x", "z", "")->domain = OQ_S("some.where");
    opts = (oq_shape_options){.symbolic = true, .strict = true};
    assert_fails(oq_shapes_infer(b.m, &opts, &s, &err), ONQ_E_UNSUPPORTED, err, "'what' (Mystery)");
    bm_end(&b);
}

static void writing(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    oq_value_info *x = bm_input(&b, "x", OQ_FLOAT, "?,4");
    x->type->denotation = OQ_S("TENSOR");
    x->type->tensor_type->shape->dim.v[0]->denotation = OQ_S("DATA_BATCH");
    bm_node(&b, "Relu", "r", "x", "y", "");
    bm_node(&b, "Concat", "c", "y y", "z", "axis=0");
    oq_value_info *out = bm_output(&b, "z", OQ_FLOAT, "?,4");
    oq_shapes *s = infer(&b, &symbolic);
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_shapes_write(s, b.m, &err), err);
    oq_shapes_free(s); /* texts are the model's now */
    const oq_dim *d = x->type->tensor_type->shape->dim.v[0];
    assert_true(oq_str_is(d->dim_param, "x_d0"));
    assert_true(oq_str_is(d->denotation, "DATA_BATCH"));
    assert_true(oq_str_is(x->type->denotation, "TENSOR"));
    assert_true(oq_str_is(out->type->tensor_type->shape->dim.v[0]->dim_param, "2*x_d0"));
    assert_int_equal(b.g->value_info.n, 2); /* the output too, as the reference lists it */
    assert_true(oq_str_is(b.g->value_info.v[0]->name, "y"));
    assert_true(oq_str_is(b.g->value_info.v[1]->name, "z"));
    bm_end(&b);
}

static void merging(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "a,4");
    bm_input(&b, "y", OQ_FLOAT, "b,4");
    bm_input(&b, "w", OQ_FLOAT, "c,5");
    bm_node(&b, "Add", "n", "x y", "z", "");
    bm_node(&b, "MatMul", "m", "z w", "v", "");
    const oq_shape_options opts = {.symbolic = true, .auto_merge = true};
    oq_shapes *s = infer(&b, &opts);
    IS(s, "z", "FLOAT[a,4]");
    IS(s, "y", "FLOAT[a,4]");
    IS(s, "w", "FLOAT[4,5]");
    oq_shapes_free(s);
    s = infer(&b, &symbolic);
    IS(s, "z", "FLOAT[Max(a, b),4]");
    IS(s, "v", "FLOAT[Max(a, b),5]");
    oq_shapes_free(s);
    bm_end(&b);
}

/* Nothing grows without end: names, terms, factors, nesting. */
static void hostile_expressions(void **state) {
    (void)state;
    bm b;
    char name[32], in[80], out[32];
    bm_begin(&b, NULL, 17);
    bm_input(&b, "t0", OQ_FLOAT, "a,b");
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "x%d", i);
        snprintf(in, sizeof in, "d%d,e%d", i, i);
        bm_input(&b, name, OQ_FLOAT, in);
        snprintf(in, sizeof in, "t%d %s", i, name);
        snprintf(out, sizeof out, "t%d", i + 1);
        bm_node(&b, i % 2 ? "Concat" : "MatMul", "n", in, out, i % 2 ? "axis=0" : "");
    }
    bm_node(&b, "Flatten", "f", "t300", "flat", "axis=0");
    oq_shapes *s = infer(&b, &symbolic);
    const oq_vtype *t = oq_shapes_find(s, NULL, OQ_S("flat"));
    assert_non_null(t);
    assert_int_equal(t->rank, 2);
    oq_shapes_free(s);
    bm_end(&b);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void long_chains_are_linear(void **state) {
    (void)state;
    static char names[100002][16];
    for (int i = 0; i <= 100001; i++)
        snprintf(names[i], sizeof names[i], "t%d", i);
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "t0", OQ_FLOAT, "n,3,h,w");
    for (int i = 0; i < 100000; i++) {
        const oq_str in = oq_str_of(names[i]), out = oq_str_of(names[i + 1]);
        oq_node *n = oq_node_make(b.a, "Relu", OQ_S(""), &in, 1, &out, 1);
        assert_true(n != NULL && oq_graph_add_node(b.a, b.g, n));
    }
    for (int plain = 0; plain < 2; plain++) {
        const double start = seconds();
        oq_shapes *s = infer(&b, plain ? NULL : &symbolic);
        const double took = seconds() - start;
        IS(s, "t100000", "FLOAT[n,3,h,w]");
        oq_shapes_free(s);
        /* About 0.1 s; sanitizers and busy machines take longer, quadratic time would take
         * minutes. */
        assert_true(took < 10);
    }
    bm_end(&b);
}

static void fill(bm *b) {
    static const int64_t rest[] = {0, -1}, zero[] = {0};
    bm_input(b, "x", OQ_FLOAT, "n,3,?");
    bm_i64(b, "rest", "2", rest);
    bm_i64(b, "zero", "1", zero);
    bm_node(b, "Shape", "n0", "x", "s", "");
    bm_node(b, "Gather", "n1", "s zero", "g", "");
    bm_node(b, "Concat", "n2", "g rest", "c", "axis=0");
    bm_node(b, "Reshape", "n3", "x rest", "y", "");
    bm_node(b, "Concat", "n4", "y y", "z", "axis=1");
    bm_node(b, "MaxPool", "n5", "x", "p", "kernel_shape=[3] strides=[2]");
    oq_node *n = bm_node(b, "If", "n6", "q", "w", "");
    for (int k = 0; k < 2; k++) {
        oq_graph *around = bm_enter(b, n, k ? "else_branch" : "then_branch");
        bm_node(b, "Relu", "r", "z", k ? "e" : "t", "");
        bm_output(b, k ? "e" : "t", OQ_FLOAT, NULL);
        bm_leave(b, around);
    }
}

static onq_code infer_and_write(bm *b, void *ctx, onq_error *err) {
    const oq_shape_options *opts = ctx;
    oq_shapes *s = NULL;
    onq_code rc = oq_shapes_infer(b->m, opts, &s, err);
    if (rc == ONQ_OK)
        rc = oq_shapes_write(s, b->m, err);
    oq_shapes_free(s);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    oq_shape_options opts = {.symbolic = true, .auto_merge = true};
    assert_true(bm_sweep(17, fill, infer_and_write, &opts) > 5);
    opts = (oq_shape_options){.data_prop = true};
    assert_true(bm_sweep(17, fill, infer_and_write, &opts) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_become_shapes),
        cmocka_unit_test(float_arithmetic_stays_exact),
        cmocka_unit_test(given_dims),
        cmocka_unit_test(branches),
        cmocka_unit_test(loops),
        cmocka_unit_test(scans),
        cmocka_unit_test(sequence_map),
        cmocka_unit_test(functions),
        cmocka_unit_test(exponential_functions_end),
        cmocka_unit_test(nested_loops_end),
        cmocka_unit_test(hints),
        cmocka_unit_test(plain_knows_no_contrib),
        cmocka_unit_test(order_of_nodes),
        cmocka_unit_test(open_input_dims),
        cmocka_unit_test(strict_mode),
        cmocka_unit_test(writing),
        cmocka_unit_test(merging),
        cmocka_unit_test(hostile_expressions),
        cmocka_unit_test(long_chains_are_linear),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("infer", tests, NULL, NULL);
}
