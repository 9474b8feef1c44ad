/*
 * test_budget.c — opening, checking and indexing a model with 3 GB of external weights, or 1 GB
 * inside, allocates a few hundred KiB and touches none of the weights. The files are sparse: cheap
 * to make, large to map.
 */
#include "build_model.h"
#include "flaky_alloc.h"
#include "onnx/check/check.h"
#include "onnx/codec/wire.h"
#include "scratch.h"
#include "testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    TENSORS = 96,
    MAX_ALLOCATED = 1 << 20, /* bytes, whatever the weights */
};

static const uint64_t tensor_bytes = (uint64_t)32 << 20; /* 96 of them: 3 GiB */

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

/* Pages of a file that are in memory. */
static size_t resident_pages(const oq_file *f) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (f->size + page - 1) / page;
    unsigned char *seen = malloc(n);
    assert_non_null(seen);
    void *p = (void *)(uintptr_t)f->p;
    assert_int_equal(mincore(p, f->size, seen), 0);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += seen[i] & 1;
    free(seen);
    return count;
}

static oq_tensor *external_tensor(bm *b, int i) {
    const int64_t dims[] = {(int64_t)(tensor_bytes / 4)};
    oq_str name = oq_str_format(b->a, "w%d", i);
    oq_tensor *t = oq_tensor_new(b->a, name, OQ_FLOAT, dims, 1);
    const oq_str values[] = {OQ_S("weights.bin"),
                             oq_str_format(b->a, "%llu", (unsigned long long)i * tensor_bytes),
                             oq_str_format(b->a, "%llu", (unsigned long long)tensor_bytes)};
    const oq_str keys[] = {OQ_S("location"), OQ_S("offset"), OQ_S("length")};
    t->data_location = OQ_I32(1);
    for (size_t k = 0; k < 3; k++) {
        oq_entry *e = OQ_NEW(b->a, oq_entry);
        e->key = keys[k];
        e->value = values[k];
        assert_true(OQ_PUSH(b->a, &t->external_data, e));
    }
    return t;
}

static const char *external_model(void) {
    const char *data = scratch_file(&dir, "weights.bin", "", 0);
    assert_int_equal(truncate(data, (off_t)(tensor_bytes * TENSORS)), 0);
    bm b;
    onq_error err = ONQ_ERROR_INIT;
    char in[32], out[32];
    bm_begin(&b, NULL, 17);
    bm_input(&b, "t0", OQ_FLOAT, "N,1024");
    for (int i = 0; i < TENSORS; i++) {
        snprintf(in, sizeof in, "t%d w%d", i, i);
        snprintf(out, sizeof out, "t%d", i + 1);
        bm_node(&b, "Add", out, in, out, "");
        assert_true(oq_graph_add_init(b.a, b.g, external_tensor(&b, i)));
    }
    bm_output(&b, out, OQ_FLOAT, NULL);
    oq_buf bytes;
    oq_buf_init(&bytes, oq_alloc_default());
    assert_ok(oq_model_encode(b.m, &bytes, &err), err);
    const char *path = scratch_file(&dir, "model.onnx", bytes.p, bytes.n);
    oq_buf_release(&bytes);
    bm_end(&b);
    return path;
}

/* Opens, checks (every payload's size), indexes and sorts; returns the model. */
static oq_model *look(onq_env *env, const char *path) {
    oq_model *m = NULL;
    onq_error err = ONQ_ERROR_INIT;
    oq_arena scratch_arena;
    oq_index ix;
    uint32_t *order = NULL;
    assert_ok(oq_model_open(env, path, NULL, &m, &err), err);
    assert_ok(oq_model_check(m, &err), err);
    oq_arena_init(&scratch_arena, &env->alloc);
    assert_ok(oq_index_build(&ix, &scratch_arena, m->proto->graph, NULL, &err), err);
    assert_ok(oq_topo_order(&ix, &scratch_arena, &order, &err), err);
    oq_arena_release(&scratch_arena);
    return m;
}

static void three_gigabytes_outside(void **state) {
    (void)state;
    const char *path = external_model();
    flaky f;
    flaky_init(&f, -1);
    onq_env *env = onq_env_new(&f.alloc);
    oq_model *m = look(env, path);
    oq_span raw;
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_model_data(m, m->proto->graph->initializer.v[TENSORS - 1], &raw, &err), err);
    assert_int_equal(raw.n, tensor_bytes);
    assert_int_equal(m->ext.n, 1);
    assert_int_equal(resident_pages(&m->ext.v[0]->file), 0);
    print_message("3 GiB outside: %zu bytes allocated at most, %zu requests\n",
                  atomic_load(&f.peak), atomic_load(&f.n_calls));
    assert_true(atomic_load(&f.peak) < MAX_ALLOCATED);
    oq_model_free(m);
    onq_env_free(env);
    assert_int_equal(atomic_load(&f.live), 0);
}

/* One tensor of 1 GiB in raw_data, written as a sparse file by hand. */
static const char *inline_model(uint64_t weight) {
    uint8_t buf[128], *p = buf;
    uint8_t head[64], *h = head;
    /* tensor { dims, data_type, name, raw_data } */
    *h++ = 8;
    h = oq_varint_put(h, weight / 4);
    *h++ = 16, *h++ = 1, *h++ = 8 << 3 | 2, *h++ = 1, *h++ = 'w', *h++ = 9 << 3 | 2;
    h = oq_varint_put(h, weight);
    const uint64_t tensor = (uint64_t)(h - head) + weight;
    *p++ = 8, *p++ = 8, *p++ = 8 << 3 | 2, *p++ = 2, *p++ = 16, *p++ = 13, *p++ = 7 << 3 | 2;
    p = oq_varint_put(p, 1 + oq_varint_size(tensor) + tensor);
    *p++ = 5 << 3 | 2;
    p = oq_varint_put(p, tensor);
    memcpy(p, head, (size_t)(h - head));
    p += h - head;
    const char *path = scratch_file(&dir, "inline.onnx", buf, (size_t)(p - buf));
    assert_int_equal(truncate(path, (off_t)((uint64_t)(p - buf) + weight)), 0);
    return path;
}

static void a_gigabyte_inside(void **state) {
    (void)state;
    const char *path = inline_model((uint64_t)1 << 30);
    flaky f;
    flaky_init(&f, -1);
    onq_env *env = onq_env_new(&f.alloc);
    oq_model *m = look(env, path);
    print_message("1 GiB inside: %zu bytes allocated at most; %zu pages read\n",
                  atomic_load(&f.peak), resident_pages(&m->file));
    assert_true(atomic_load(&f.peak) < MAX_ALLOCATED);
    /* The head of the file, with what the kernel reads ahead. */
    assert_true(resident_pages(&m->file) < 1024);
    oq_model_free(m);
    onq_env_free(env);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    print_message("peak resident %ld KiB\n", u.ru_maxrss);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_gigabytes_outside),
        cmocka_unit_test(a_gigabyte_inside),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
