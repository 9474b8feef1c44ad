/* test_dump.c — the text form. */
#include "build_model.h"
#include "dump.h"
#include "testing.h"

static void a_whole_model(void **state) {
    (void)state;
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    assert_int_equal(oq_model_set_metadata(b.m, OQ_S("key"), OQ_S("va\x1blue"), &err), ONQ_OK);
    bm_input(&b, "x", OQ_FLOAT, "N,?,3");
    bm_input(&b, "c", OQ_BOOL, "");
    bm_output(&b, "y", OQ_FLOAT, NULL);
    bm_info(&b, "t", OQ_INT8, "2");
    const float f[] = {0.1f, -1.0f};
    bm_f32(&b, "f", "2", f);
    const int64_t i[] = {-5};
    bm_i64(&b, "i", "", i);
    const uint8_t u4[] = {0x2f, 0x01};
    bm_raw(&b, "u4", OQ_UINT4, "3", u4, sizeof u4);
    bm_weight(&b, "w", "3,3", 1);
    bm_node(&b, "Clip", "clip", "x _ f", "t", "zz=1 alpha=0.5 mode='edge' axes=[1,2] fs=[0.5,2]");
    oq_node *n = bm_node(&b, "If", "if", "c", "y", "");
    n->domain = OQ_S("my.domain");
    oq_graph *around = bm_enter(&b, n, "then_branch");
    bm_node(&b, "Neg", "neg", "t", "u", "");
    bm_output(&b, "u", OQ_FLOAT, NULL);
    bm_leave(&b, around);

    oq_buf out;
    oq_buf_init(&out, oq_alloc_default());
    assert_int_equal(oq_dump_model(b.m, &out, &err), ONQ_OK);
    char *hash = strstr(out.p, "hash ");
    assert_non_null(hash);
    memset(hash + 5, 'h', 16);
    assert_string_equal(out.p, "ir_version 8\n"
                               "opset ai.onnx 13\n"
                               "metadata key = va\\x1blue\n"
                               "graph test\n"
                               "input x FLOAT[N,?,3]\n"
                               "input c BOOL[]\n"
                               "output y FLOAT\n"
                               "info t INT8[2]\n"
                               "init f FLOAT[2] = {0.1, -1}\n"
                               "init i INT64[] = {-5}\n"
                               "init u4 UINT4[3] = {15, 2, 1}\n"
                               "init w FLOAT[3,3] hash hhhhhhhhhhhhhhhh\n"
                               "node clip: Clip(x, , f) -> (t) "
                               "{alpha=0.5f, axes=[1,2], fs=[0.5,2]f, mode=\"edge\", zz=1}\n"
                               "node if: my.domain::If(c) -> (y) {then_branch=graph}\n"
                               "  then_branch:\n"
                               "    graph then_branch\n"
                               "    output u FLOAT\n"
                               "    node neg: Neg(t) -> (u)\n");
    oq_buf_release(&out);
    bm_end(&b);
}

static void the_hash_sees_one_bit(void **state) {
    (void)state;
    oq_buf text[2];
    for (unsigned k = 0; k < 2; k++) {
        bm b;
        onq_error err = ONQ_ERROR_INIT;
        float v[16] = {0};
        v[15] = k == 0 ? 0.0f : -0.0f;
        bm_begin(&b, NULL, 13);
        bm_f32(&b, "w", "16", v);
        oq_buf_init(&text[k], oq_alloc_default());
        assert_int_equal(oq_dump_model(b.m, &text[k], &err), ONQ_OK);
        bm_end(&b);
    }
    assert_string_not_equal(text[0].p, text[1].p);
    oq_buf_release(&text[0]);
    oq_buf_release(&text[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_model),
        cmocka_unit_test(the_hash_sees_one_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
