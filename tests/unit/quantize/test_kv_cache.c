/*
 * test_kv_cache.c — caches of integers: which are found, their scales, and what is written.
 */
#include "build_model.h"
#include "onnx/attr.h"
#include "onnx/check/check.h"
#include "quantize/cache/kv_cache.h"
#include "testing.h"

#define SIZE 16

static onq_error err;

/* Outputs of a run with two tokens: all 0, but for what a test sets. */
typedef struct seen {
    float key[2 * SIZE], value[2 * SIZE], logits[40];
    oq_datum out[3];
} seen;

static const int64_t cache_dims[] = {1, 1, 2, SIZE}, logits_dims[] = {1, 1, 40};

static void begin_seen(seen *s) {
    *s = (seen){0};
    s->out[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_FLOAT,
                           .rank = 3,
                           .dims = logits_dims,
                           .count = 40,
                           .data = s->logits,
                           .size_bytes = sizeof s->logits};
    for (int i = 1; i < 3; i++)
        s->out[i] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                               .dtype = OQ_FLOAT,
                               .rank = 4,
                               .dims = cache_dims,
                               .count = 2 * (uint64_t)SIZE,
                               .data = i == 1 ? s->key : s->value,
                               .size_bytes = sizeof s->key};
}

static const float *scale_of(const bm *b, const oq_node *n, size_t slot, uint64_t members) {
    oq_tensor *t = oq_graph_find_init(b->m->proto->graph, n->input.v[slot]);
    oq_span data;
    assert_non_null(t);
    assert_ok(oq_model_data(b->m, t, &data, &err), err);
    assert_int_equal(data.n, members * sizeof(float));
    return (const float *)(const void *)data.p;
}

static void written(void **state) {
    (void)state;
    bm b;
    seen s;
    oq_kv_caches c;
    bm_begin(&b, NULL, 17);
    bm_grouped(&b);
    assert_ok(oq_kv_find(b.m, &b.m->arena, &c, &err), err);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.v[0].rotary, 0);
    begin_seen(&s);
    s.key[3] = -12.7f;
    s.value[SIZE + 2] = 25.4f;
    assert_ok(oq_kv_see(&c, 0, s.out, &err), err);
    s.key[3] = 0;
    s.key[SIZE + 3] = 127;
    assert_ok(oq_kv_see(&c, 1, s.out, &err), err);
    assert_int_equal(oq_kv_bytes(&c, 0), 2 * SIZE * 4);
    assert_int_equal(oq_kv_bytes(&c, 8), 2 * SIZE);
    assert_int_equal(oq_kv_bytes(&c, 4), SIZE);
    const oq_kv_how first = {.bits = 8, .per_channel = true, .first_part = true};
    assert_ok(oq_kv_write(b.m, &c, &first, &err), err);
    const oq_node *n = bm_find_node(&b, "attn");
    assert_int_equal(n->input.n, 14);
    const float *k = scale_of(&b, n, 12, SIZE), *v = scale_of(&b, n, 13, SIZE);
    assert_float_equal(k[3], 0.1f, 1e-6f); /* of the first part only */
    assert_float_equal(k[0], 1.0f, 0.0f);  /* never seen but as 0 */
    assert_float_equal(v[2], 0.2f, 1e-6f);
    assert_true(oq_str_is(oq_attr_str(n, "k_quant_type", ""), "PER_CHANNEL"));
    assert_int_equal(oq_attr_int(n, "kv_cache_bit_width", 0), 8);
    for (int i = 1; i < 3; i++) {
        assert_int_equal(b.g->input.v[i]->type->tensor_type->elem_type.v, OQ_INT8);
        assert_int_equal(b.g->output.v[i]->type->tensor_type->elem_type.v, OQ_INT8);
    }
    assert_int_equal(b.g->output.v[0]->type->tensor_type->elem_type.v, OQ_FLOAT);
    assert_ok(oq_model_check(b.m, &err), err);
    assert_int_equal(oq_kv_find(b.m, &b.m->arena, &c, &err), ONQ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "quantized already"));
    bm_end(&b);
}

/* Two values in a byte halve the last dimension; one scale is that of the largest channel. */
static void of_four_bits(void **state) {
    (void)state;
    bm b;
    seen s;
    oq_kv_caches c;
    bm_begin(&b, NULL, 17);
    bm_grouped(&b);
    assert_ok(oq_kv_find(b.m, &b.m->arena, &c, &err), err);
    begin_seen(&s);
    s.key[3] = -1.4f;
    s.key[9] = 0.7f;
    s.value[1] = 7;
    assert_ok(oq_kv_see(&c, 0, s.out, &err), err);
    const oq_kv_how how = {.bits = 4};
    assert_ok(oq_kv_write(b.m, &c, &how, &err), err);
    const oq_node *n = bm_find_node(&b, "attn");
    assert_float_equal(*scale_of(&b, n, 12, 1), 0.2f, 1e-6f);
    assert_float_equal(*scale_of(&b, n, 13, 1), 1.0f, 1e-6f);
    assert_int_equal(b.g->input.v[1]->type->tensor_type->elem_type.v, OQ_UINT8);
    assert_int_equal(b.g->input.v[1]->type->tensor_type->shape->dim.v[3]->dim_value.v, SIZE / 2);
    bm_end(&b);
}

/* A channel counts as large as it and the one that a rotation mixes it with: 3 and 4 make 5. */
static void rotated(void **state) {
    (void)state;
    const struct {
        const char *attributes;
        int a, b; /* partners */
        bool whole;
    } rows[] = {{"do_rotary=1", 1, 9, true},
                {"do_rotary=1 rotary_interleaved=1", 2, 3, true},
                {"do_rotary=1", 1, 5, false}}; /* only 8 of the channels are rotated */
    for (size_t i = 0; i < OQ_COUNT(rows); i++) {
        bm b;
        seen s;
        oq_kv_caches c;
        bm_begin(&b, NULL, 17);
        bm_grouped(&b);
        oq_node *n = bm_find_node(&b, "attn");
        bm_attributes(&b, n, rows[i].attributes);
        bm_weight(&b, "cos", rows[i].whole ? "64,8" : "64,4", 8);
        assert_true(oq_node_add_input(b.a, n, OQ_S("cos")));
        assert_true(oq_node_add_input(b.a, n, OQ_S("cos")));
        assert_ok(oq_kv_find(b.m, &b.m->arena, &c, &err), err);
        begin_seen(&s);
        s.key[rows[i].a] = 3;
        s.key[rows[i].b] = -4;
        s.key[15] = 12; /* its partner, if it has one, is 0 */
        s.value[1] = 3;
        assert_ok(oq_kv_see(&c, 0, s.out, &err), err);
        const float *most = c.v[0].most[0][OQ_KV_KEY];
        assert_float_equal(most[rows[i].a], 5.0f, 1e-6f);
        assert_float_equal(most[rows[i].b], 5.0f, 1e-6f);
        assert_float_equal(most[15], 12.0f, 1e-6f);
        assert_float_equal(most[7], (rows[i].whole && i == 0 ? 12.0f : 0.0f), 1e-6f);
        assert_float_equal(c.v[0].most[0][OQ_KV_VALUE][1], 3.0f, 0.0f);
        bm_end(&b);
    }
}

static void wrong_outputs(void **state) {
    (void)state;
    static const int64_t flat[] = {1, 2, SIZE}, other[] = {1, 2, 1, SIZE};
    bm b;
    seen s;
    oq_kv_caches c;
    bm_begin(&b, NULL, 17);
    bm_grouped(&b);
    assert_ok(oq_kv_find(b.m, &b.m->arena, &c, &err), err);
    const oq_kv_how how = {.bits = 8};
    assert_int_equal(oq_kv_write(b.m, &c, &how, &err), ONQ_E_INVALID); /* nothing was seen */
    begin_seen(&s);
    s.out[2].rank = 3;
    s.out[2].dims = flat;
    assert_int_equal(oq_kv_see(&c, 0, s.out, &err), ONQ_E_UNSUPPORTED);
    s.out[2].rank = 4;
    s.out[2].dims = other; /* two heads */
    assert_int_equal(oq_kv_see(&c, 0, s.out, &err), ONQ_E_UNSUPPORTED);
    begin_seen(&s);
    s.value[5] = (float)INFINITY;
    assert_int_equal(oq_kv_see(&c, 0, s.out, &err), ONQ_E_INVALID);
    assert_non_null(strstr(err.text, "present.0.value"));
    bm_end(&b);
}

static onq_code find_and_write(bm *b, void *ctx, onq_error *error) {
    oq_kv_caches c;
    seen s;
    (void)ctx;
    begin_seen(&s);
    s.key[3] = 2;
    const oq_kv_how how = {.bits = 8, .per_channel = true};
    OQ_SCRATCH_BUF(text, &b->env->alloc);
    OQ_TRY(oq_kv_find(b->m, &b->m->arena, &c, error));
    OQ_TRY(oq_kv_see(&c, 0, s.out, error));
    OQ_TRY(oq_kv_scales_text(&c, &how, &text, error));
    return oq_kv_write(b->m, &c, &how, error);
}

static void out_of_memory(void **state) {
    (void)state;
    assert_true(bm_sweep(17, bm_grouped, find_and_write, NULL) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written),       cmocka_unit_test(of_four_bits),  cmocka_unit_test(rotated),
        cmocka_unit_test(wrong_outputs), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
