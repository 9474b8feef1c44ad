/*
 * optimize.c — the rounds of the built-in optimiser. See optimize.h and fuse.h.
 */
#include "prepare/optimize.h"
#include "onnx/check/check.h"

#include "onnx/tidy.h"
#include "prepare/fuse/fuse.h"
#include "prepare/rewrite.h"

static const oq_fuse_row table[] = {
#define OQ_FUSE(name, ops, what) {ops, oq_fuse_##name, what, 0},
#include "prepare/fuse/fuse.def"
#undef OQ_FUSE
};

const char *oq_fuse_what(oq_fuse_id id) {
    assert(id < OQ_FUSE_COUNT);
    return table[id].what;
}

/* True if `op` is one of the words of `ops`. */
static bool has_word(const char *ops, oq_str op) {
    if (ops[0] == '*')
        return true;
    for (const char *p = ops; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        if (n == op.n && memcmp(p, op.p, n) == 0)
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

typedef struct optimizer {
    oq_fuse_job *job;
    oq_model *m;
    oq_shapes *shapes;
    oq_names names;
    size_t n_done;
} optimizer;

/* ---- a round over one graph ---- */

static onq_code visit(optimizer *o, oq_fuse *f, uint32_t i, onq_error *err) {
    const oq_fuse_job *job = o->job;
    for (size_t r = 0; r < job->n_rows && !f->busy[i]; r++) {
        const oq_node *n = f->g->node.v[i];
        bool done = false;
        if ((job->sets >> job->rows[r].set & 1) == 0 || !has_word(job->rows[r].ops, n->op_type))
            continue;
        OQ_TRY_IN(job->rows[r].fn(f, i, &done, err), err, "node '%.*s' (%.*s)",
                  OQ_STR(oq_node_label(n)), OQ_STR(n->op_type));
        if (done) {
            job->counts[r]++;
            o->n_done++;
        }
    }
    return ONQ_OK;
}

/* Renames lead to names that may have been renamed later in the round. */
static void settle(oq_fuse *f) {
    for (size_t i = 0; i < f->to.n; i++)
        for (uint32_t at; (at = oq_map_find(&f->renames, f->to.v[i])) != OQ_MAP_NONE && at != i;)
            f->to.v[i] = f->to.v[at];
}

static onq_code end_round(oq_fuse *f, onq_error *err) {
    OQ_TRY_ALLOC(oq_graph_add_inits(&f->m->arena, f->g, f->inits.v, f->inits.n), err);
    oq_graph_remove_nodes(f->g, f->gone);
    for (size_t i = 0; i < f->nodes.n; i++)
        OQ_TRY_ALLOC(oq_graph_add_node(&f->m->arena, f->g, f->nodes.v[i]), err);
    settle(f);
    if (f->to.n != 0)
        OQ_TRY(oq_graph_replace_many(f->m, f->g, &f->renames, f->to.v, err));
    OQ_TRY(oq_graph_prune(f->m, f->g, err));
    return f->nodes.n > 0 ? oq_model_sort_inner(f->m, f->g, err) : ONQ_OK;
}

static onq_code round_graph(void *ctx, oq_graph *g, onq_error *err) {
    optimizer *o = ctx;
    uint32_t *order = NULL;
    OQ_SCRATCH(scratch, &o->m->env->alloc);
    oq_fuse f = {.m = o->m, .g = g, .scratch = &scratch, .shapes = o->shapes, .names = &o->names};
    OQ_TRY(oq_fuse_begin(&f, err));
    OQ_TRY(oq_topo_order(&f.ix, &scratch, &order, err));
    const size_t n = g->node.n;
    for (size_t i = 0; i < n; i++)
        OQ_TRY(visit(o, &f, order[i], err));
    return end_round(&f, err);
}

static onq_code run_rounds(optimizer *o, onq_error *err) {
    oq_fuse_job *job = o->job;
    oq_model_touch(o->m);
    OQ_TRY(oq_model_lift_constants(o->m, &job->n_constants, err));
    OQ_TRY(oq_shapes_infer(o->m, &(oq_shape_options){.symbolic = true}, &o->shapes, err));
    /* New names outlive the job. */
    OQ_TRY(oq_names_collect(&o->names, &o->m->arena, o->m, err));
    do {
        o->n_done = 0;
        OQ_TRY(oq_progress(o->m->env, "optimisation", job->rounds, 0, err));
        OQ_TRY(oq_walk_graphs(o->m->proto->graph, round_graph, o, err));
        job->rounds++;
        OQ_ASSERT_VALID(o->m);
    } while (o->n_done != 0 && job->rounds < OQ_OPT_ROUNDS);
    return ONQ_OK;
}

static onq_code fuse_rounds(oq_fuse_job *job, onq_error *err) {
    optimizer o = {.m = job->m, .job = job};
    const onq_code rc = run_rounds(&o, err);
    oq_shapes_free(o.shapes);
    return rc;
}

/* ---- initializers that are there twice ---- */

#define MAX_SHARE ((uint64_t)1 << 20)

/* A key of all that an initializer is but its name; p == NULL when it is not to be compared. */
static oq_str init_key(oq_model *m, oq_tensor *t, oq_arena *a) {
    oq_span s;
    uint64_t bytes = 0;
    if (t->data_type.v == OQ_STRING || oq_tensor_bytes(t, &bytes, NULL) != ONQ_OK ||
        bytes > MAX_SHARE || oq_model_data(m, t, &s, NULL) != ONQ_OK)
        return (oq_str){0};
    OQ_SCRATCH_BUF(b, &m->env->alloc);
    oq_buf_addf(&b, "%d:", t->data_type.v);
    for (size_t i = 0; i < t->dims.n; i++)
        oq_buf_addf(&b, "%lld,", (long long)t->dims.v[i]);
    oq_buf_addc(&b, ':');
    oq_buf_add(&b, s.p, s.n);
    return b.failed ? (oq_str){0} : oq_str_copy(a, (oq_str){b.p, b.n});
}

static onq_code share_inits(oq_model *m, oq_arena *a, size_t *n_shared, onq_error *err) {
    oq_graph *g = m->proto->graph;
    oq_map seen, renames, edge;
    OQ_VEC(oq_str) to = {0};
    oq_map_init(&seen, a);
    oq_map_init(&renames, a);
    oq_map_init(&edge, a);
    for (size_t i = 0; i < g->input.n + g->output.n; i++) {
        const oq_value_info *v = i < g->input.n ? g->input.v[i] : g->output.v[i - g->input.n];
        OQ_TRY_ALLOC(oq_map_put(&edge, v->name, 0), err);
    }
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        const oq_str key = oq_map_has(&edge, t->name) ? (oq_str){0} : init_key(m, t, a);
        if (key.p == NULL)
            continue;
        const uint32_t at = oq_map_find(&seen, key);
        if (at == OQ_MAP_NONE) {
            OQ_TRY_ALLOC(oq_map_put(&seen, key, (uint32_t)i), err);
            continue;
        }
        if (!OQ_PUSH(a, &to, g->initializer.v[at]->name) ||
            !oq_map_put(&renames, t->name, (uint32_t)(to.n - 1)))
            return oq_fail_nomem(err);
        ++*n_shared;
    }
    if (to.n == 0)
        return ONQ_OK;
    OQ_TRY(oq_graph_replace_many(m, g, &renames, to.v, err));
    return oq_graph_prune(m, g, err);
}

/* ---- the version of the format ---- */

/* Before IR 4 every initializer is an input too, and constant all the same. Where the rewrites made
 * initializers the model becomes one of IR 4, and none of its initializers is an input. */
static onq_code leave_old_ir(oq_model *m, oq_arena *a, onq_error *err) {
    oq_graph *g = m->proto->graph;
    oq_map inits;
    oq_map_init(&inits, a);
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&inits, g->initializer.v[i]->name, 0), err);
    size_t both = 0;
    for (size_t i = 0; i < g->input.n; i++)
        both += oq_map_has(&inits, g->input.v[i]->name);
    if (m->proto->ir_version.v >= 4 || both == g->initializer.n)
        return ONQ_OK;
    size_t kept = 0;
    for (size_t i = 0; i < g->input.n; i++)
        if (!oq_map_has(&inits, g->input.v[i]->name))
            g->input.v[kept++] = g->input.v[i];
    g->input.n = kept;
    OQ_TRY(oq_model_raise_ir(m, 4, err));
    return oq_graph_prune_inits(m, g, err);
}

/* ---- all ---- */

onq_code oq_optimize(oq_model *m, oq_opt_report *report, onq_error *err) {
    oq_opt_report own;
    if (report == NULL)
        report = &own;
    memset(report, 0, sizeof *report);
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_fuse_job job = {
        .m = m, .rows = table, .n_rows = OQ_COUNT(table), .sets = 1, .counts = report->counts};
    OQ_TRY(fuse_rounds(&job, err));
    report->rounds = job.rounds;
    report->n_constants = job.n_constants;
    OQ_TRY(share_inits(m, &scratch, &report->n_shared, err));
    OQ_TRY(leave_old_ir(m, &scratch, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}

/* ---- --rewrite ---- */

static const oq_fuse_row rewrites[] = {
#define OQ_REWRITE(set, name, ops, what) {ops, oq_fuse_##name, what, OQ_REWRITE_##set},
#include "prepare/fuse/rewrite.def"
#undef OQ_REWRITE
};

const char *oq_rewrite_what(oq_rewrite_id id) {
    assert(id < OQ_REWRITE_ROW_COUNT);
    return rewrites[id].what;
}

bool oq_rewrite_word(oq_str word, unsigned *sets) {
    static const char *const words[] = {
#define ROW(id, word) word,
        OQ_REWRITE_SETS(ROW)
#undef ROW
    };
    *sets = oq_str_is(word, "all") ? (1u << OQ_REWRITE_SET_COUNT) - 1 : 0;
    for (size_t i = 0; i < OQ_COUNT(words) && *sets == 0; i++)
        if (oq_str_is(word, words[i]))
            *sets = 1u << i;
    return *sets != 0 || oq_str_is(word, "none");
}

onq_code oq_rewrite(oq_model *m, unsigned sets, oq_rewrite_report *report, onq_error *err) {
    oq_fuse_job job = {.m = m,
                       .rows = rewrites,
                       .n_rows = OQ_COUNT(rewrites),
                       .sets = sets,
                       .counts = report->counts};
    memset(report, 0, sizeof *report);
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(fuse_rounds(&job, err));
    OQ_TRY(leave_old_ir(m, &scratch, err));
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}
