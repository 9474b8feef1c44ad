/*
 * nbits_rig.c — see nbits_rig.h.
 */
#include "nbits_rig.h"

#include "testing.h"

#include <stdio.h>
#include <string.h>

const oq_nb_method *nbits_method(const char *name) {
    for (size_t i = 0; i < OQ_NB_METHODS; i++)
        if (strcmp(oq_nb_methods[i].name, name) == 0)
            return &oq_nb_methods[i];
    for (size_t i = 0; i < OQ_COUNT(oq_nb_bnb4_methods); i++)
        if (strcmp(oq_nb_bnb4_methods[i].name, name) == 0)
            return &oq_nb_bnb4_methods[i];
    fail_msg("there is no method '%s'", name);
    return NULL;
}

void nbits_rig_begin(nbits_rig *r, const onq_allocator *alloc, const char *method, unsigned bits,
                     uint64_t block, bool symmetric) {
    *r = (nbits_rig){0};
    quant_rig_begin(&r->q, alloc);
    oq_nb_config_init(&r->config, &r->q.config);
    r->config.how = (oq_nb_how){
        .method = nbits_method(method), .bits = bits, .block = block, .symmetric = symmetric};
    r->config.bnb4 = strcmp(method, "nf4") == 0 || strcmp(method, "fp4") == 0;
    if (!r->q.b.failed && oq_model_set_opset(r->q.b.m, OQ_S(""), 21, &r->q.err) != ONQ_OK)
        r->q.b.failed = true;
}

void nbits_rig_end(nbits_rig *r) {
    oq_nb_made_release(&r->made);
    quant_rig_end(&r->q);
}

void nbits_rig_product(nbits_rig *r, const char *shape, const float *w) {
    bm *b = &r->q.b;
    char rows[32];
    snprintf(rows, sizeof rows, "m,%d", atoi(shape));
    bm_input(b, "x", OQ_FLOAT, rows);
    bm_f32(b, "w", shape, w);
    bm_node(b, "MatMul", "mm", "x w", "y", "");
    bm_output(b, "y", OQ_FLOAT, NULL);
}

onq_code nbits_rig_run(nbits_rig *r, onq_error *err) {
    const oq_nb_job job = {
        .model = r->q.b.m, .config = &r->config, .plan = &r->q.plan, .made = &r->made};
    return r->q.b.failed ? oq_fail_nomem(err) : oq_nb_run(&job, err);
}

const void *nbits_rig_part(nbits_rig *r, const char *name, int type, const char *shape) {
    onq_error err = ONQ_ERROR_INIT;
    char dims[128] = "";
    oq_span data;
    oq_tensor *t = oq_graph_find_init(r->q.b.m->proto->graph, oq_str_of(name));
    if (t == NULL)
        fail_msg("there is no initializer '%s'", name);
    for (size_t i = 0; i < t->dims.n; i++) {
        const size_t at = strlen(dims);
        snprintf(dims + at, sizeof dims - at, "%s%lld", i > 0 ? "," : "", (long long)t->dims.v[i]);
    }
    assert_string_equal(dims, shape);
    assert_int_equal(t->data_type.v, type);
    assert_ok(oq_model_data(r->q.b.m, t, &data, &err), err);
    void *copy = oq_arena_alloc(&r->q.arena, data.n + 1);
    assert_non_null(copy);
    memcpy(copy, data.p, data.n);
    return copy;
}
