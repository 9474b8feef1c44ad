/*
 * test_prep.c — the steps of preprocessing: the mark, Resize of old opsets, and the runtime's
 * optimisation both ways (a file without a name; external data, as past 2 GB), with nothing left in
 * the folder. The runtime's part is skipped where it is not installed.
 */
#include "prepare/preprocess.h"

#include "build_model.h"
#include "engine/ort.h"
#include "onnx/check/check.h"
#include "prepare/old_resize.h"
#include "prepare/qnn.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static onq_error err;

/* After a Conv a BatchNormalization that the runtime puts into it, and a MatMul of some size. */
static void fill(bm *b) {
    static const float one[] = {1, 2, 3, 4};
    bm_input(b, "x", OQ_FLOAT, "N,3,8,8");
    bm_weight(b, "w", "4,3,3,3", 1);
    for (const char *const *name = (const char *const[]){"s", "o", "m", "v", NULL}; *name; name++)
        bm_f32(b, *name, "4", one);
    bm_weight(b, "k", "6,300", 2);
    bm_node(b, "Conv", "conv", "x w", "c", "");
    bm_node(b, "BatchNormalization", "bn", "c s o m v", "n", "");
    bm_node(b, "MatMul", "mm", "n k", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

static void runtime(void **state) {
    (void)state;
    scratch dir;
    char order[2][64];
    oq_engine *engine = NULL;
    scratch_init(&dir);
    for (int external = 0; external < 2; external++) {
        bm b;
        bm_begin(&b, NULL, 13);
        fill(&b);
        if (engine == NULL && oq_ort_open(b.env, NULL, &engine, &err) != ONQ_OK) {
            printf("skipped: %s\n", err.text);
            bm_end(&b);
            scratch_remove(&dir);
            skip();
        }
        const oq_session_options so = {.n_threads = 1};
        oq_model *m = b.m;
        assert_ok(oq_prep_optimize_ort(engine, &so, scratch_path(&dir, "out.onnx"),
                                       external ? 1000 : 0, &m, &err),
                  err);
        if (!HELD_FILES_KEEP_NAMES)
            assert_int_equal(entry_count(dir.dir), 0);
        bm_order(m->proto->graph, order[external], sizeof order[external]);
        size_t n_external = 0;
        for (size_t i = 0; i < m->proto->graph->initializer.n; i++) {
            oq_tensor *t = m->proto->graph->initializer.v[i];
            oq_span s;
            n_external += oq_tensor_is_external(t);
            assert_ok(oq_model_data(m, t, &s, &err), err);
        }
        assert_int_equal(n_external, external); /* k */
        assert_ok(oq_model_check(m, &err), err);
        const char *out = scratch_path(&dir, "saved.onnx");
        assert_ok(oq_model_save(m, out, NULL, &err), err);
        if (!HELD_FILES_KEEP_NAMES)
            assert_int_equal(entry_count(dir.dir), 1);
        unlink(out);
        b.m = m; /* the old one is gone */
        oq_engine_close(engine);
        engine = NULL;
        bm_end(&b);
        assert_int_equal(entry_count(dir.dir), 0);
    }
    assert_string_equal(order[0], order[1]);
    assert_string_equal(order[0], "conv mm");
    scratch_remove(&dir);
}

/* A model that the runtime refuses stays as it is, and nothing stays in the folder. */
static void runtime_refuses(void **state) {
    (void)state;
    scratch dir;
    bm b;
    oq_engine *engine = NULL;
    scratch_init(&dir);
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "4");
    bm_node(&b, "NoSuchOperator", "n", "x", "y", "");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    if (oq_ort_open(b.env, NULL, &engine, &err) == ONQ_OK) {
        for (uint64_t most = 0; most < 2; most++) {
            oq_model *m = b.m;
            assert_fails(oq_prep_optimize_ort(engine, &(oq_session_options){.n_threads = 1},
                                              scratch_path(&dir, "out.onnx"), most, &m, &err),
                         ONQ_E_RUNTIME, err, "NoSuchOperator");
            assert_ptr_equal(m, b.m);
            assert_int_equal(entry_count(dir.dir), 0);
        }
    }
    oq_engine_close(engine);
    bm_end(&b);
    scratch_remove(&dir);
}

static void mark(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 13);
    assert_ok(oq_model_set_metadata(b.m, OQ_S("author"), OQ_S("me"), &err), err);
    assert_ok(oq_prep_mark(b.m, &err), err);
    assert_ok(oq_prep_mark(b.m, &err), err);
    assert_int_equal(b.m->proto->metadata_props.n, 2);
    assert_true(oq_str_is(b.m->proto->metadata_props.v[0]->key, "onnx.quant.pre_process"));
    assert_true(oq_str_is(b.m->proto->metadata_props.v[0]->value, "onnxruntime.quant"));
    /* What somebody else wrote under the key stays. */
    assert_ok(oq_prep_mark_first(b.m, OQ_S("author"), OQ_S("you"), &err), err);
    assert_true(oq_str_is(b.m->proto->metadata_props.v[0]->value, "me"));
    bm_end(&b);
}

static oq_str nearest_of(const oq_node *n) {
    return oq_attr_str(n, "nearest_mode", "");
}

static void resize(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 11);
    bm_input(&b, "x", OQ_FLOAT, "1,1,5,4");
    static const float twice[] = {1, 1, 2, 0.5f}, less[] = {1, 1, 0.6f, 1},
                       both[] = {1, 1, 0.6f, 1.5f};
    bm_f32(&b, "two", "4", twice);
    bm_f32(&b, "less", "4", less);
    bm_f32(&b, "both", "4", both);
    oq_node *given =
        bm_node(&b, "Resize", "given", "x r s", "z", "coordinate_transformation_mode='half_pixel'");
    oq_node *plain = bm_node(&b, "Resize", "plain", "x r two", "v", "");
    oq_node *linear = bm_node(&b, "Resize", "linear", "x r two", "u", "mode='linear'");
    oq_node *small = bm_node(&b, "Resize", "small", "x r less", "w", "");
    oq_node *mixed = bm_node(&b, "Resize", "mixed", "x r both", "y", "");
    oq_node *computed = bm_node(&b, "Resize", "computed", "x r s", "q", "");
    assert_ok(oq_keep_old_resize(b.m, &err), err);
    assert_int_equal(given->attribute.n, 1);
    assert_int_equal(plain->attribute.n, 0);
    assert_true(oq_str_is(oq_attr_str(linear, "coordinate_transformation_mode", ""), "asymmetric"));
    assert_true(oq_str_is(nearest_of(small), "ceil"));
    assert_true(oq_str_is(nearest_of(mixed), "floor"));
    assert_true(oq_str_is(mixed->input.v[0], "y_smaller"));
    assert_true(oq_str_is(computed->input.v[2], "s_larger"));
    /* One node before `mixed`, and Min, Max and one node before `computed`. */
    assert_int_equal(b.m->proto->graph->node.n, 6 + 1 + 3);
    assert_true(oq_str_is(nearest_of(b.m->proto->graph->node.v[4]), "ceil"));
    assert_true(oq_str_is(b.m->proto->graph->node.v[6]->op_type, "Min"));
    bm_end(&b);
}

/* Where the larger axes keep their size, the second node would copy. */
static void resize_refused(void **state) {
    (void)state;
    bm b;
    bm_begin(&b, NULL, 11);
    bm_input(&b, "x", OQ_FLOAT, "1,1,5,4");
    static const float both[] = {1, 1, 0.6f, 1.1f};
    bm_f32(&b, "both", "4", both);
    bm_node(&b, "Resize", "mixed", "x r both", "y", "");
    assert_int_equal(oq_keep_old_resize(b.m, &err), ONQ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'mixed'"));
    bm_end(&b);
}

static void fill_gelu(bm *b) {
    static const float half = 0.5f, unit = 1, root = 1.41421356f;
    bm_input(b, "x", OQ_FLOAT, "N,3,8");
    bm_f32(b, "half", "", &half);
    bm_f32(b, "unit", "", &unit);
    bm_f32(b, "root", "", &root);
    bm_node(b, "Div", "div", "x root", "d", "");
    bm_node(b, "Erf", "erf", "d", "e", "");
    bm_node(b, "Add", "add", "e unit", "f", "");
    bm_node(b, "Mul", "mul", "x f", "g", "");
    bm_node(b, "Mul", "", "g half", "h", "");
    bm_node(b, "Relu", "", "h", "y", "");
    bm_output(b, "y", OQ_FLOAT, "N,3,8");
}

static onq_code prepare_qnn(oq_model *m, oq_qnn_report *r, onq_error *e) {
    static const int64_t dims[] = {2, 3, 8};
    const oq_str in = OQ_S("x"), out = OQ_S("y");
    const oq_qnn_shape shape = {in, dims, 3};
    const oq_qnn_options o = {.inputs_channel_last = &in,
                              .n_inputs_channel_last = 1,
                              .outputs_channel_last = &out,
                              .n_outputs_channel_last = 1,
                              .exclude_initializer_from_input = true,
                              .fuse_layernorm = true,
                              .shapes = &shape,
                              .n_shapes = 1};
    return oq_qnn_prepare(m, &o, r, e);
}

static void qnn(void **state) {
    (void)state;
    bm b;
    char order[128];
    oq_qnn_report r;
    bm_begin(&b, NULL, 17);
    fill_gelu(&b);
    assert_ok(prepare_qnn(b.m, &r, &err), err);
    assert_int_equal(r.n_gelu, 1);
    assert_int_equal(r.n_named, 1);
    assert_string_equal(bm_order(b.g, order, sizeof order),
                        "Transpose_channel_0 Gelu_fused_Erf_0 qnn_preproc_node_0 "
                        "Transpose_channel_1");
    assert_int_equal(b.g->initializer.n, 0);
    const oq_shape *s = b.g->output.v[0]->type->tensor_type->shape;
    assert_int_equal(s->dim.v[0]->dim_value.v, 2);
    assert_int_equal(s->dim.v[1]->dim_value.v, 8);
    assert_int_equal(s->dim.v[2]->dim_value.v, 3);
    assert_ok(oq_model_check(b.m, &err), err);
    bm_end(&b);
}

static onq_code prepare(bm *b, void *ctx, onq_error *e) {
    (void)ctx;
    OQ_TRY(prepare_qnn(b->m, NULL, e));
    OQ_TRY(oq_prep_shapes(b->m, &(oq_shape_options){.symbolic = true}, NULL, e));
    return oq_prep_mark(b->m, e);
}

static void oom(void **state) {
    (void)state;
    bm_sweep(17, fill_gelu, prepare, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runtime), cmocka_unit_test(runtime_refuses), cmocka_unit_test(mark),
        cmocka_unit_test(resize),  cmocka_unit_test(resize_refused),  cmocka_unit_test(qnn),
        cmocka_unit_test(oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
