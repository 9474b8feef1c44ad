/*
 * test_carry.c — which outputs are states and which inputs take them: by names of exporters, and by
 * rules of the user, good and bad.
 */
#include "samples/sequence/carry.h"

#include "testing.h"

#include <stdio.h>
#include <string.h>

static const oq_io_dim FOUR[] = {{.value = 4}}, FIVE[] = {{.value = 5}};

/* Names separated by spaces; a name that ends with "!" has another size, one that ends with "#" is
 * of integers. */
static oq_ios make(oq_arena *a, const char *names) {
    oq_ios ios = {OQ_NEW_ARRAY(a, oq_io, 20), 0};
    assert_non_null(ios.v);
    for (const char *p = names; *p != '\0';) {
        size_t n = strcspn(p, " ");
        const char *next = p + n + (p[n] == ' ');
        const char mark = p[n - 1];
        n -= mark == '!' || mark == '#';
        ios.v[ios.n++] = (oq_io){.name = {p, n},
                                 .kind = OQ_DATUM_TENSOR,
                                 .dtype = mark == '#' ? OQ_INT64 : OQ_FLOAT,
                                 .has_shape = true,
                                 .rank = 1,
                                 .dims = mark == '!' ? FIVE : FOUR};
        p = next;
    }
    return ios;
}

static void check(const oq_carry *c, const oq_ios *in, const oq_ios *out, const char *pairs) {
    char text[1000] = "";
    for (size_t i = 0; i < c->n; i++) {
        const oq_str o = out->v[c->v[i].out].name, n = in->v[c->v[i].in].name;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.*s=%.*s", i > 0 ? " " : "",
                 OQ_STR(o), OQ_STR(n));
    }
    assert_string_equal(text, pairs);
}

static void by_name(void **state) {
    (void)state;
    static const struct {
        const char *in, *out, *pairs;
    } rows[] = {
        {"input_ids# past_key_values.0.key past_key_values.0.value",
         "logits present.0.key present.0.value",
         "present.0.key=past_key_values.0.key present.0.value=past_key_values.0.value"},
        {"past_key_values.0.decoder.key past_key_values.0.encoder.key",
         "present.0.decoder.key present.0.encoder.key",
         "present.0.decoder.key=past_key_values.0.decoder.key "
         "present.0.encoder.key=past_key_values.0.encoder.key"},
        {"past_0 past_key_self_0", "present_0 present_key_self_0",
         "present_0=past_0 present_key_self_0=past_key_self_0"},
        {"input state sr#", "output stateN", "stateN=state"},
        {"x h0 c0", "y hn cn", "hn=h0 cn=c0"},
        {"x h c", "y hn cn", "hn=h cn=c"},
        {"x cached_key_0 cached_len_0#", "y new_cached_key_0 new_cached_len_0#",
         "new_cached_key_0=cached_key_0 new_cached_len_0=cached_len_0"},
        {"att_cache cnn_cache", "r_att_cache r_cnn_cache",
         "r_att_cache=att_cache r_cnn_cache=cnn_cache"},
        {"cache_last_channel", "cache_last_channel_next",
         "cache_last_channel_next=cache_last_channel"},
        {"h_in c_in", "h_out c_out", "h_out=h_in c_out=c_in"},
        {"hidden_state_in", "hidden_state_out", "hidden_state_out=hidden_state_in"},
        /* No states: */
        {"image mask", "output_image mask_out", ""},
        {"x h0", "y hn!", ""},
        {"x h0#", "y hn", ""},
        {"attention_mask", "present.0.key", ""},
        {"", "", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        oq_arena a;
        oq_carry c;
        onq_error err = ONQ_ERROR_INIT;
        oq_arena_init(&a, oq_alloc_default());
        const oq_ios in = make(&a, rows[i].in), out = make(&a, rows[i].out);
        assert_int_equal(oq_carry_find(&a, &in, &out, &c, &err), ONQ_OK);
        check(&c, &in, &out, rows[i].pairs);
        oq_arena_release(&a);
    }
}

static void by_rule(void **state) {
    (void)state;
    static const struct {
        const char *rule, *in, *out, *pairs, *error; /* two rules: separated by a space */
    } rows[] = {
        {"present\\.(.*)=past_key_values.\\1", "past_key_values.0.k past_key_values.1.k",
         "present.0.k present.1.k",
         "present.0.k=past_key_values.0.k present.1.k=past_key_values.1.k", NULL},
        {"(a|b)(.)=\\2\\1", "1a 2b", "a1 b2", "a1=1a b2=2b", NULL},
        {"a=x b=y", "x y", "b a", "a=x b=y", NULL},
        {"a=x a=x", "x", "a", "a=x", NULL},
        {"a=x a=y", "x y", "a", "a=x a=y", NULL}, /* one state may serve two inputs */
        {"a=", "x", "a", NULL, "--carry a=: is not OUT=IN"},
        {"=x", "x", "a", NULL, "is not OUT=IN"},
        {"nothing", "x", "a", NULL, "is not OUT=IN"},
        {"b=x", "x", "a ab", NULL, "--carry b=x: no output matches"},
        {"a=z", "x", "a", NULL, "output 'a' would go to 'z', which is not an input"},
        {"a.=x", "x", "a1 a2", NULL, "outputs 'a1' and 'a2' would both go to input 'x'"},
        {"a=x", "x#", "a", NULL, "output 'a' is FLOAT[4], and input 'x' takes INT64[4]"},
        {"a=x", "x!", "a", NULL, "output 'a' is FLOAT[4], and input 'x' takes FLOAT[5]"},
        {"(a=x", "x", "a", NULL, "--carry (a=x: "},
        {"(a)\\1=x", "x", "a", NULL, "back-references"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        oq_arena a;
        oq_carry c;
        onq_error err = ONQ_ERROR_INIT;
        oq_arena_init(&a, oq_alloc_default());
        const oq_ios in = make(&a, rows[i].in), out = make(&a, rows[i].out);
        const size_t n = strcspn(rows[i].rule, " ");
        const oq_str rules[] = {{rows[i].rule, n},
                                oq_str_of(rows[i].rule + n + (rows[i].rule[n] == ' '))};
        const onq_code rc =
            oq_carry_read(&a, rules, rows[i].rule[n] == ' ' ? 2 : 1, &in, &out, &c, &err);
        assert_int_equal(rc, rows[i].error == NULL ? ONQ_OK : ONQ_E_OPTION);
        if (rows[i].error != NULL && strstr(err.text, rows[i].error) == NULL)
            fail_msg("'%s' is not in '%s'", rows[i].error, err.text);
        if (rc == ONQ_OK)
            check(&c, &in, &out, rows[i].pairs);
        oq_arena_release(&a);
    }
}

static void states(void **state) {
    (void)state;
    oq_arena a;
    oq_carry c;
    onq_error err = ONQ_ERROR_INIT;
    bool is[5];
    oq_arena_init(&a, oq_alloc_default());
    /* A decoder without a past gives caches all the same. */
    const oq_ios in = make(&a, "x h0"),
                 out = make(&a, "logits present.0.key hn present_1 presents");
    assert_int_equal(oq_carry_find(&a, &in, &out, &c, &err), ONQ_OK);
    oq_carry_mark_states(&c, &out, is);
    assert_true(!is[0] && is[1] && is[2] && is[3] && !is[4]);
    oq_arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_name),
        cmocka_unit_test(by_rule),
        cmocka_unit_test(states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
