/*
 * fuzz_decode.c — any bytes as a model: refused with a message, or every view it shows can be read,
 * and checks, index, orders, dump and pruning take it as it is.
 */
#include "dump.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"

#include <stdio.h>

#include "fuzz.h"
#include "message_walk.h"
#include "model_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint32_t sink; /* keeps the reads */

static void use_index(oq_model *m) {
    oq_arena scratch;
    onq_error err = ONQ_ERROR_INIT;
    oq_index ix;
    uint32_t *order = NULL;
    oq_arena_init(&scratch, &m->env->alloc);
    if (oq_index_build(&ix, &scratch, m->proto->graph, NULL, &err) == ONQ_OK &&
        oq_topo_order(&ix, &scratch, &order, &err) == ONQ_OK)
        for (size_t i = 0; i < m->proto->graph->node.n; i++)
            MUST(order[i] < m->proto->graph->node.n);
    oq_names names;
    if (oq_names_collect(&names, &scratch, m, &err) == ONQ_OK) {
        const oq_str fresh = oq_names_unique(&names, OQ_S("x"));
        MUST(fresh.p == NULL || oq_names_has(&names, fresh));
    }
    oq_arena_release(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    onq_env *env = onq_env_new(NULL);
    oq_model *m = NULL;
    onq_error err = ONQ_ERROR_INIT;
    const onq_code rc = oq_model_open_memory(env, data, size, NULL, &m, &err);
    if (rc != ONQ_OK) {
        MUST(err.code == rc && err.text[0] != '\0' && m == NULL);
    } else {
        sink = walk_message(1, OQ_SCHEMA_model_proto, m->proto);
        use_index(m);
        const onq_code checked = oq_model_check(m, &err);
        oq_buf text;
        oq_buf_init(&text, &env->alloc);
        /* A valid model can be dumped whole: every payload has the size that it should. */
        const onq_code dumped = oq_dump_model(m, &text, &err);
        MUST(checked != ONQ_OK || dumped == ONQ_OK);
        oq_buf_release(&text);
        if (oq_graph_prune_inits(m, m->proto->graph, &err) == ONQ_OK &&
            oq_graph_prune(m, m->proto->graph, &err) == ONQ_OK && checked == ONQ_OK)
            MUST(oq_model_check(m, &err) == ONQ_OK);
        (void)oq_topo_sort_reference(m, m->proto->graph, &err);
    }
    oq_model_free(m);
    onq_env_free(env);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    return mutate_model(data, size, max, seed, 0);
}
