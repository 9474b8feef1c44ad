/*
 * test_encodings.c — parameters as files of other tools: what is written is read back, offsets are
 * worked out by hand, wrong files are refused with the tensor.
 */
#include "quantize/override/encodings.h"

#include "build_model.h"
#include "scratch.h"
#include "testing.h"

#include <string.h>

static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "1,3,4,4");
    bm_weight(b, "w", "2,3,1,1", 1);
    bm_node(b, "Conv", "conv", "x w", "y", "");
    bm_output(b, "y", OQ_FLOAT, "1,2,4,4");
}

static scratch files;

static onq_code load(bm *b, const char *text, oq_overrides *o, oq_encodings_read *r,
                     onq_error *err) {
    oq_overrides_init(o, b->a);
    return oq_encodings_load(o, b->m, scratch_file(&files, "e.json", text, strlen(text)), r, err);
}

static void check(const oq_overrides *o, const char *name, size_t i, oq_dtype type, float scale,
                  int64_t zero) {
    const oq_tensor_override *t = oq_overrides_find(o, oq_str_of(name));
    assert_non_null(t);
    assert_true(t->channels.v[i].type == type && t->channels.v[i].scale == scale &&
                t->channels.v[i].zero == zero);
}

/* The same parameters in three versions: y is uint8 with zero point 5, w int8 with two scales. */
static void versions(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"version\": \"0.6.1\", \"activation_encodings\": {\"y\": [{\"bitwidth\": 8, \"dtype\": "
        "\"int\", \"is_symmetric\": \"False\", \"max\": 1, \"min\": 0, \"offset\": -5, \"scale\": "
        "0.5}]}, \"param_encodings\": {\"w\": [{\"bitwidth\": 8, \"dtype\": \"int\", "
        "\"is_symmetric\": \"True\", \"offset\": -128, \"scale\": 0.25}, {\"bitwidth\": 8, "
        "\"dtype\": \"int\", \"is_symmetric\": \"True\", \"offset\": -128, \"scale\": 0.125}]}}",
        "{\"version\": \"1.0.0\", \"activation_encodings\": [{\"name\": \"y\", \"enc_type\": "
        "\"PER_TENSOR\", \"dtype\": \"INT\", \"bw\": 8, \"is_sym\": false, \"scale\": [0.5], "
        "\"offset\": [-5]}, {\"name\": \"x\", \"dtype\": \"FLOAT\", \"bw\": 16}], "
        "\"param_encodings\": [{\"name\": \"w\", \"enc_type\": \"PER_CHANNEL\", \"dtype\": "
        "\"INT\", "
        "\"bw\": 8, \"is_sym\": true, \"scale\": [0.25, 0.125], \"offset\": [-128, -128]}]}",
        "{\"version\": \"2.0.0\", \"encodings\": [{\"name\": \"y\", \"output_dtype\": \"uint8\", "
        "\"y_scale\": 0.5, \"y_zero_point\": 5}, {\"name\": \"w\", \"output_dtype\": \"int8\", "
        "\"y_scale\": [0.25, 0.125], \"axis\": 0}]}"};
    for (size_t i = 0; i < OQ_COUNT(texts); i++) {
        bm b;
        oq_overrides o;
        oq_encodings_read r;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill(&b);
        assert_ok(load(&b, texts[i], &o, &r, &err), err);
        assert_int_equal(r.n, 2);
        assert_int_equal(r.n_other, i == 1);
        check(&o, "y", 0, OQ_UINT8, 0.5f, 5);
        check(&o, "w", 0, OQ_INT8, 0.25f, 0);
        check(&o, "w", 1, OQ_INT8, 0.125f, 0);
        assert_true(oq_override_is_channel(oq_overrides_find(&o, OQ_S("w"))));
        assert_int_equal(oq_overrides_find(&o, OQ_S("w"))->channels.v[0].axis, 0);
        bm_end(&b);
    }
}

static void tensorrt(void **state) {
    (void)state;
    bm b;
    oq_overrides o;
    oq_encodings_read r;
    onq_error err = ONQ_ERROR_INIT;
    bm_begin(&b, NULL, 13);
    fill(&b);
    assert_ok(load(&b, "TRT-8601-EntropyCalibration2\ny: 3f000000\na:b: 3c010a14\n", &o, &r, &err),
              err);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.n_gone, 1);
    assert_true(oq_str_is(r.gone, "a:b"));
    check(&o, "y", 0, OQ_INT8, 0.5f, 0);
    bm_end(&b);
}

/* What is written is read again. */
static void back(void **state) {
    (void)state;
    static const float scales[2] = {0.25f, 0.1f};
    static const int32_t zeros[2] = {0, 0};
    for (int format = OQ_ENCODINGS_0_6_1; format <= OQ_ENCODINGS_OVERRIDES; format++) {
        bm b;
        oq_plan plan;
        oq_overrides o;
        oq_encodings_read r;
        oq_buf text;
        size_t skipped = 0;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill(&b);
        oq_plan_init(&plan, b.a);
        const oq_plan_tensor y = {.name = OQ_S("y"), .type = OQ_INT8, .axis = -1, .why = ""};
        const oq_plan_tensor w = {.name = OQ_S("w"),
                                  .role = OQ_ROLE_WEIGHT,
                                  .type = OQ_INT8,
                                  .axis = 0,
                                  .scale = scales,
                                  .zero = zeros,
                                  .n = 2,
                                  .why = ""};
        assert_true(oq_plan_add_scalar(&plan, y, 0.7f, 0) && oq_plan_add_tensor(&plan, w));
        oq_buf_init(&text, &b.env->alloc);
        assert_ok(oq_encodings_write(&plan, (oq_encodings_format)format, &text, &skipped, &err),
                  err);
        assert_int_equal(skipped, 0);
        assert_ok(load(&b, text.p, &o, &r, &err), err);
        check(&o, "y", 0, OQ_INT8, 0.7f, 0);
        if (format != OQ_ENCODINGS_TENSORRT) {
            check(&o, "w", 0, OQ_INT8, 0.25f, 0);
            check(&o, "w", 1, OQ_INT8, 0.1f, 0);
        }
        oq_buf_release(&text);
        bm_end(&b);
    }
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"activation_encodings\": {\"y\": [{\"bitwidth\": 8, \"offset\": 0, \"scale\": 0}]}}",
         "tensor 'y': its scale is not a positive number"},
        {"{\"activation_encodings\": {\"y\": [{\"bitwidth\": 8, \"offset\": 9, \"scale\": 1}]}}",
         "tensor 'y': its offset or zero point does not fit its type"},
        {"{\"activation_encodings\": {\"y\": 3}}", "tensor 'y': it has no list of encodings"},
        {"{\"param_encodings\": [{\"bw\": 8}]}", "an encoding has no name"},
        {"{\"encodings\": [{\"name\": \"w\", \"output_dtype\": \"int8\", \"y_scale\": [1, 2], "
         "\"y_zero_point\": [0]}]}",
         "tensor 'w': it has not as many zero points as scales"},
        {"{\"encodings\": {}}", "'encodings' is not a list"},
        {"[]", "it holds no encodings"},
        {"TRT-1\nnonsense\n", "'nonsense' is not a tensor and its scale"},
    };
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        bm b;
        oq_overrides o;
        oq_encodings_read r;
        onq_error err = ONQ_ERROR_INIT;
        bm_begin(&b, NULL, 13);
        fill(&b);
        assert_fails(load(&b, cases[i].text, &o, &r, &err), ONQ_E_CONFIG, err, cases[i].says);
        bm_end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(versions), cmocka_unit_test(tensorrt),
                                       cmocka_unit_test(back), cmocka_unit_test(refused)};
    scratch_init(&files);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(&files);
    return failed;
}
