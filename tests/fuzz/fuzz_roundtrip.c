/*
 * fuzz_roundtrip.c — what was decoded, encoded and decoded again is the same; so is an edited
 * model; and a second encoding gives the bytes of the first.
 */
#include "onnx/edit.h"

#include <stdio.h>

#include "fuzz.h"
#include "message_walk.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Encodes `m`, decodes that, and compares. Returns the encoding, which lives in `out`. */
static void there_and_back(onq_env *env, oq_model *m, oq_buf *out) {
    onq_error err = ONQ_ERROR_INIT;
    oq_model *again = NULL;
    oq_buf twice;
    oq_buf_init(&twice, &env->alloc);
    MUST(oq_model_encode(m, out, &err) == ONQ_OK);
    MUST(oq_encode_size(OQ_SCHEMA_model_proto, m->proto) == out->n);
    MUST(oq_model_open_memory(env, out->p, out->n, NULL, &again, &err) == ONQ_OK);
    MUST(same_message(OQ_SCHEMA_model_proto, m->proto, again->proto));
    MUST(oq_model_encode(again, &twice, &err) == ONQ_OK);
    MUST(same_bytes(out->p, out->n, twice.p, twice.n));
    oq_buf_release(&twice);
    oq_model_free(again);
}

static void edit(oq_model *m) {
    oq_arena *a = &m->arena;
    oq_graph *g = m->proto->graph;
    onq_error err = ONQ_ERROR_INIT;
    const int64_t dims[] = {2};
    oq_model_touch(m);
    oq_tensor *t = oq_tensor_new(a, OQ_S("fuzz_w"), OQ_FLOAT, dims, 1);
    oq_node *n = oq_node_new(a, "Fuzz", OQ_S("fuzz_n"));
    MUST(t != NULL && n != NULL && oq_tensor_set_raw(a, t, "12345678", 8, &err) == ONQ_OK);
    MUST(oq_node_add_input(a, n, OQ_S("fuzz_w")) && oq_node_add_output(a, n, OQ_S("")));
    MUST(oq_attr_set_int(a, n, OQ_S("i"), -1) && oq_attr_set_str(a, n, OQ_S("s"), OQ_S("")));
    MUST(oq_graph_add_init(a, g, t) && oq_graph_add_node(a, g, n));
    if (g->node.n > 1)
        OQ_REMOVE_AT(&g->node, 0);
    oq_map map;
    oq_map_init(&map, a);
    if (g->input.n != 0) {
        MUST(oq_map_put(&map, g->input.v[0]->name, 0));
        (void)oq_graph_replace_many(m, g, &map, &(oq_str){"fuzz_x", 6}, &err);
    }
    MUST(oq_model_set_opset(m, OQ_S(""), 21, &err) == ONQ_OK);
    MUST(oq_model_set_metadata(m, OQ_S("fuzz"), OQ_S("yes"), &err) == ONQ_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onq_env *env = onq_env_new(NULL);
    oq_model *m = NULL;
    onq_error err = ONQ_ERROR_INIT;
    if (oq_model_open_memory(env, data, size, NULL, &m, &err) == ONQ_OK) {
        oq_buf out;
        oq_buf_init(&out, &env->alloc);
        there_and_back(env, m, &out);
        oq_buf_release(&out);

        void *clone = oq_message_clone(&m->arena, OQ_SCHEMA_model_proto, m->proto);
        MUST(clone != NULL && same_message(OQ_SCHEMA_model_proto, m->proto, clone));
        const uint32_t before = walk_message(1, OQ_SCHEMA_model_proto, clone);

        edit(m);
        there_and_back(env, m, &out);
        oq_buf_release(&out);
        /* A clone is a model of its own. */
        MUST(walk_message(1, OQ_SCHEMA_model_proto, clone) == before);
    }
    oq_model_free(m);
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 0);
}
