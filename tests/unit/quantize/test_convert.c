/*
 * test_convert.c — quantized models in another form: every row of lift.def, integer products, packed
 * weights by hand-worked numbers, pairs and what they clipped, contradictions, and running out of
 * memory. What ONNX Runtime computes before and after: tests/parity/test_convert.py.
 */
#include "quantize/convert/cv.h"
#include "quantize/convert/cv_ranges.h"
#include "quantize/number/code_book.h"
#include "quantize/number/qparam.h"

#include "build_model.h"
#include "compute.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>

static const float half[1] = {0.5f}, quarter[1] = {0.25f}, two[2] = {0.5f, 0.25f};
static const uint8_t none8[1] = {0};
static const int8_t none[2] = {0, 0}, w4[4] = {1, -2, 3, 4};

static onq_code convert(bm *b, oq_convert_to to, oq_convert_job *job, onq_error *err) {
    const oq_convert_clips clips = job->clips;
    *job = (oq_convert_job){.model = b->m,
                            .to = to,
                            .clips = clips,
                            .lossy = job->lossy,
                            .partial = job->partial,
                            .plan = job->plan};
    return oq_convert_run(job, err);
}

static void must(bm *b, oq_convert_to to, oq_convert_job *job) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(convert(b, to, job, &err), err);
}

/* A node of com.microsoft. */
static oq_node *contrib(bm *b, const char *op, const char *name, const char *in, const char *out,
                        const char *attributes) {
    oq_node *n = bm_node(b, op, name, in, out, attributes);
    if (n != NULL)
        n->domain = OQ_S(OQ_MICROSOFT);
    return n;
}

static size_t count(const oq_graph *g, const char *type) {
    size_t n = 0;
    for (size_t i = 0; i < g->node.n; i++)
        n += oq_str_is(g->node.v[i]->op_type, type);
    return n;
}

static const oq_node *find(const oq_graph *g, const char *type) {
    for (size_t i = 0; i < g->node.n; i++)
        if (oq_str_is(g->node.v[i]->op_type, type))
            return g->node.v[i];
    return NULL;
}

static const float *floats(bm *b, const char *name, size_t n) {
    oq_tensor *t = oq_graph_find_init(b->g, oq_str_of(name));
    onq_error err = ONQ_ERROR_INIT;
    float *v = NULL;
    size_t have = 0;
    if (t == NULL)
        fail_msg("there is no initializer '%s'", name);
    assert_ok(oq_tensor_floats(b->m, t, b->a, &v, &have, &err), err);
    assert_int_equal(have, n);
    return v;
}

/* ---- every row ---- */

/* A node of the row: each operand an input of the model, with a scale and a zero point of its own. */
static void fill_row(bm *b, const oq_cv_row *row, size_t *n_operands) {
    oq_node *n = bm_node(b, row->type, "node", "", "out", "");
    n->domain = oq_str_of(row->domain);
    *n_operands = 0;
    size_t n_slots = row->output < 0 ? 0 : (size_t)row->output + 2;
    for (size_t i = 0; i < OQ_CV_OPERANDS; i++) {
        const oq_cv_slot *s = &row->in[i];
        const int last[] = {s->data, s->scale, s->zero, s->kind == OQ_SLOT_REST ? s->data + 5 : 0};
        for (size_t k = 0; k < OQ_COUNT(last) && s->kind != OQ_SLOT_NONE; k++)
            n_slots = last[k] + 1 > (int)n_slots ? (size_t)last[k] + 1 : n_slots;
        *n_operands +=
            s->kind == OQ_SLOT_REST                                                         ? 2
            : s->kind == OQ_SLOT_IN || s->kind == OQ_SLOT_WEIGHT || s->kind == OQ_SLOT_BIAS ? 1
                                                                                            : 0;
    }
    for (size_t i = 0; i < n_slots; i++) {
        char name[32];
        snprintf(name, sizeof name, "in%zu", i);
        bm_f32(b, name, "", half); /* a constant does for all of them */
        assert_true(oq_node_add_input(b->a, n, bm_str(b, name)));
    }
    bm_output(b, "out", OQ_UINT8, NULL);
}

static void rows(void **state) {
    (void)state;
    for (size_t i = 0; i < oq_cv_row_count; i++) {
        const oq_cv_row *row = &oq_cv_rows[i];
        bm b;
        oq_convert_job job = {0};
        size_t operands = 0;
        bm_begin(&b, NULL, 13);
        fill_row(&b, row, &operands);
        must(&b, OQ_TO_QDQ, &job);
        const oq_node *made = find(b.g, row->float_type);
        if (made == NULL || count(b.g, row->type) != 0)
            fail_msg("%s did not become %s", row->type, row->float_type);
        assert_true(oq_str_is(oq_domain_plain(made->domain), row->float_domain));
        assert_int_equal(count(b.g, "DequantizeLinear"), operands);
        assert_int_equal(count(b.g, "QuantizeLinear"), row->output >= 0);
        assert_int_equal(job.n_operators, 1);
        if (row->output >= 0) {
            const oq_node *q = find(b.g, "QuantizeLinear");
            char scale[32];
            snprintf(scale, sizeof scale, "in%d", row->output);
            assert_true(oq_str_eq(q->input.v[0], made->output.v[0]));
            assert_true(oq_str_is(q->input.v[1], scale));
            assert_true(oq_str_is(q->output.v[0], "out"));
        }
        bm_end(&b);
    }
}

/* ---- every row, from right to left ---- */

static const uint8_t middle[1] = {100};

/* The float operator of the row between pairs: operands t0, t1 ... dequantized, its result quantized. */
static void fill_float(bm *b, const oq_cv_row *row) {
    static const uint8_t bytes[4] = {90, 100, 110, 120};
    static const int32_t bias[2] = {3, -4}, nothing[1] = {0};
    bm_f32(b, "s", "", half);
    bm_f32(b, "ss", "", quarter); /* the product of two such scales */
    bm_raw(b, "z", OQ_UINT8, "", middle, 1);
    bm_raw(b, "z32", OQ_INT32, "", nothing, sizeof nothing);
    bm_raw(b, "data", OQ_UINT8, "2,2", bytes, 4);
    bm_raw(b, "bias", OQ_INT32, "2", bias, sizeof bias);
    bm_node(b, "DequantizeLinear", "", "data s z", "t", "");
    bm_node(b, "DequantizeLinear", "", "bias ss z32", "c", "");
    oq_node *n = bm_node(b, row->float_type, "node", "", "f", "");
    for (size_t i = 0; i < OQ_CV_OPERANDS && row->in[i].kind != OQ_SLOT_NONE; i++)
        for (int k = 0; k < (row->in[i].kind == OQ_SLOT_REST ? 2 : 1); k++)
            assert_true(oq_node_add_input(b->a, n,
                                          row->in[i].kind == OQ_SLOT_BIAS   ? OQ_S("c")
                                          : row->in[i].kind == OQ_SLOT_ASIS ? OQ_S("data")
                                                                            : OQ_S("t")));
    bm_node(b, "QuantizeLinear", "", "f s z", "out", "");
    bm_output(b, "out", OQ_UINT8, NULL);
}

static void rows_back(void **state) {
    (void)state;
    for (size_t i = 0; i < oq_cv_row_count; i++) {
        const oq_cv_row *row = &oq_cv_rows[i];
        const bool lowered = row->output >= 0 && strcmp(row->float_type, "ReduceMean") != 0;
        bm b;
        oq_convert_job job = {.partial = !lowered};
        if (row->output < 0)
            continue;
        bm_begin(&b, NULL, 13);
        onq_error err = ONQ_ERROR_INIT;
        fill_float(&b, row);
        assert_ok(oq_graph_prune(b.m, b.g, &err), err); /* the bias of a row without one */
        must(&b, OQ_TO_QOPERATOR, &job);
        if ((find(b.g, row->type) != NULL) != lowered)
            fail_msg("%s became no %s", row->float_type, row->type);
        assert_int_equal(b.g->node.n, lowered ? 1 : 3);
        const oq_node *made = b.g->node.v[lowered ? 0 : 1];
        if (lowered) {
            assert_true(oq_str_is(made->input.v[row->output], "s"));
            assert_true(oq_str_is(made->input.v[row->output + 1], "z"));
            assert_true(oq_str_is(made->output.v[0], "out"));
        }
        must(&b, OQ_TO_QDQ, &job);
        assert_non_null(find(b.g, row->float_type));
        assert_null(find(b.g, row->type));
        bm_end(&b);
    }
}

/* A bias of another scale, a type without kernels, a second reader: refused, or the pairs stay. */
static void rows_stay(void **state) {
    (void)state;
    static const char *const says[] = {
        "node 'node' (Conv): its bias is not int32, with the product of both scales as its scale "
        "(--partial keeps the pairs of such nodes, which compute the same)",
        "node 'node' (Conv): its result is not quantized, to 8 bits and for no other reader "
        "(--partial keeps the pairs of such nodes, which compute the same)",
        "node 'node' (Conv): its result is not quantized, to 8 bits and for no other reader "
        "(--partial keeps the pairs of such nodes, which compute the same)"};
    static const float other[1] = {0.3f};
    static const uint16_t wide[1] = {7};
    for (int what = 0; what < 3; what++) {
        bm b;
        oq_convert_job job = {0};
        onq_error err = ONQ_ERROR_INIT;
        const oq_cv_row *row = &oq_cv_rows[0];
        while (strcmp(row->type, "QLinearConv") != 0)
            row++;
        bm_begin(&b, NULL, 13);
        fill_float(&b, row);
        if (what == 0) {
            assert_ok(oq_tensor_set_raw(b.a, oq_graph_find_init(b.g, OQ_S("ss")), other,
                                        sizeof other, &err),
                      err);
        } else if (what == 1) {
            oq_tensor *t = oq_graph_find_init(b.g, OQ_S("z"));
            t->data_type.v = OQ_UINT16;
            assert_ok(oq_tensor_set_raw(b.a, t, wide, sizeof wide, &err), err);
        } else {
            bm_node(&b, "Neg", "neg", "f", "more", "");
            bm_output(&b, "more", OQ_FLOAT, NULL);
        }
        assert_fails(convert(&b, OQ_TO_QOPERATOR, &job, &err), ONQ_E_UNSUPPORTED, err, says[what]);
        job.partial = true;
        must(&b, OQ_TO_QOPERATOR, &job);
        assert_int_equal(job.n_operators, 0);
        assert_int_equal(job.n_stay, 1);
        assert_int_equal(count(b.g, "Conv"), 1);
        bm_end(&b);
    }
}

/* ---- pairs ---- */

static void params(bm *b) {
    bm_f32(b, "s", "", half);
    bm_f32(b, "s2", "", quarter);
    bm_raw(b, "z", OQ_UINT8, "", middle, 1);
    bm_raw(b, "z0", OQ_UINT8, "", none8, 1);
    bm_raw(b, "zw", OQ_INT8, "", none, 1);
    bm_raw(b, "w_quantized", OQ_INT8, "2,2", w4, 4);
}

/* x -> pair -> MatMul with a quantized weight -> pair -> y. `after` is the output's zero point. */
static void fill_pairs(bm *b, const char *after) {
    char words[32];
    params(b);
    bm_input(b, "x", OQ_FLOAT, "1,2");
    bm_node(b, "QuantizeLinear", "q", "x s z", "x_q", "");
    bm_node(b, "DequantizeLinear", "dq", "x_q s z", "x_d", "");
    bm_node(b, "DequantizeLinear", "dw", "w_quantized s zw", "w_d", "");
    bm_node(b, "MatMul", "product", "x_d w_d", "t", "");
    snprintf(words, sizeof words, "t s2 %s", after);
    bm_node(b, "QuantizeLinear", "q2", words, "t_q", "");
    snprintf(words, sizeof words, "t_q s2 %s", after);
    bm_node(b, "DequantizeLinear", "dq2", words, "y", "");
    bm_output(b, "y", OQ_FLOAT, "1,2");
}

static void fill_plain(bm *b) {
    fill_pairs(b, "z");
}

static void to_float(void **state) {
    (void)state;
    bm b;
    oq_convert_job job = {0};
    computed before;
    bm_begin(&b, NULL, 13);
    fill_plain(&b);
    compute(&b, &before);
    must(&b, OQ_TO_FLOAT, &job);
    assert_int_equal(b.g->node.n, 1);
    assert_int_equal(job.n_pairs, 5);
    assert_int_equal(job.n_weights, 1);
    assert_int_equal(job.n_clips, 0);
    const oq_node *n = find(b.g, "MatMul");
    assert_true(oq_str_is(n->input.v[0], "x") && oq_str_is(n->input.v[1], "w"));
    assert_true(oq_str_is(n->output.v[0], "y"));
    static const float want[] = {0.5f, -1.0f, 1.5f, 2.0f};
    assert_memory_equal(floats(&b, "w", 4), want, sizeof want);
    assert_int_equal(b.g->initializer.n, 1);
    assert_computes(&b, &before, 0.5); /* half a step of a quarter and of a half */
    computed_release(&before);
    bm_end(&b);
}

/* A range that begins at 0 cuts off what is negative, as the Relu did that is no longer there. */
static void relu(void **state) {
    (void)state;
    static const oq_convert_clips how[] = {OQ_CLIPS_AUTO, OQ_CLIPS_NONE, OQ_CLIPS_ALL};
    static const char *const made[] = {"Relu", NULL, "Clip"};
    for (size_t i = 0; i < OQ_COUNT(how); i++) {
        bm b;
        oq_convert_job job = {.clips = how[i]};
        bm_begin(&b, NULL, 13);
        fill_pairs(&b, "z0");
        must(&b, OQ_TO_FLOAT, &job);
        assert_int_equal(job.n_clips, made[i] != NULL);
        assert_int_equal(b.g->node.n, made[i] != NULL ? 2 : 1);
        if (made[i] != NULL)
            assert_true(oq_str_is(find(b.g, made[i])->output.v[0], "y"));
        bm_end(&b);
    }
}

/* 255 steps of 6 / 255 are a Clip between 0 and 6. */
static void clip6(void **state) {
    (void)state;
    static const float six[1] = {6.0f / 255.0f};
    bm b;
    oq_convert_job job = {0};
    bm_begin(&b, NULL, 13);
    fill_pairs(&b, "z0");
    oq_tensor *t = oq_graph_find_init(b.g, OQ_S("s2"));
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_tensor_set_raw(b.a, t, six, sizeof six, &err), err);
    must(&b, OQ_TO_FLOAT, &job);
    const oq_node *n = find(b.g, "Clip");
    assert_non_null(n);
    assert_true(floats(&b, oq_str_cstr(b.a, n->input.v[1]), 1)[0] == 0.0f);
    assert_true(floats(&b, oq_str_cstr(b.a, n->input.v[2]), 1)[0] == 6.0f);
    bm_end(&b);
}

/* Integers that the model takes and gives stay. */
static void interface(void **state) {
    (void)state;
    bm b;
    oq_convert_job job = {0};
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_input(&b, "x", OQ_UINT8, "1,2");
    bm_node(&b, "DequantizeLinear", "dq", "x s z", "d", "");
    bm_node(&b, "Neg", "neg", "d", "n", "");
    bm_node(&b, "QuantizeLinear", "q", "n s z", "y", "");
    bm_output(&b, "y", OQ_UINT8, "1,2");
    must(&b, OQ_TO_FLOAT, &job);
    assert_int_equal(b.g->node.n, 3);
    assert_int_equal(job.n_kept, 2);
    bm_end(&b);
}

static void movers(void **state) {
    (void)state;
    static const int64_t pads[4] = {0, 1, 0, 0};
    bm b;
    oq_convert_job job = {0};
    computed before;
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_i64(&b, "pads", "4", pads);
    bm_input(&b, "x", OQ_FLOAT, "2,2");
    bm_node(&b, "QuantizeLinear", "q", "x s z", "x_q", "");
    bm_node(&b, "Transpose", "turn", "x_q", "t_q", "perm=[1,0]");
    bm_node(&b, "Pad", "pad", "t_q pads z", "p_q", "");
    bm_node(&b, "DequantizeLinear", "dq", "p_q s z", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "2,3");
    compute(&b, &before);
    must(&b, OQ_TO_QDQ, &job);
    assert_int_equal(count(b.g, "QuantizeLinear"), 3);
    assert_computes(&b, &before, 1e-6);
    must(&b, OQ_TO_FLOAT, &job);
    assert_int_equal(b.g->node.n, 2);
    assert_computes(&b, &before, 0.5);
    computed_release(&before);
    bm_end(&b);
}

/* What a Pad fills in may be quantized again and again: no call may wait for the next. */
static void long_chain(void **state) {
    (void)state;
    enum { PAIRS = 20000 };
    static const int64_t pads[4] = {0, 1, 0, 0};
    static const float zero[1] = {0};
    char last[16] = "v", q[16], in[32];
    bm b;
    oq_convert_job job = {0};
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_i64(&b, "pads", "4", pads);
    bm_f32(&b, "v", "", zero);
    bm_input(&b, "x", OQ_FLOAT, "2,2");
    for (unsigned i = 0; i < PAIRS; i++) {
        snprintf(in, sizeof in, "%s s z", last);
        snprintf(q, sizeof q, "q%u", i);
        bm_node(&b, "QuantizeLinear", "", in, q, "");
        snprintf(in, sizeof in, "%s s z", q);
        snprintf(last, sizeof last, "d%u", i);
        bm_node(&b, "DequantizeLinear", "", in, last, "");
    }
    bm_node(&b, "QuantizeLinear", "q", "x s z", "x_q", "");
    bm_node(&b, "DequantizeLinear", "dq", "x_q s z", "x_d", "");
    snprintf(in, sizeof in, "x_d pads %s", last);
    bm_node(&b, "Pad", "pad", in, "p", "");
    bm_node(&b, "QuantizeLinear", "p_q", "p s z", "p_q", "");
    bm_node(&b, "DequantizeLinear", "p_dq", "p_q s z", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "2,3");
    must(&b, OQ_TO_QOPERATOR, &job);
    const oq_node *pad = find(b.g, "Pad");
    assert_true(oq_str_is(pad->input.v[0], "x_q") && oq_str_is(pad->input.v[2], "z"));
    bm_end(&b);
}

/* ---- inner graphs and functions ---- */

static void inner(void **state) {
    (void)state;
    static const uint8_t yes[1] = {1};
    static const char *const branch[] = {"then_branch", "else_branch"};
    bm b;
    oq_convert_job job = {0};
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_input(&b, "x", OQ_FLOAT, "1,2");
    bm_raw(&b, "yes", OQ_BOOL, "", yes, 1);
    bm_node(&b, "QuantizeLinear", "q", "x s z", "x_q", "");
    oq_node *n = bm_node(&b, "If", "if", "yes", "y", "");
    for (size_t i = 0; i < 2; i++) {
        oq_graph *around = bm_enter(&b, n, branch[i]);
        char made[8], out[8];
        snprintf(made, sizeof made, "d%zu", i);
        snprintf(out, sizeof out, "o%zu", i);
        bm_node(&b, "DequantizeLinear", "", "x_q s z", made, "");
        bm_node(&b, "Neg", "", made, out, "");
        bm_output(&b, out, OQ_FLOAT, "1,2");
        bm_leave(&b, around);
    }
    bm_output(&b, "y", OQ_FLOAT, "1,2");
    must(&b, OQ_TO_FLOAT, &job);
    assert_int_equal(b.g->node.n, 1);
    for (size_t i = 0; i < 2; i++) {
        const oq_graph *g = oq_attr_find(b.g->node.v[0], branch[i])->g;
        assert_int_equal(g->node.n, 1);
        assert_true(oq_str_is(g->node.v[0]->input.v[0], "x"));
    }
    bm_end(&b);
}

/* ---- integer products ---- */

static void fill_integer(bm *b, const char *zero) {
    char words[64];
    params(b);
    bm_input(b, "x", OQ_FLOAT, "1,2");
    bm_node(b, "DynamicQuantizeLinear", "dyn", "x", "x_q x_s x_z", "");
    snprintf(words, sizeof words, "x_q w_quantized %s zw", zero);
    bm_node(b, "MatMulInteger", "product_quant", words, "i", "");
    bm_node(b, "Cast", "cast", "i", "f", "to=1");
    bm_node(b, "Mul", "scales", "x_s s", "ss", "");
    bm_node(b, "Mul", "scaled", "f ss", "y", "");
    bm_output(b, "y", OQ_FLOAT, "1,2");
}

static void integer(void **state) {
    (void)state;
    bm b;
    oq_convert_job job = {0};
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fill_integer(&b, "x_z");
    must(&b, OQ_TO_QDQ, &job);
    assert_int_equal(b.g->node.n, 4); /* DynamicQuantizeLinear, two DequantizeLinear, MatMul */
    must(&b, OQ_TO_FLOAT, &job);
    assert_int_equal(b.g->node.n, 1);
    assert_true(oq_str_is(b.g->node.v[0]->input.v[0], "x"));
    assert_true(oq_str_is(b.g->node.v[0]->name, "product"));
    bm_end(&b);

    bm_begin(&b, NULL, 13);
    fill_integer(&b, "z");
    assert_fails(convert(&b, OQ_TO_FLOAT, &job, &err), ONQ_E_INVALID, err,
                 "node 'product_quant' (MatMulInteger): its zero point 'z' is not that of tensor "
                 "'x_q'");
    bm_end(&b);
}

static void dynamic_matmul(void **state) {
    (void)state;
    bm b;
    oq_convert_job job = {0};
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_input(&b, "x", OQ_FLOAT, "1,2");
    bm_f32(&b, "bias", "2", two);
    contrib(&b, "DynamicQuantizeMatMul", "n", "x w_quantized s zw bias", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,2");
    must(&b, OQ_TO_FLOAT, &job);
    assert_int_equal(b.g->node.n, 2);
    assert_true(oq_str_is(find(b.g, "MatMul")->input.v[1], "w"));
    assert_true(oq_str_is(find(b.g, "Add")->output.v[0], "y"));
    bm_end(&b);
}

/* ---- packed weights ---- */

/* K 17, N 2, blocks of 16: element (k, n) is (k + n) % 16, scales 0.5 and 0.25 by column. */
static void fill_nbits(bm *b, bool zeros) {
    uint8_t q[2 * 2 * 8] = {0};
    static const float scales[4] = {0.5f, 0.5f, 0.25f, 0.25f};
    static const uint8_t zero[2] = {0x21, 0x43};
    for (unsigned n = 0; n < 2; n++)
        for (unsigned k = 0; k < 17; k++)
            q[n * 16 + k / 2] |= (uint8_t)(((k + n) % 16) << (k % 2 * 4));
    bm_input(b, "x", OQ_FLOAT, "1,17");
    bm_raw(b, "w_Q4", OQ_UINT8, "2,2,8", q, sizeof q);
    bm_f32(b, "w_scales", "4", scales);
    bm_raw(b, "w_zeros", OQ_UINT8, "2", zero, 2);
    contrib(b, "MatMulNBits", "n", zeros ? "x w_Q4 w_scales w_zeros" : "x w_Q4 w_scales", "y",
            "K=17 N=2 bits=4 block_size=16");
    bm_output(b, "y", OQ_FLOAT, "1,2");
}

static float nbits_value(unsigned k, unsigned n, bool zeros) {
    static const int zero[2][2] = {{1, 2}, {3, 4}};
    const int q = (int)((k + n) % 16), z = zeros ? zero[n][k / 16] : 8;
    return (float)(q - z) * (n == 0 ? 0.5f : 0.25f);
}

static void nbits(void **state) {
    (void)state;
    for (int zeros = 0; zeros < 2; zeros++) {
        bm b;
        oq_convert_job job = {0};
        computed before;
        bm_begin(&b, NULL, 13);
        fill_nbits(&b, zeros);
        must(&b, OQ_TO_FLOAT, &job);
        const float *v = floats(&b, "w", 34);
        for (unsigned i = 0; i < 34; i++)
            assert_true(v[i] == nbits_value(i / 2, i % 2, zeros));
        compute(&b, &before);
        bm_end(&b);

        bm_begin(&b, NULL, 21);
        fill_nbits(&b, zeros);
        must(&b, OQ_TO_QDQ, &job);
        const oq_node *dq = find(b.g, "DequantizeLinear");
        assert_int_equal(oq_attr_int(dq, "block_size", 0), 16);
        assert_int_equal(oq_attr_int(dq, "axis", 9), 0);
        must(&b, OQ_TO_FLOAT, &job);
        const float *again = floats(&b, oq_str_cstr(b.a, find(b.g, "MatMul")->input.v[1]), 34);
        for (unsigned i = 0; i < 34; i++)
            assert_true(again[i] == nbits_value(i / 2, i % 2, zeros));
        assert_computes(&b, &before, 0.0);
        computed_release(&before);
        bm_end(&b);
    }
}

/* MatMulNBits to DequantizeLinear and back gives the same bytes. */
static void nbits_back(void **state) {
    (void)state;
    for (int zeros = 0; zeros < 2; zeros++) {
        bm b;
        oq_convert_job job = {0};
        oq_span before[3] = {{0}}, after[3] = {{0}};
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 21);
        fill_nbits(&b, zeros);
        const oq_node *n = find(b.g, "MatMulNBits");
        for (size_t i = 0; i + 1 < n->input.n; i++)
            assert_ok(
                oq_model_data(b.m, oq_graph_find_init(b.g, n->input.v[i + 1]), &before[i], &err),
                err);
        must(&b, OQ_TO_QDQ, &job);
        assert_null(find(b.g, "MatMulNBits"));
        must(&b, OQ_TO_NBITS, &job);
        n = find(b.g, "MatMulNBits");
        assert_non_null(n);
        assert_int_equal(n->input.n, zeros ? 4 : 3);
        assert_int_equal(oq_attr_int(n, "K", 0), 17);
        for (size_t i = 0; i + 1 < n->input.n; i++) {
            assert_ok(
                oq_model_data(b.m, oq_graph_find_init(b.g, n->input.v[i + 1]), &after[i], &err),
                err);
            assert_int_equal(before[i].n, after[i].n);
            /* What pads the last block is 0 then, whatever it was. */
            for (uint64_t k = 0; k < before[i].n; k++)
                assert_int_equal(i == 0 && k % 16 > 8 ? 0 : before[i].p[k], after[i].p[k]);
        }
        assert_int_equal(b.g->node.n, 1);
        bm_end(&b);
    }
}

/* K 3 and blocks of 16: they run on from one column to the next. */
static void bnb4(void **state) {
    (void)state;
    static const uint8_t q[9] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 0x0F};
    static const float most[2] = {2.0f, 4.0f};
    for (int nf4 = 0; nf4 < 2; nf4++) {
        bm b;
        oq_convert_job job = {0};
        const float *codes = NULL;
        bm_begin(&b, NULL, 13);
        bm_input(&b, "x", OQ_FLOAT, "1,3");
        bm_raw(&b, "w_Bnb4", OQ_UINT8, "9", q, 9);
        bm_f32(&b, "most", "2", most);
        oq_node *n = bm_node(&b, "MatMulBnb4", "n", "x w_Bnb4 most", "y", "K=3 N=6 block_size=16");
        n->domain = OQ_S(OQ_MICROSOFT);
        assert_true(oq_attr_set_int(b.a, n, OQ_S("quant_type"), nf4));
        bm_output(&b, "y", OQ_FLOAT, "1,6");
        must(&b, OQ_TO_FLOAT, &job);
        const float *v = floats(&b, "w", 18);
        codes = oq_code_book(nf4);
        for (unsigned i = 0; i < 18; i++) { /* i is the place in the file */
            const unsigned code = i < 16 ? i : i == 16 ? 0 : 15;
            assert_true(v[i % 3 * 6 + i / 3] == codes[code] * most[i / 16]);
        }
        bm_end(&b);
    }
    assert_true(oq_code_book(true)[15] == 1.0f && oq_code_book(true)[7] == 0.0f);
    assert_true(oq_code_book(false)[3] == 1.0f && oq_code_book(false)[11] == -1.0f);
}

static void table(void **state) {
    (void)state;
    static const uint8_t q[16] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE,
                                  0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE};
    for (int packed = 0; packed < 2; packed++) {
        bm b;
        oq_convert_job job = {0};
        bm_begin(&b, NULL, 21);
        bm_input(&b, "i", OQ_INT64, "1");
        bm_raw(&b, "t_Q4", packed ? OQ_UINT8 : OQ_INT4, packed ? "2,8" : "2,16", q, 16);
        bm_f32(&b, "t_scales", "2,1", two);
        contrib(&b, "GatherBlockQuantized", "n", "t_Q4 i t_scales", "y",
                "bits=4 block_size=16 gather_axis=0 quantize_axis=1");
        bm_output(&b, "y", OQ_FLOAT, "1,16");
        must(&b, OQ_TO_FLOAT, &job);
        const float *v = floats(&b, "t", 32);
        for (int i = 0; i < 32; i++) { /* bytes have 8 for zero, int4 its own */
            const int raw = i % 16, x = packed ? raw - 8 : raw < 8 ? raw : raw - 16;
            assert_true(v[i] == (float)x * two[i / 16]);
        }
        assert_int_equal(count(b.g, "Gather"), 1);
        bm_end(&b);
    }
}

static void lstm(void **state) {
    (void)state;
    static const int8_t w[8] = {1, 2, 3, 4, 5, 6, 7, 8}, r[4] = {1, 2, 3, 4},
                        zero[4] = {0, 0, 0, 0};
    static const float scale[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    bm b;
    oq_convert_job job = {0};
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    bm_input(&b, "x", OQ_FLOAT, "1,1,2");
    bm_raw(&b, "w_quantized", OQ_INT8, "1,2,4", w, 8);
    bm_raw(&b, "r_quantized", OQ_INT8, "1,1,4", r, 4);
    bm_f32(&b, "ws", "1,4", scale);
    bm_f32(&b, "rs", "1", half);
    bm_raw(&b, "wz", OQ_INT8, "1,4", zero, 4);
    bm_raw(&b, "rz", OQ_INT8, "1", zero, 1);
    contrib(&b, "DynamicQuantizeLSTM", "lstm_quant",
            "x w_quantized r_quantized _ _ _ _ _ ws wz rs rz", "y", "hidden_size=1");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    assert_fails(convert(&b, OQ_TO_QDQ, &job, &err), ONQ_E_UNSUPPORTED, err,
                 "node 'lstm_quant' (DynamicQuantizeLSTM): it quantizes its states in every step");
    must(&b, OQ_TO_FLOAT, &job);
    static const float want[8] = {1, 5, 4, 12, 9, 21, 16, 32}, want_r[4] = {0.5f, 1.0f, 1.5f, 2.0f};
    assert_memory_equal(floats(&b, "w", 8), want, sizeof want);
    assert_memory_equal(floats(&b, "r", 4), want_r, sizeof want_r);
    assert_int_equal(find(b.g, "LSTM")->input.n, 3);
    bm_end(&b);
}

/* ---- ranges ---- */

static void ranges(void **state) {
    (void)state;
    static const float scale[] = {0.0123f, 3.1e-5f, 7.77f, 0.007874016f};
    static const int32_t zero[] = {0, 255, 77, 128};
    oq_arena arena;
    oq_plan plan;
    oq_ranges out;
    oq_convert_found found;
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    assert_non_null(env);
    const onq_allocator *alloc = &env->alloc;
    oq_arena_init(&arena, alloc);
    oq_plan_init(&plan, &arena);
    for (size_t i = 0; i < OQ_COUNT(scale); i++) {
        char name[8];
        snprintf(name, sizeof name, "t%zu", i);
        const oq_plan_tensor row = {
            .name = oq_str_copy(&arena, oq_str_of(name)), .type = OQ_UINT8, .axis = -1, .why = ""};
        assert_true(oq_plan_add_scalar(&plan, row, scale[i], zero[i]));
    }
    oq_ranges_init(&out, alloc, OQ_CAL_MINMAX);
    assert_ok(oq_convert_ranges(&plan, &out, &found, &err), err);
    assert_int_equal(found.n, OQ_COUNT(scale));
    assert_int_equal(found.n_inexact, 0);
    assert_false(found.symmetric);
    for (size_t i = 0; i < OQ_COUNT(scale); i++) {
        const oq_qspec spec = {.type = OQ_UINT8, .real = OQ_FLOAT};
        oq_qparam p;
        assert_ok(oq_qparam_compute(&spec, (float)out.all.v[i]->lowest.v[0],
                                    (float)out.all.v[i]->highest.v[0], &p, &err),
                  err);
        assert_true(p.scale == scale[i] && p.zero_point == zero[i]);
    }
    oq_ranges_release(&out);
    oq_arena_release(&arena);
    onq_env_free(env);
}

/* ---- what cannot be ---- */

static void wrong(void **state) {
    (void)state;
    static const struct {
        const char *q, *dq, *says;
    } cases[] = {
        {"x s z", "q s2 z",
         "node 'dq' (DequantizeLinear): tensor 'q' has other parameters here "
         "than in node 'q' (QuantizeLinear)"},
        {"x s z", "q s z0", "has other parameters here"},
    };
    onq_error err = ONQ_ERROR_INIT;
    oq_convert_job job = {0};
    bm b;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        bm_begin(&b, NULL, 13);
        params(&b);
        bm_input(&b, "x", OQ_FLOAT, "1,2");
        bm_node(&b, "QuantizeLinear", "q", cases[i].q, "q", "");
        bm_node(&b, "DequantizeLinear", "dq", cases[i].dq, "y", "");
        bm_output(&b, "y", OQ_FLOAT, "1,2");
        assert_fails(convert(&b, OQ_TO_FLOAT, &job, &err), ONQ_E_INVALID, err, cases[i].says);
        bm_end(&b);
    }
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_input(&b, "x", OQ_FLOAT, "1,2");
    bm_node(&b, "QuantizeLinear", "q", "x s z", "q", "");
    bm_node(&b, "Cast", "cast", "q", "y", "to=1");
    bm_output(&b, "y", OQ_FLOAT, "1,2");
    assert_fails(convert(&b, OQ_TO_FLOAT, &job, &err), ONQ_E_UNSUPPORTED, err,
                 "node 'cast' (Cast): it reads the quantized tensor 'q', and has no float form");
    bm_end(&b);
    bm_begin(&b, NULL, 13);
    params(&b);
    bm_f32(&b, "s3", "2", two);
    bm_input(&b, "x", OQ_FLOAT, "1,2");
    bm_node(&b, "DequantizeLinear", "dw", "w_quantized s3", "w_d", "axis=5");
    bm_node(&b, "MatMul", "product", "x w_d", "y", "");
    bm_output(&b, "y", OQ_FLOAT, "1,2");
    assert_fails(convert(&b, OQ_TO_FLOAT, &job, &err), ONQ_E_INVALID, err,
                 "node 'dw' (DequantizeLinear): the scales 's3' do not fit tensor 'w_quantized'");
    bm_end(&b);
}

/* ---- running out of memory ---- */

static onq_code work(bm *b, void *ctx, onq_error *err) {
    oq_convert_job job = {0};
    return convert(b, *(oq_convert_to *)ctx, &job, err);
}

static void fill_all(bm *b) {
    fill_nbits(b, true);
    params(b);
    bm_input(b, "a", OQ_FLOAT, "1,2");
    bm_node(b, "DynamicQuantizeLinear", "dyn", "a", "a_q a_s a_z", "");
    bm_node(b, "MatMulInteger", "product", "a_q w_quantized a_z zw", "i", "");
    bm_node(b, "Cast", "cast", "i", "f", "to=1");
    bm_node(b, "Mul", "scales", "a_s s", "ss", "");
    bm_node(b, "Mul", "scaled", "f ss", "r", "");
    bm_node(b, "QuantizeLinear", "q", "r s z0", "r_q", "");
    bm_node(b, "DequantizeLinear", "dq", "r_q s z0", "r_d", "");
    bm_output(b, "r_d", OQ_FLOAT, "1,2");
}

static void oom(void **state) {
    (void)state;
    for (oq_convert_to to = OQ_TO_FLOAT; to <= OQ_TO_NBITS; to++)
        bm_sweep(21, fill_all, work, &to);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_back),  cmocka_unit_test(rows_stay), cmocka_unit_test(nbits_back),
        cmocka_unit_test(rows),       cmocka_unit_test(to_float),  cmocka_unit_test(relu),
        cmocka_unit_test(clip6),      cmocka_unit_test(interface), cmocka_unit_test(movers),
        cmocka_unit_test(inner),      cmocka_unit_test(integer),   cmocka_unit_test(dynamic_matmul),
        cmocka_unit_test(nbits),      cmocka_unit_test(bnb4),      cmocka_unit_test(table),
        cmocka_unit_test(lstm),       cmocka_unit_test(ranges),    cmocka_unit_test(wrong),
        cmocka_unit_test(long_chain), cmocka_unit_test(oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
