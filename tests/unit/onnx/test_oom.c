/*
 * test_oom.c — the allocation-failure sweep over open, edit and save: every run ends in success or
 * a clean out-of-memory error, nothing leaks, and a failed save leaves the target as it was and no
 * litter.
 */
#include "base/os.h"
#include "build_model.h"
#include "dump.h"
#include "flaky_alloc.h"
#include "onnx/check/check.h"
#include "scratch.h"
#include "testing.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static scratch dir;

static int set_up(void **state) {
    (void)state;
    scratch_init(&dir);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_remove(&dir);
    return 0;
}

/* Every storage, a subgraph, a function, metadata. */
static void fill(bm *b) {
    bm_input(b, "x", OQ_FLOAT, "N,3");
    bm_input(b, "c", OQ_BOOL, "");
    bm_weight(b, "w", "3,400", 1);
    bm_weight(b, "small", "2", 2);
    bm_weight(b, "unused", "700", 3);
    bm_node(b, "MatMul", "mm", "x w", "t", "");
    oq_node *n = bm_node(b, "If", "if", "c", "r", "");
    for (int k = 0; k < 2; k++) {
        oq_graph *around = bm_enter(b, n, k == 0 ? "then_branch" : "else_branch");
        bm_node(b, "Neg", "neg", "t", "u", "");
        bm_output(b, "u", OQ_FLOAT, NULL);
        bm_leave(b, around);
    }
    bm_output(b, "r", OQ_FLOAT, "N,400");
    if (b->failed)
        return;
    const int64_t dims[] = {3}, v[] = {1, -200, 300};
    oq_tensor *t = oq_tensor_new(b->a, OQ_S("typed"), OQ_INT64, dims, 1);
    onq_error err = ONQ_ERROR_INIT;
    if (t == NULL || oq_tensor_set_typed_i(b->a, t, v, 3, &err) != ONQ_OK ||
        !oq_graph_add_init(b->a, b->g, t) ||
        oq_model_set_metadata(b->m, OQ_S("k"), OQ_S("v"), &err) != ONQ_OK)
        b->failed = true;
}

/* A model built and saved with a working allocator. */
static const char *make_model(const char *name, const oq_save_options *opts) {
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    const char *path = scratch_path(&dir, name);
    bm_begin(&b, NULL, 17);
    fill(&b);
    assert_ok(oq_model_save(b.m, path, opts, &err), err);
    bm_end(&b);
    return path;
}

static onq_code with_model(const onq_allocator *a, const char *path,
                           onq_code (*use)(oq_model *m, onq_error *err), onq_error *err) {
    onq_env *env = onq_env_new(a);
    if (env == NULL)
        return oq_fail_nomem(err);
    onq_env_set_threads(env, 1);
    oq_model *m = NULL;
    onq_code rc = oq_model_open(env, path, NULL, &m, err);
    if (rc == ONQ_OK)
        rc = use(m, err);
    oq_model_free(m);
    onq_env_free(env);
    return rc;
}

/* ---- reading ---- */

static onq_code read_everything(oq_model *m, onq_error *err) {
    OQ_TRY(oq_model_check(m, err));
    for (size_t i = 0; i < m->proto->graph->initializer.n; i++) {
        oq_span raw;
        OQ_TRY(oq_model_data(m, m->proto->graph->initializer.v[i], &raw, err));
    }
    oq_buf text;
    oq_buf_init(&text, &m->env->alloc);
    const onq_code rc = oq_dump_model(m, &text, err);
    oq_buf_release(&text);
    return rc;
}

static onq_code read_body(const onq_allocator *a, void *ctx, onq_error *err) {
    return with_model(a, ctx, read_everything, err);
}

static void reading(void **state) {
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s", make_model("in.onnx", NULL));
    assert_true(flaky_sweep(read_body, path) > 10);
    const oq_save_options opts = {.external = OQ_EXTERNAL_EACH, .threshold = 100};
    snprintf(path, sizeof path, "%s", make_model("ext.onnx", &opts));
    assert_true(flaky_sweep(read_body, path) > 10);
}

/* ---- building ---- */

static onq_code build_body(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    bm b;
    bm_begin(&b, a, 17);
    if (!b.failed)
        fill(&b);
    const bool failed = b.failed;
    bm_end(&b);
    return failed ? oq_fail_nomem(err) : ONQ_OK;
}

static void building(void **state) {
    (void)state;
    assert_true(flaky_sweep(build_body, NULL) > 3);
}

/* ---- editing and saving ---- */

static onq_code edit(oq_model *m, onq_error *err) {
    oq_graph *g = m->proto->graph;
    oq_names names;
    oq_model_touch(m);
    OQ_TRY(oq_names_collect(&names, &m->arena, m, err));
    const oq_str fresh = oq_names_unique(&names, OQ_S("t"));
    oq_node *n = fresh.p != NULL
                     ? oq_node_make(&m->arena, "Neg", fresh, &(oq_str){"t", 1}, 1, &fresh, 1)
                     : NULL;
    if (n == NULL || !oq_attr_set_int(&m->arena, n, OQ_S("i"), 1) ||
        !oq_graph_add_node(&m->arena, g, n))
        return oq_fail_nomem(err);
    oq_map map;
    oq_map_init(&map, &m->arena);
    if (!oq_map_put(&map, OQ_S("nothing"), 0))
        return oq_fail_nomem(err);
    OQ_TRY(oq_graph_replace_many(m, g, &map, &(oq_str){"t", 1}, err));
    OQ_TRY(oq_graph_prune_inits(m, g, err));
    OQ_TRY(oq_graph_prune(m, g, err));
    OQ_TRY(oq_topo_sort_reference(m, g, err));
    return oq_model_set_opset(m, OQ_S("com.microsoft"), 1, err);
}

typedef struct saving {
    const char *in, *out;
    const oq_save_options *opts;
} saving;

/* Each run begins with one old file: what a run that succeeded left beside it is taken away. */
static void clear_out(void) {
    const char *out = scratch_path(&dir, "out");
    char path[OQ_PATH_MAX];
    DIR *d = opendir(out);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", out, e->d_name) > 0)
            remove(path);
    closedir(d);
}

static onq_code save_body(const onq_allocator *a, void *ctx, onq_error *err) {
    const saving *s = ctx;
    static const char old[] = "what stood there before";
    clear_out();
    scratch_file(&dir, "out/model.onnx", old, sizeof old);
    onq_env *env = onq_env_new(a);
    if (env == NULL)
        return oq_fail_nomem(err);
    onq_env_set_threads(env, 1);
    oq_model *m = NULL;
    onq_code rc = oq_model_open(env, s->in, NULL, &m, err);
    if (rc == ONQ_OK)
        rc = edit(m, err);
    if (rc == ONQ_OK)
        rc = oq_model_save(m, s->out, s->opts, err);
    oq_model_free(m);
    onq_env_free(env);
    if (rc != ONQ_OK) {
        assert_true(file_holds(s->out, old, sizeof old));
        assert_int_equal(entry_count(scratch_path(&dir, "out")), 1);
    }
    return rc;
}

static void editing_and_saving(void **state) {
    (void)state;
    scratch_dir(&dir, "out");
    saving s = {.in = make_model("in.onnx", NULL), .out = scratch_path(&dir, "out/model.onnx")};
    assert_true(flaky_sweep(save_body, &s) > 10);
    const oq_save_options each = {.external = OQ_EXTERNAL_EACH, .threshold = 4000};
    s.opts = &each;
    assert_true(flaky_sweep(save_body, &s) > 10);
}

/* ---- encoding to memory ---- */

static onq_code encode_everything(oq_model *m, onq_error *err) {
    OQ_TRY(edit(m, err));
    oq_buf out;
    oq_buf_init(&out, &m->env->alloc);
    const onq_code rc = oq_model_encode(m, &out, err);
    oq_buf_release(&out);
    return rc;
}

static onq_code encode_body(const onq_allocator *a, void *ctx, onq_error *err) {
    return with_model(a, ctx, encode_everything, err);
}

static void encoding(void **state) {
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s", make_model("in.onnx", NULL));
    assert_true(flaky_sweep(encode_body, path) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading),
        cmocka_unit_test(building),
        cmocka_unit_test(editing_and_saving),
        cmocka_unit_test(encoding),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
