/*
 * test_malformed.c — every bad model of tests/hostile/malformed is refused with the code, the byte
 * and the word that expected.tsv names; and those too large to keep, made here.
 */
#include "onnx/check/check.h"
#include "scratch.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct row {
    char *name, *stage, *code, *offset, *word;
} row;

static const char *root(void) {
    const char *r = getenv("ONQ_ROOT");
    return r != NULL ? r : ".";
}

static bool split(char *line, row *r) {
    char **const fields[] = {&r->name, &r->stage, &r->code, &r->offset, &r->word};
    line[strcspn(line, "\n")] = '\0';
    char *rest = line;
    for (size_t i = 0; i < OQ_COUNT(fields); i++)
        *fields[i] = strsep(&rest, "\t");
    return r->word != NULL;
}

/* Opens and checks; *at is the stage that failed. */
static onq_code judge(const char *path, const char **at, onq_error *err) {
    onq_env *env = onq_env_new(NULL);
    assert_non_null(env);
    oq_model *m = NULL;
    *at = "open";
    onq_code rc = oq_model_open(env, path, NULL, &m, err);
    if (rc == ONQ_OK) {
        *at = "check";
        rc = oq_model_check(m, err);
    }
    oq_model_free(m);
    onq_env_free(env);
    return rc;
}

/* False, and a line that says why, when it is not refused as it should be. */
static bool judge_row(const row *r) {
    char path[4096];
    const char *at = NULL;
    onq_error err = ONQ_ERROR_INIT;
    snprintf(path, sizeof path, "%s/tests/hostile/malformed/%s.onnx", root(), r->name);
    const onq_code rc = judge(path, &at, &err);
    const bool offset_fits =
        r->offset[0] == '?' ? err.offset >= 0 : err.offset == strtoll(r->offset, NULL, 10);
    if ((int)rc != atoi(r->code) || strcmp(at, r->stage) != 0 || !offset_fits ||
        strstr(err.text, r->word) == NULL || strncmp(err.text, path, strlen(path)) != 0) {
        print_error("%s: %s, code %d, offset %lld, \"%s\"; wanted %s, code %s, offset %s, \"%s\"\n",
                    r->name, at, (int)rc, (long long)err.offset, err.text, r->stage, r->code,
                    r->offset, r->word);
        return false;
    }
    return true;
}

static void every_file(void **state) {
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/hostile/malformed/expected.tsv", root());
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *line = NULL;
    size_t size = 0, count = 0, wrong = 0;
    while (getline(&line, &size, f) > 0) {
        row r = {0};
        assert_true(split(line, &r));
        wrong += !judge_row(&r);
        count++;
    }
    free(line);
    fclose(f);
    assert_int_equal(wrong, 0);
    assert_true(count > 90);
}

/* ---- made here ---- */

/* A file of n times `unit` after `head`. */
static const char *repeated(scratch *s, const char *head, size_t head_n, const char *unit,
                            size_t unit_n, size_t n) {
    char *p = malloc(head_n + unit_n * n + 1);
    assert_non_null(p);
    memcpy(p, head, head_n);
    for (size_t i = 0; i < n; i++)
        memcpy(p + head_n + i * unit_n, unit, unit_n);
    const char *path = scratch_file(s, "model.onnx", p, head_n + unit_n * n);
    free(p);
    return path;
}

static long peak_kib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* Nested 100,000 deep: each level is a length-delimited field that holds the rest. */
static void nesting_without_end(void **state) {
    (void)state;
    enum { LEVELS = 100000 };
    const struct {
        uint8_t fields[4]; /* the path of fields that repeats */
        size_t n;
        uint8_t first; /* the field of the model it starts in */
    } paths[] = {
        {{1, 5, 6}, 3, 7},  /* graph, node, attribute, graph */
        {{1, 5, 11}, 3, 7}, /* the same in `graphs` */
        {{2, 4, 1}, 1, 99}, /* an unknown field: not looked into */
        {{13, 2, 4},
         3,
         7}, /* value_info, type, sequence ... ends as unknown fields of a sequence */
    };
    for (size_t k = 0; k < OQ_COUNT(paths); k++) {
        scratch s;
        scratch_init(&s);
        /* Built from the inside out, at the end of a buffer. */
        const size_t size = (size_t)LEVELS * 8;
        uint8_t *p = malloc(size);
        assert_non_null(p);
        size_t begin = size;
        for (size_t i = LEVELS; i-- > 0;) {
            const uint8_t field = i == 0 ? paths[k].first : paths[k].fields[(i - 1) % paths[k].n];
            size_t n = size - begin;
            uint8_t length[10];
            size_t digits = 0;
            do {
                length[digits++] = (uint8_t)((n & 127) | (n > 127 ? 128 : 0));
                n >>= 7;
            } while (n != 0);
            begin -= digits;
            memcpy(p + begin, length, digits);
            p[--begin] = (uint8_t)((field & 15) << 3 | 2);
        }
        const char *at = NULL;
        onq_error err = ONQ_ERROR_INIT;
        const char *path = scratch_file(&s, "deep.onnx", p + begin, size - begin);
        const onq_code rc = judge(path, &at, &err);
        assert_true(rc == ONQ_E_LIMIT || rc == ONQ_E_INVALID || rc == ONQ_E_MALFORMED);
        if (k < 2)
            assert_int_equal(rc, ONQ_E_LIMIT);
        free(p);
        scratch_remove(&s);
    }
}

/* Millions of empty messages: refused or read, within a bounded multiple of the file. */
static void millions_of_empty_messages(void **state) {
    (void)state;
    const struct {
        const char *unit;
        size_t n;
    } units[] = {
        {"\x42\x00", 2},                 /* opset_import {} */
        {"\x72\x00", 2},                 /* metadata_props {} */
        {"\xca\x01\x00", 3},             /* functions {} */
        {"\x3a\x02\x0a\x00", 4},         /* graph { node {} }, merged each time */
        {"\x3a\x02\x2a\x00", 4},         /* graph { initializer {} } */
        {"\x3a\x04\x0a\x02\x0a\x00", 6}, /* graph { node { input "" } } */
    };
    enum { COUNT = 3000000 };
    for (size_t i = 0; i < OQ_COUNT(units); i++) {
        scratch s;
        scratch_init(&s);
        const char *path = repeated(&s, "\x08\x08", 2, units[i].unit, units[i].n, COUNT);
        const char *at = NULL;
        onq_error err = ONQ_ERROR_INIT;
        assert_int_not_equal(judge(path, &at, &err), ONQ_OK);
        assert_true(err.text[0] != '\0');
        scratch_remove(&s);
    }
    /* Set where a tool multiplies the memory of a process: thread sanitizer, valgrind. */
    if (getenv("ONQ_TEST_LOOSE") == NULL)
        assert_true(peak_kib() < 1024 * 1024);
}

/* ---- files that are not files ---- */

static void put_entry(uint8_t **p, const char *key, const char *v) {
    const size_t k = strlen(key), n = strlen(v);
    *(*p)++ = 13 << 3 | 2;
    *(*p)++ = (uint8_t)(k + n + 4);
    *(*p)++ = 1 << 3 | 2;
    *(*p)++ = (uint8_t)k;
    memcpy(*p, key, k);
    *p += k;
    *(*p)++ = 2 << 3 | 2;
    *(*p)++ = (uint8_t)n;
    memcpy(*p, v, n);
    *p += n;
}

/* A model with one tensor of eight bytes at `location`. */
static const char *external_model(scratch *s, const char *location) {
    uint8_t tensor[256], *t = tensor;
    const uint8_t head[] = {8, 2, 16, 1, 8 << 3 | 2, 1, 'w', 14 << 3, 1};
    memcpy(t, head, sizeof head);
    t += sizeof head;
    put_entry(&t, "location", location);
    put_entry(&t, "length", "8");
    const size_t n = (size_t)(t - tensor);
    assert_true(n < 120);
    uint8_t model[512], *m = model;
    *m++ = 8, *m++ = 8;                                /* ir_version */
    *m++ = 8 << 3 | 2, *m++ = 2, *m++ = 16, *m++ = 13; /* opset */
    *m++ = 7 << 3 | 2, *m++ = (uint8_t)(n + 2);        /* graph */
    *m++ = 5 << 3 | 2, *m++ = (uint8_t)n;              /* initializer */
    memcpy(m, tensor, n);
    m += n;
    return scratch_file(s, "model.onnx", model, (size_t)(m - model));
}

static void refused(scratch *s, const char *location, onq_code code) {
    const char *at = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = judge(external_model(s, location), &at, &err);
    if (rc != code || strstr(err.text, "tensor 'w'") == NULL)
        fail_msg("%s: code %d, \"%s\"", location, (int)rc, err.text);
}

static void external_links_and_devices(void **state) {
    (void)state;
    scratch s, outside;
    scratch_init(&s);
    scratch_init(&outside);
    const char *secret = scratch_file(&outside, "secret.bin", "12345678", 8);
    scratch_file(&s, "plain.bin", "12345678", 8);
    scratch_link(&s, "inside.bin", "plain.bin");
    scratch_link(&s, "absolute.bin", secret);
    scratch_link(&s, "loop.bin", "loop.bin");
    scratch_link(&s, "folder", outside.dir);
    scratch_dir(&s, "sub");
    assert_int_equal(mkfifo(scratch_path(&s, "fifo.bin"), 0600), 0);
    assert_int_equal(link(secret, scratch_path(&s, "hard.bin")), 0);

    const char *at = NULL;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(judge(external_model(&s, "plain.bin"), &at, &err), err);
    assert_ok(judge(external_model(&s, "inside.bin"), &at, &err), err);
    refused(&s, "absolute.bin", ONQ_E_PATH);
    refused(&s, "loop.bin", ONQ_E_PATH);
    refused(&s, "folder/secret.bin", ONQ_E_PATH);
    refused(&s, "sub", ONQ_E_PATH);
    refused(&s, "fifo.bin", ONQ_E_PATH);
    refused(&s, "hard.bin", ONQ_E_PATH);
    refused(&s, "plain.bin/x", ONQ_E_OPEN);
    scratch_remove(&outside);
    scratch_remove(&s);
}

static void models_that_are_no_plain_file(void **state) {
    (void)state;
    scratch s;
    scratch_init(&s);
    assert_int_equal(mkfifo(scratch_path(&s, "fifo.onnx"), 0600), 0);
    const char *const paths[] = {scratch_path(&s, "fifo.onnx"), s.dir, "/dev/zero", "/dev/null",
                                 scratch_path(&s, "none.onnx")};
    for (size_t i = 0; i < OQ_COUNT(paths); i++) {
        const char *at = NULL;
        onq_error err = ONQ_ERROR_INIT;
        assert_int_equal(judge(paths[i], &at, &err),
                         i + 1 < OQ_COUNT(paths) ? ONQ_E_OPEN : ONQ_E_MISSING);
        assert_non_null(strstr(err.text, paths[i]));
    }
    scratch_remove(&s);
}

/* Every prefix of a good model is refused or is a good model; never a crash. */
static void every_truncation(void **state) {
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/examples/digits_cnn/model.onnx", root());
    onq_env *env = onq_env_new(NULL);
    oq_file f;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_file_open(&f, oq_alloc_default(), path, &err), err);
    for (uint64_t n = 0; n < f.size; n += n < 3000 || n + 3000 > f.size ? 1 : 37) {
        oq_model *m = NULL;
        onq_code rc = oq_model_open_memory(env, f.p, n, NULL, &m, &err);
        assert_true(rc == ONQ_OK || rc == ONQ_E_MALFORMED || rc == ONQ_E_INVALID);
        if (rc == ONQ_OK)
            (void)oq_model_check(m, &err);
        oq_model_free(m);
    }
    oq_file_close(&f);
    onq_env_free(env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file),
        cmocka_unit_test(nesting_without_end),
        cmocka_unit_test(millions_of_empty_messages),
        cmocka_unit_test(external_links_and_devices),
        cmocka_unit_test(models_that_are_no_plain_file),
        cmocka_unit_test(every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
