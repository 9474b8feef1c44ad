/*
 * test_pattern.c — regular expressions: against the C library's on random ones, and in bounded time.
 */
#include "testing.h"

#include "base/arena.h"
#include "base/text/pattern.h"

#include <regex.h>

static uint64_t seed = 7;

static unsigned draw(unsigned n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* Pieces over a small alphabet, so that names often match. Some make expressions that are wrong. */
static void random_expression(char *out, size_t cap, bool plain) {
    static const char *const all[] = {
        "a",    "b",     "c",   ".",     "a*",  "b+",  "c?",   "(",    ")",           "|",
        "[ab]", "[^a]",  "{2}", "{1,3}", "*",   "+",   "\\.",  "\\b",  "[[:alpha:]]", "{,2}",
        "()",   "[a-c]", "\\<", "\\>",   "\\w", "\\W", "[]a]", "{2,}", "_",           "\\B"};
    static const char *const simple[] = {"a",  "b",    "c",       ".",    "a*",       "b+",
                                         "c?", "(a*)", "([bc]+)", "(.*)", "([a-b]?)", "b{1,2}"};
    /* The C library is wrong about conditions inside of repeated groups: "(^b)+" is not found in "bc". */
    strcpy(out, plain || draw(4) != 0 ? "" : "^");
    for (unsigned n = 1 + draw(8); n > 0; n--) {
        const char *piece = plain ? simple[draw(OQ_COUNT(simple))] : all[draw(OQ_COUNT(all))];
        if (strlen(out) + strlen(piece) + 1 < cap)
            strcat(out, piece);
    }
    if (!plain && draw(4) == 0)
        strcat(out, "$");
}

static void random_name(char *out) {
    const unsigned n = draw(9);
    for (unsigned i = 0; i < n; i++)
        out[i] = "abc_. /"[draw(7)];
    out[n] = '\0';
}

/* Whether names match, and where the groups of plain expressions are. */
static void test_like_the_c_library(void **state) {
    (void)state;
    unsigned good = 0, matches = 0;
    for (unsigned i = 0; i < 8000; i++) {
        const bool plain = i % 2 == 0;
        char body[128], text[160], name[16];
        random_expression(body, sizeof body, plain);
        snprintf(text, sizeof text, plain ? "^(%s)$" : "%s", body);
        oq_arena a;
        oq_regex *re = NULL;
        regex_t theirs;
        onq_error err = ONQ_ERROR_INIT;
        oq_arena_init(&a, oq_alloc_default());
        const bool ours = oq_regex_compile(&a, text, &re, &err) == ONQ_OK;
        const bool compiles = regcomp(&theirs, text, REG_EXTENDED) == 0;
        if (ours != compiles)
            fail_msg("'%s': ours %d, the C library's %d: %s", text, ours, compiles, err.text);
        for (unsigned k = 0; ours && k < 6; k++) {
            oq_regex_group groups[OQ_PATTERN_GROUPS];
            regmatch_t wanted[OQ_PATTERN_GROUPS];
            random_name(name);
            const bool found = oq_regex_match(re, oq_str_of(name), groups);
            const bool want = regexec(&theirs, name, OQ_COUNT(wanted), wanted, 0) == 0;
            if (found != want || found != oq_regex_match(re, oq_str_of(name), NULL))
                fail_msg("'%s' in '%s': %d, not %d", text, name, found, want);
            matches += found;
            for (size_t g = 0; plain && found && g < OQ_COUNT(groups); g++)
                if (groups[g].start != (size_t)wanted[g].rm_so ||
                    (wanted[g].rm_so >= 0 && groups[g].end != (size_t)wanted[g].rm_eo))
                    fail_msg("'%s' in '%s': group %zu", text, name, g);
        }
        good += ours;
        if (compiles)
            regfree(&theirs);
        oq_arena_release(&a);
    }
    assert_true(good > 3000 && matches > 2000);
}

/* Each of these takes some matchers time without end. */
static void test_bounded_time(void **state) {
    (void)state;
    static const char *const hostile[] = {"(a*)*b",
                                          "(a|a)*b",
                                          "(a|aa)+$",
                                          "((a+)+)+b",
                                          "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x",
                                          "(a?){60}a{60}b",
                                          "^(([a-z])+.)+[A-Z]([a-z])+$",
                                          "((((a*)*)*)*)*b",
                                          "(x+x+)+y",
                                          "(a{0,40}){0,40}b"};
    char name[1025];
    memset(name, 'a', 1024);
    name[1024] = '\0';
    const clock_t began = clock();
    for (size_t i = 0; i < OQ_COUNT(hostile); i++) {
        oq_arena a;
        oq_regex *re = NULL;
        oq_regex_group groups[OQ_PATTERN_GROUPS];
        oq_arena_init(&a, oq_alloc_default());
        assert_int_equal(oq_regex_compile(&a, hostile[i], &re, NULL), ONQ_OK);
        (void)oq_regex_match(re, oq_str_of(name), groups);
        oq_arena_release(&a);
    }
    assert_cpu_seconds(began, 10);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {{"(a)\\1", "back-references"},
               {"(a", "parenthesis"},
               {"[a", "bracket"},
               {"*a", "nothing before"},
               {"a{3,1}", "fewer"},
               {"a{x}", "number"},
               {"a\\", "backslash"},
               {"[b-a]", "range"},
               {"[[:no:]]", "class"},
               {"((a{100}){100}){100}", "too many"},
               {"a{9999999999}", "too many"}};
    oq_arena a;
    oq_arena_init(&a, oq_alloc_default());
    for (size_t i = 0; i < OQ_COUNT(bad); i++) {
        oq_regex *re = NULL;
        onq_error err = ONQ_ERROR_INIT;
        assert_int_equal(oq_regex_compile(&a, bad[i].text, &re, &err), ONQ_E_OPTION);
        if (strstr(err.text, bad[i].why) == NULL)
            fail_msg("'%s': %s", bad[i].text, err.text);
    }
    char deep[400] = "";
    memset(deep, '(', 200);
    oq_regex *re = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_int_equal(oq_regex_compile(&a, deep, &re, &err), ONQ_E_OPTION);
    assert_non_null(strstr(err.text, "too deep"));
    oq_arena_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_the_c_library),
        cmocka_unit_test(test_bounded_time),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
