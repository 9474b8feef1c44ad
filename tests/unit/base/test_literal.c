/*
 * test_literal.c — what Python writes, as JSON.
 */
#include "base/text/json.h"
#include "base/text/literal.h"

#include "testing.h"

static const struct {
    const char *text, *json; /* json NULL: refused */
} cases[] = {
    {"3", "3"},
    {" [\"Conv\", 'MatMul' , ] ", "[\"Conv\",\"MatMul\"]"},
    {"('a', 'b')", "[\"a\",\"b\"]"},
    {"{'a', 'b'}", "[\"a\",\"b\"]"},
    {"{}", "{}"},
    {"[]", "[]"},
    {"{\"Gemm\": 0, 'MatMul': -1,}", "{\"Gemm\":0,\"MatMul\":-1}"},
    {"[True, False, None, true, false, null]", "[true,false,null,true,false,null]"},
    {"[+1, .5, 2., -.25, 1e-3]", "[1,0.5,2.0,-0.25,1e-3]"},
    {"'it\\'s \"quoted\"'", "\"it's \\\"quoted\\\"\""},
    {"\"it's\\n\"", "\"it's\\n\""},
    {"QuantType.QInt8", "\"QuantType.QInt8\""},
    {"{'x': [{'scale': np.array(0.5, dtype=np.float32), 'zero_point': np.uint8(3)}]}",
     "{\"x\":[{\"scale\":0.5,\"zero_point\":3}]}"},
    {"set(['a'])", "[\"a\"]"},
    {"f(1,)", "1"},
    {"", NULL},
    {"[1", NULL},
    {"[1 2]", NULL},
    {"{'a': 1, 2: 3}", NULL},
    {"{'a': 1, 'b'}", NULL},
    {"'open", NULL},
    {"f()", NULL},
    {"f(1", NULL},
    {"[1] [2]", NULL},
    {"@", NULL},
};

static void translated(void **state) {
    (void)state;
    for (size_t i = 0; i < OQ_COUNT(cases); i++) {
        onq_error err = ONQ_ERROR_INIT;
        oq_buf out;
        oq_buf_init(&out, oq_alloc_default());
        const onq_code rc = oq_literal_json(&out, oq_str_of(cases[i].text), &err);
        const oq_str got = {out.p, out.n};
        if (cases[i].json == NULL ? rc != ONQ_E_CONFIG
                                  : rc != ONQ_OK || !oq_str_is(got, cases[i].json))
            fail_msg("%s: %d '%s' '%.*s'", cases[i].text, (int)rc, err.text, OQ_STR(got));
        oq_buf_release(&out);
    }
}

static void too_deep(void **state) {
    (void)state;
    char text[2 * OQ_MAX_JSON_DEPTH];
    onq_error err = ONQ_ERROR_INIT;
    oq_buf out;
    memset(text, '[', sizeof text);
    oq_buf_init(&out, oq_alloc_default());
    assert_fails(oq_literal_json(&out, (oq_str){text, sizeof text}, &err), ONQ_E_CONFIG, err,
                 "too many brackets");
    oq_buf_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(translated), cmocka_unit_test(too_deep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
