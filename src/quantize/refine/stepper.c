/*
 * stepper.c — see stepper.h.
 *
 * A piece is found by going backwards from the tensors that are wanted to those that are kept. Then
 * the same walk from all stops that are left says which tensors must be kept after the piece has
 * run.
 */
#include "quantize/refine/stepper.h"

#include "onnx/edit.h"
#include "onnx/operators.h"

#define ALIGNED 64 /* bytes, as the runtime wants tensors */

typedef OQ_VEC(uint32_t) numbers;

/* A tensor that is kept: one block with its dims and its bytes. */
typedef struct kept {
    oq_datum datum;
    size_t size; /* of the block */
} kept;

struct oq_stepper {
    oq_stepper_options o;
    const onq_env *env;
    oq_arena arena;
    oq_index ix;
    uint32_t *order; /* of the nodes */
    numbers *reads;  /* by node: values, those of its inner graphs too */
    bool *again;     /* by node: never kept, computed where it is needed */
    bool *done;      /* by node: its outputs are kept as long as they are needed */
    bool *in_piece;  /* by node */
    bool *reached;   /* by value: kept or an input, and the walk came to it */
    uint32_t *stack; /* of the walk */
    size_t n_stack;
    numbers live; /* values that are kept */
    kept **kept;  /* [sample * live.n + i] */
    size_t n_samples, n_loaded;
    uint64_t used;
};

/* ---- keeping ---- */

static void drop(oq_stepper *s, kept *k) {
    if (k == NULL)
        return;
    s->used -= k->size;
    oq_free(&s->env->alloc, k, k->size);
}

static onq_code keep(oq_stepper *s, const oq_datum *d, kept **out, onq_error *err) {
    if (d->kind != OQ_DATUM_TENSOR || d->dtype == OQ_STRING)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "a value between two layers is not a tensor of numbers");
    const size_t dims = d->rank * sizeof *d->dims;
    uint64_t size;
    if (!oq_add(sizeof(kept) + dims + ALIGNED, d->size_bytes, &size))
        return oq_fail_nomem(err);
    kept *k = oq_alloc(&s->env->alloc, size);
    if (k == NULL)
        return oq_fail_nomem(err);
    uint8_t *at = (uint8_t *)(k + 1);
    k->datum = *d;
    k->size = size;
    k->datum.dims = (const int64_t *)(void *)at;
    if (dims > 0)
        memcpy(at, d->dims, dims);
    at += dims;
    at += (ALIGNED - (uintptr_t)at % ALIGNED) % ALIGNED;
    k->datum.data = at;
    if (d->size_bytes > 0)
        memcpy(at, d->data, d->size_bytes);
    s->used += size;
    *out = k;
    return ONQ_OK;
}

static void drop_sample(oq_stepper *s, kept **row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        drop(s, row[i]);
        row[i] = NULL;
    }
}

/* ---- the graph ---- */

static bool is_again(const oq_stepper *s, uint32_t node) {
    const oq_node *n = s->ix.graph->node.v[node];
    if (oq_node_is_dequantize(n))
        return true;
    bool constant = !oq_op_traits_of(n->op_type)->random;
    for (size_t i = 0; constant && i < s->reads[node].n; i++) {
        const oq_value *v = &s->ix.values.v[s->reads[node].v[i]];
        constant = v->init != NULL || v->sparse_init != NULL ||
                   (v->producer != OQ_NO_NODE && s->again[v->producer] && s->done[v->producer]);
    }
    return constant;
}

/* `done` serves as "depends on no input" while this runs. */
static void find_again(oq_stepper *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t node = s->order[i];
        const oq_node *made = s->ix.graph->node.v[node];
        s->again[node] = is_again(s, node);
        s->done[node] = s->again[node];
        for (size_t k = 0; k < s->reads[node].n && oq_node_is_dequantize(made); k++) {
            const oq_value *v = &s->ix.values.v[s->reads[node].v[k]];
            if (v->init == NULL && !(v->producer != OQ_NO_NODE && s->done[v->producer]))
                s->done[node] = false;
        }
    }
    memset(s->done, 0, n * sizeof *s->done);
}

static onq_code read_graph(oq_stepper *s, onq_error *err) {
    oq_graph *g = s->o.proto->graph;
    const size_t n = g->node.n;
    OQ_TRY(oq_index_build(&s->ix, &s->arena, g, NULL, err));
    OQ_TRY(oq_topo_order(&s->ix, &s->arena, &s->order, err));
    s->reads = OQ_NEW_ARRAY(&s->arena, numbers, n + 1);
    s->again = OQ_NEW_ARRAY(&s->arena, bool, n + 1);
    s->done = OQ_NEW_ARRAY(&s->arena, bool, n + 1);
    s->in_piece = OQ_NEW_ARRAY(&s->arena, bool, n + 1);
    s->stack = OQ_NEW_ARRAY(&s->arena, uint32_t, n + 1);
    s->reached = OQ_NEW_ARRAY(&s->arena, bool, s->ix.values.n + 1);
    if (s->reads == NULL || s->again == NULL || s->done == NULL || s->in_piece == NULL ||
        s->stack == NULL || s->reached == NULL)
        return oq_fail_nomem(err);
    for (uint32_t v = 0; v < s->ix.values.n; v++)
        for (size_t i = 0; i < s->ix.values.v[v].uses.n; i++)
            if (!OQ_PUSH(&s->arena, &s->reads[s->ix.values.v[v].uses.v[i].node], v))
                return oq_fail_nomem(err);
    find_again(s, n);
    return ONQ_OK;
}

/* ---- pieces ---- */

static void walk_begin(oq_stepper *s) {
    memset(s->in_piece, 0, s->ix.graph->node.n * sizeof *s->in_piece);
    memset(s->reached, 0, s->ix.values.n * sizeof *s->reached);
    s->n_stack = 0;
}

static void walk_push(oq_stepper *s, uint32_t node) {
    if (s->in_piece[node])
        return;
    s->in_piece[node] = true;
    s->stack[s->n_stack++] = node;
}

static void walk_value(oq_stepper *s, uint32_t value) {
    const oq_value *v = &s->ix.values.v[value];
    if (v->producer != OQ_NO_NODE && !s->done[v->producer])
        walk_push(s, v->producer);
    else if (v->producer != OQ_NO_NODE || (v->is_input && v->init == NULL))
        s->reached[value] = true;
}

static void walk(oq_stepper *s) {
    while (s->n_stack > 0) {
        const uint32_t node = s->stack[--s->n_stack];
        for (size_t i = 0; i < s->reads[node].n; i++)
            walk_value(s, s->reads[node].v[i]);
    }
}

static uint32_t value_number(const oq_stepper *s, oq_str name) {
    return oq_map_find(&s->ix.map, name);
}

static kept **kept_at(const oq_stepper *s, size_t sample, uint32_t value) {
    for (size_t i = 0; i < s->live.n; i++)
        if (s->live.v[i] == value)
            return &s->kept[sample * s->live.n + i];
    return NULL;
}

typedef struct piece {
    oq_arena arena;
    oq_model_proto proto;
    oq_graph graph;
    const oq_str *names;
    size_t n_names;
    numbers inputs;         /* values */
    OQ_VEC(oq_str) outputs; /* what is wanted and is not kept, then what is to be kept */
    uint32_t *at;           /* by wanted name: in outputs, or UINT32_MAX: it is kept */
    numbers live;           /* after it */
    uint32_t *from;         /* by live: in outputs, or UINT32_MAX: kept before */
    bool *inits;            /* by value: in the graph */
} piece;

static onq_code add_input(oq_stepper *s, piece *p, uint32_t value, onq_error *err) {
    const oq_value *v = &s->ix.values.v[value];
    oq_value_info *info = v->is_input ? v->info : NULL;
    if (info == NULL) {
        kept **k = kept_at(s, 0, value);
        assert(k != NULL && *k != NULL);
        const oq_datum *d = &(*k)->datum;
        int64_t *dims = OQ_NEW_ARRAY(&p->arena, int64_t, d->rank + 1);
        if (dims == NULL)
            return oq_fail_nomem(err);
        for (size_t i = 0; i < d->rank; i++)
            dims[i] = -1; /* another sample may have another size */
        info = oq_value_info_new(&p->arena, v->name, (int32_t)d->dtype, dims, d->rank, true);
        if (info == NULL)
            return oq_fail_nomem(err);
    }
    if (!OQ_PUSH(&p->arena, &p->inputs, value) || !OQ_PUSH(&p->arena, &p->graph.input, info))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code add_nodes(oq_stepper *s, piece *p, onq_error *err) {
    const oq_graph *g = s->ix.graph;
    p->inits = OQ_NEW_ARRAY(&p->arena, bool, s->ix.values.n + 1);
    if (p->inits == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < g->node.n; i++) {
        const uint32_t node = s->order[i];
        if (!s->in_piece[node])
            continue;
        if (!OQ_PUSH(&p->arena, &p->graph.node, g->node.v[node]))
            return oq_fail_nomem(err);
        for (size_t k = 0; k < s->reads[node].n; k++) {
            const uint32_t value = s->reads[node].v[k];
            const oq_value *v = &s->ix.values.v[value];
            if (p->inits[value])
                continue;
            p->inits[value] = true;
            if ((v->init != NULL && !OQ_PUSH(&p->arena, &p->graph.initializer, v->init)) ||
                (v->sparse_init != NULL &&
                 !OQ_PUSH(&p->arena, &p->graph.sparse_initializer, v->sparse_init)))
                return oq_fail_nomem(err);
        }
    }
    for (uint32_t v = 0; v < s->ix.values.n; v++)
        if (s->reached[v] && p->inits[v])
            OQ_TRY(add_input(s, p, v, err));
    return ONQ_OK;
}

static onq_code add_wanted(oq_stepper *s, piece *p, onq_error *err) {
    p->at = OQ_NEW_ARRAY(&p->arena, uint32_t, p->n_names + 1);
    if (p->at == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < p->n_names; i++) {
        const uint32_t value = value_number(s, p->names[i]);
        const bool computed = !s->reached[value];
        p->at[i] = computed ? (uint32_t)p->outputs.n : UINT32_MAX;
        if (computed && !OQ_PUSH(&p->arena, &p->outputs, p->names[i]))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static uint32_t output_of(const piece *p, oq_str name) {
    for (size_t i = 0; i < p->outputs.n; i++)
        if (oq_str_eq(p->outputs.v[i], name))
            return (uint32_t)i;
    return UINT32_MAX;
}

/* What is kept after the piece: all that the stops from this one on still need. */
static onq_code add_live(oq_stepper *s, piece *p, size_t stop, onq_error *err) {
    for (size_t i = 0; i < s->ix.graph->node.n; i++)
        if (s->in_piece[i] && !s->again[i] && i != s->o.stops[stop])
            s->done[i] = true;
    walk_begin(s);
    for (size_t k = stop; k < s->o.n_stops; k++)
        walk_push(s, s->o.stops[k]);
    walk(s);
    p->from = OQ_NEW_ARRAY(&p->arena, uint32_t, s->ix.values.n + 1);
    if (p->from == NULL)
        return oq_fail_nomem(err);
    for (uint32_t v = 0; v < s->ix.values.n; v++) {
        if (!s->reached[v])
            continue;
        const bool kept_before = kept_at(s, 0, v) != NULL;
        const oq_str name = s->ix.values.v[v].name;
        uint32_t from = kept_before ? UINT32_MAX : output_of(p, name);
        if (!kept_before && from == UINT32_MAX) {
            from = (uint32_t)p->outputs.n;
            if (!OQ_PUSH(&p->arena, &p->outputs, name))
                return oq_fail_nomem(err);
        }
        p->from[p->live.n] = from;
        if (!OQ_PUSH(&p->arena, &p->live, v))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code make_piece(oq_stepper *s, piece *p, size_t stop, onq_error *err) {
    walk_begin(s);
    for (size_t i = 0; i < p->n_names; i++)
        walk_value(s, value_number(s, p->names[i]));
    walk(s);
    OQ_TRY(add_wanted(s, p, err));
    OQ_TRY(add_nodes(s, p, err));
    OQ_TRY(add_live(s, p, stop, err));
    p->graph.name = OQ_S("piece");
    p->proto = *s->o.proto;
    p->proto.graph = &p->graph;
    return ONQ_OK;
}

/* ---- running ---- */

static onq_code open_piece(oq_stepper *s, const piece *p, oq_session **out, onq_error *err) {
    oq_session_options o = s->o.session;
    o.model = s->o.model;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = OQ_OPT_NONE; /* any other quantizes the float weights of a Conv per tensor */
    o.no_spinning = true;
    o.extra_outputs = p->outputs.v;
    o.n_extra_outputs = p->outputs.n;
    o.only_extra_outputs = true;
    o.observer = NULL;
    return oq_session_open(s->o.engine, &o, out, err);
}

static onq_code feed(const oq_stepper *s, const oq_session *session, size_t sample,
                     oq_datum *inputs, onq_error *err) {
    for (size_t i = 0; i < session->inputs.n; i++) {
        const uint32_t value = value_number(s, session->inputs.v[i].name);
        kept **k = value == OQ_MAP_NONE ? NULL : kept_at(s, sample, value);
        if (k == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "a piece of the model has no value for '%.*s'",
                           OQ_STR(session->inputs.v[i].name));
        inputs[i] = (*k)->datum;
    }
    return ONQ_OK;
}

/* Output `at` of a run. A piece without outputs is not run, and nothing is taken from it. */
static const oq_datum *output_at(const oq_outputs *out, uint32_t at) {
    assert(at < out->n);
    return &out->v[at];
}

/* Shows what was wanted, and puts what is to be kept into `row`. */
static onq_code take(oq_stepper *s, const piece *p, size_t sample, const oq_outputs *out,
                     oq_datum *shown, kept **row, oq_step_fn fn, void *ctx, onq_error *err) {
    for (size_t i = 0; i < p->n_names; i++)
        shown[i] = p->at[i] != UINT32_MAX
                       ? *output_at(out, p->at[i])
                       : (*kept_at(s, sample, value_number(s, p->names[i])))->datum;
    OQ_TRY(fn(ctx, sample, shown, err));
    for (size_t i = 0; i < p->live.n; i++) {
        if (p->from[i] != UINT32_MAX) {
            OQ_TRY(keep(s, output_at(out, p->from[i]), &row[i], err));
        } else {
            kept **before = kept_at(s, sample, p->live.v[i]);
            row[i] = *before;
            *before = NULL;
        }
    }
    drop_sample(s, &s->kept[sample * s->live.n], s->live.n);
    return ONQ_OK;
}

/* The last samples go where memory does not hold all. */
static void make_room(oq_stepper *s, kept **rows, size_t n_live, size_t sample) {
    while (s->used > s->o.memory && s->n_samples > 1) {
        const size_t last = --s->n_samples;
        if (last > sample)
            drop_sample(s, &s->kept[last * s->live.n], s->live.n);
        else
            drop_sample(s, &rows[last * n_live], n_live);
    }
}

static onq_code run_samples(oq_stepper *s, piece *p, oq_session *session, kept **rows,
                            oq_step_fn fn, void *ctx, onq_error *err) {
    const size_t n_in = session != NULL ? session->inputs.n : 0;
    oq_datum *inputs = OQ_NEW_ARRAY(&p->arena, oq_datum, n_in + 1);
    oq_datum *shown = OQ_NEW_ARRAY(&p->arena, oq_datum, p->n_names + 1);
    if (inputs == NULL || shown == NULL)
        return oq_fail_nomem(err);
    for (size_t k = 0; k < s->n_samples; k++) {
        oq_outputs out = {0};
        if (session != NULL) {
            OQ_TRY(feed(s, session, k, inputs, err));
            OQ_TRY(oq_session_run(session, inputs, n_in, &out, err));
        }
        OQ_TRY(take(s, p, k, &out, shown, &rows[k * p->live.n], fn, ctx, err));
        make_room(s, rows, p->live.n, k);
    }
    return ONQ_OK;
}

/* From now on the samples are what `rows` has. */
static onq_code change_rows(oq_stepper *s, const piece *p, kept **rows, onq_error *err) {
    numbers live = {0};
    for (size_t i = 0; i < p->live.n; i++)
        if (!OQ_PUSH(&s->arena, &live, p->live.v[i]))
            return oq_fail_nomem(err);
    oq_free(&s->env->alloc, s->kept, (s->n_loaded * s->live.n + 1) * sizeof(kept *));
    memcpy(&s->live, &live, sizeof live);
    s->kept = rows;
    return ONQ_OK;
}

static void free_rows(oq_stepper *s, kept **rows, size_t n_live) {
    for (size_t i = 0; rows != NULL && i < s->n_loaded * n_live; i++)
        drop(s, rows[i]);
    oq_free(&s->env->alloc, rows, (s->n_loaded * n_live + 1) * sizeof(kept *));
}

onq_code oq_stepper_go(oq_stepper *s, size_t stop, const oq_str *names, size_t n_names,
                       oq_step_fn fn, void *ctx, onq_error *err) {
    piece p = {.names = names, .n_names = n_names};
    oq_model_proto *const whole = s->o.model->proto;
    oq_session *session = NULL;
    kept **rows = NULL;
    onq_code rc = ONQ_OK;
    oq_arena_init(&p.arena, &s->env->alloc);
    OQ_GO(make_piece(s, &p, stop, err));
    rows = oq_calloc(&s->env->alloc, s->n_loaded * p.live.n + 1, sizeof(kept *));
    if (rows == NULL)
        OQ_GO(oq_fail_nomem(err));
    s->o.model->proto = &p.proto; /* as long as the session is open */
    if (p.outputs.n > 0)
        OQ_GO(open_piece(s, &p, &session, err));
    OQ_GO(run_samples(s, &p, session, rows, fn, ctx, err));
    OQ_GO(change_rows(s, &p, rows, err));
    rows = NULL;
done:
    oq_session_close(session);
    s->o.model->proto = whole;
    free_rows(s, rows, p.live.n);
    oq_arena_release(&p.arena);
    return rc;
}

/* ---- samples ---- */

static onq_code load_sample(oq_stepper *s, const oq_sample *sample, const oq_ios *ios,
                            onq_error *err) {
    for (size_t i = 0; i < s->live.n; i++)
        for (size_t k = 0; k < ios->n; k++)
            if (oq_str_eq(ios->v[k].name, s->ix.values.v[s->live.v[i]].name))
                OQ_TRY(keep(s, &sample->inputs[k], &s->kept[s->n_samples * s->live.n + i], err));
    s->n_samples++;
    return ONQ_OK;
}

static onq_code load(oq_stepper *s, oq_source *source, onq_error *err) {
    oq_ios ios;
    OQ_TRY(oq_model_inputs(s->o.model, &s->arena, &ios, err));
    walk_begin(s);
    for (size_t k = 0; k < s->o.n_stops; k++)
        walk_push(s, s->o.stops[k]);
    walk(s);
    for (uint32_t v = 0; v < s->ix.values.n; v++)
        if (s->reached[v] && !OQ_PUSH(&s->arena, &s->live, v))
            return oq_fail_nomem(err);
    s->n_loaded = oq_source_count(source);
    s->kept = oq_calloc(&s->env->alloc, s->n_loaded * s->live.n + 1, sizeof(kept *));
    if (s->kept == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_source_seek(source, 0, err));
    for (size_t k = 0; k < s->n_loaded; k++) {
        const oq_sample *sample = NULL;
        OQ_TRY(oq_source_next(source, &sample, err));
        if (sample == NULL || (k > 0 && s->used + s->used / k > s->o.memory))
            break;
        OQ_TRY(load_sample(s, sample, &ios, err));
    }
    return s->n_samples > 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_READ, "%s: there are no samples", oq_source_text(source));
}

size_t oq_stepper_samples(const oq_stepper *s) {
    return s->n_samples;
}

onq_code oq_stepper_new(const oq_stepper_options *o, oq_source *source, oq_stepper **out,
                        onq_error *err) {
    const onq_env *env = o->model->env;
    oq_stepper *s = oq_calloc(&env->alloc, 1, sizeof *s);
    if (s == NULL)
        return oq_fail_nomem(err);
    s->o = *o;
    s->env = env;
    oq_arena_init(&s->arena, &env->alloc);
    onq_code rc = read_graph(s, err);
    if (rc == ONQ_OK)
        rc = load(s, source, err);
    if (rc != ONQ_OK) {
        oq_stepper_free(s);
        return rc;
    }
    *out = s;
    return ONQ_OK;
}

void oq_stepper_free(oq_stepper *s) {
    if (s == NULL)
        return;
    const onq_allocator *alloc = &s->env->alloc;
    free_rows(s, s->kept, s->live.n);
    oq_arena_release(&s->arena);
    oq_free(alloc, s, sizeof *s);
}
