/*
 * quant_rig.c — see quant_rig.h.
 */
#include "quant_rig.h"

#include <stdlib.h>

void quant_rig_begin(quant_rig *r, const onq_allocator *alloc) {
    const onq_allocator *a = alloc != NULL ? alloc : oq_alloc_default();
    *r = (quant_rig){.err = ONQ_ERROR_INIT};
    bm_begin(&r->b, alloc, 13);
    oq_arena_init(&r->arena, a);
    oq_qconfig_init(&r->config, &r->arena);
    r->config.activation_type = OQ_UINT8;
    oq_qrun_init(&r->run, &r->config);
    oq_ranges_init(&r->ranges, a, OQ_CAL_MINMAX);
    r->extremes.arena = &r->arena;
    oq_plan_init(&r->plan, &r->arena);
}

void quant_rig_end(quant_rig *r) {
    oq_shapes_free(r->shapes);
    oq_ranges_release(&r->ranges);
    oq_arena_release(&r->arena);
    bm_end(&r->b);
}

int quant_rig_setup(void **state) {
    quant_rig *r = malloc(sizeof *r);
    if (r == NULL)
        return -1;
    quant_rig_begin(r, NULL);
    *state = r;
    return 0;
}

int quant_rig_teardown(void **state) {
    quant_rig_end(*state);
    free(*state);
    return 0;
}

bool quant_rig_range(quant_rig *r, const char *name, double lowest, double highest) {
    oq_range *t = oq_ranges_add(&r->ranges, oq_str_of(name));
    return t != NULL && oq_num_make_one(&r->ranges.arena, &t->lowest, OQ_FLOAT, true, lowest) &&
           oq_num_make_one(&r->ranges.arena, &t->highest, OQ_FLOAT, true, highest);
}
