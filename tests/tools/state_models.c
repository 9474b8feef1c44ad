/*
 * state_models.c — writes small models with states and samples for them; for tests/cli/docs.sh and
 * help_examples.sh.
 *
 *     state_models FOLDER
 *
 * stream.onnx takes a frame x and a state, and gives y and stateN; signals/K.npz has 24 frames along
 * its first axis. decoder.onnx takes input_ids and a cache, and gives logits and the cache with what
 * was added; prompts/K.npz has a few tokens. grouped.onnx is the same with GroupQueryAttention.
 */
#include "build_model.h"
#include "samples/files/npz_write.h"
#include "testing.h"

#include <stdio.h>
#include <sys/stat.h>

#define SEQUENCES 12
#define FRAMES    24
#define WIDTH     8
#define WORDS     40

static onq_error err;

static void save(bm *b, const char *folder, const char *name) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_false(b->failed);
    assert_ok(oq_model_save(b->m, path, NULL, &err), err);
    bm_end(b);
}

static void make_stream(const char *folder) {
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "x", OQ_FLOAT, "1,6");
    bm_input(&b, "state", OQ_FLOAT, "1,8");
    bm_weight(&b, "w", "6,8", 1);
    bm_weight(&b, "r", "8,8", 2);
    bm_weight(&b, "v", "8,4", 3);
    bm_node(&b, "MatMul", "in", "x w", "a", NULL);
    bm_node(&b, "MatMul", "back", "state r", "c", NULL);
    bm_node(&b, "Add", "sum", "a c", "s", NULL);
    bm_node(&b, "Tanh", "squash", "s", "stateN", NULL);
    bm_node(&b, "MatMul", "out", "stateN v", "y", NULL);
    bm_output(&b, "y", OQ_FLOAT, "1,4");
    bm_output(&b, "stateN", OQ_FLOAT, "1,8");
    save(&b, folder, "stream.onnx");
}

static void make_decoder(const char *folder) {
    const int64_t heads[] = {0, 0, 1, WIDTH}, whole[] = {0, 0, WIDTH};
    bm b;
    bm_begin(&b, NULL, 17);
    bm_input(&b, "input_ids", OQ_INT64, "batch,length");
    bm_input(&b, "past_key_values.0.key", OQ_FLOAT, "batch,1,past,8");
    bm_weight(&b, "words", "40,8", 4);
    bm_weight(&b, "wq", "8,8", 5);
    bm_weight(&b, "wk", "8,8", 6);
    bm_weight(&b, "wl", "8,40", 7);
    bm_i64(&b, "heads", "4", heads);
    bm_i64(&b, "whole", "3", whole);
    bm_node(&b, "Gather", "look", "words input_ids", "e", NULL);
    bm_node(&b, "MatMul", "query", "e wq", "q0", NULL);
    bm_node(&b, "Reshape", "query_heads", "q0 heads", "q1", NULL);
    bm_node(&b, "Transpose", "query_rows", "q1", "q", "perm=[0,2,1,3]");
    bm_node(&b, "MatMul", "key", "e wk", "k0", NULL);
    bm_node(&b, "Reshape", "key_heads", "k0 heads", "k1", NULL);
    bm_node(&b, "Transpose", "key_rows", "k1", "k", "perm=[0,2,1,3]");
    bm_node(&b, "Concat", "cache", "past_key_values.0.key k", "present.0.key", "axis=2");
    bm_node(&b, "Transpose", "turn", "present.0.key", "kt", "perm=[0,1,3,2]");
    bm_node(&b, "MatMul", "scores", "q kt", "s", NULL);
    bm_node(&b, "Softmax", "weigh", "s", "a", "axis=-1");
    bm_node(&b, "MatMul", "mix", "a present.0.key", "c0", NULL);
    bm_node(&b, "Transpose", "back", "c0", "c1", "perm=[0,2,1,3]");
    bm_node(&b, "Reshape", "join", "c1 whole", "c", NULL);
    bm_node(&b, "Add", "sum", "e c", "y", NULL);
    bm_node(&b, "MatMul", "head", "y wl", "logits", NULL);
    bm_output(&b, "logits", OQ_FLOAT, "batch,length,40");
    bm_output(&b, "present.0.key", OQ_FLOAT, "batch,1,total,8");
    save(&b, folder, "decoder.onnx");
}

static void make_grouped(const char *folder) {
    bm b;
    bm_begin(&b, NULL, 17);
    bm_grouped(&b);
    save(&b, folder, "grouped.onnx");
}

static void write_npz(const char *folder, int number, const char *name, const oq_datum *d) {
    char path[4096];
    oq_buf bytes;
    const oq_io io = {.name = oq_str_of(name)};
    onq_env *env = onq_env_new(NULL);
    assert_non_null(env);
    oq_buf_init(&bytes, &env->alloc);
    assert_ok(oq_npz_write(&bytes, d, &io, 1, &err), err);
    (void)snprintf(path, sizeof path, "%s/%02d.npz", folder, number);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.p, 1, bytes.n, f), bytes.n);
    assert_int_equal(fclose(f), 0);
    oq_buf_release(&bytes);
    onq_env_free(env);
}

/* A wave, faster in each sequence. */
static void make_signals(const char *folder) {
    static float v[FRAMES * 6];
    const int64_t dims[] = {FRAMES, 1, 6};
    for (int k = 0; k < SEQUENCES; k++) {
        for (int i = 0; i < FRAMES * 6; i++)
            v[i] = (float)((i * (k + 3)) % 23 - 11) / 8;
        const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                            .dtype = OQ_FLOAT,
                            .rank = 3,
                            .dims = dims,
                            .count = FRAMES * 6,
                            .data = v,
                            .size_bytes = sizeof v};
        write_npz(folder, k, "x", &d);
    }
}

static void make_prompts(const char *folder) {
    int64_t v[16];
    for (int k = 0; k < SEQUENCES; k++) {
        const int64_t n = 4 + k % 5, dims[] = {1, n};
        for (int64_t i = 0; i < n; i++)
            v[i] = (i * 7 + k * 11) % WORDS;
        const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                            .dtype = OQ_INT64,
                            .rank = 2,
                            .dims = dims,
                            .count = (uint64_t)n,
                            .data = v,
                            .size_bytes = 8 * (uint64_t)n};
        write_npz(folder, k, "input_ids", &d);
    }
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc != 2)
        return 2;
    make_stream(argv[1]);
    make_decoder(argv[1]);
    make_grouped(argv[1]);
    (void)snprintf(path, sizeof path, "%s/signals", argv[1]);
    (void)mkdir(path, 0777);
    make_signals(path);
    (void)snprintf(path, sizeof path, "%s/prompts", argv[1]);
    (void)mkdir(path, 0777);
    make_prompts(path);
    return 0;
}
