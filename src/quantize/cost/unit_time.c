/*
 * unit_time.c — see unit_time.h.
 */
#include "quantize/cost/unit_time.h"

#include "base/keyed.h"
#include "onnx/codec/schema.h"
#include "onnx/edit.h"

#define ROUNDS        5
#define MIN_RUNS      5
#define MAX_RUNS      400
#define SECONDS_ROUND 0.006
#define MAX_ELEMENTS  ((uint64_t)1 << 26) /* of a tensor */
#define OPSET         13
#define IR_VERSION    8

/* What stands at the ends of the node. */
typedef enum form { FORM_REAL, FORM_INNER, FORM_ALONE, FORMS } form;

typedef struct trial {
    oq_model *m;
    oq_session *s;
    oq_datum in[2];
    size_t n_in;
    double best; /* seconds */
} trial;

typedef struct making {
    const oq_unit *u;
    form form;
    oq_model *m;
    oq_arena *a; /* of the model */
    trial *t;
    oq_str name; /* what the node reads or makes so far */
    bool failed;
} making;

/* ---- one model ---- */

static void add_node(making *k, const char *type, const oq_str *in, size_t n_in, const char *out) {
    const oq_str to = oq_str_of(out);
    oq_node *n = oq_node_make(k->a, type, to, in, n_in, &to, 1);
    k->failed |= n == NULL || !oq_graph_add_node(k->a, k->m->proto->graph, n);
    k->name = to;
}

static oq_tensor *add_tensor(making *k, const char *name, oq_dtype type, const oq_unit_shape *s) {
    oq_tensor *t = oq_tensor_new(k->a, oq_str_of(name), type, s->dims, s->rank);
    k->failed |= t == NULL || !oq_graph_add_init(k->a, k->m->proto->graph, t);
    return k->failed ? NULL : t;
}

void *oq_timed_values(oq_arena *a, oq_dtype type, uint64_t n) {
    const size_t width = type == OQ_FLOAT ? sizeof(float) : 1;
    uint64_t bytes;
    uint8_t *p = oq_mul(n, width, &bytes) ? oq_arena_alloc(a, bytes + 1) : NULL;
    uint32_t x = 12345;
    for (uint64_t i = 0; p != NULL && i < n; i++) {
        x = x * 1664525u + 1013904223u;
        const float f = (float)(int32_t)x / 2147483648.0f;
        if (type == OQ_FLOAT)
            memcpy(p + i * width, &f, width);
        else
            p[i] = (uint8_t)(x >> 24);
    }
    return p;
}

static uint64_t count_of(const oq_unit_shape *s) {
    uint64_t n = 1;
    for (size_t i = 0; i < s->rank; i++)
        if (s->dims[i] <= 0 || !oq_mul(n, (uint64_t)s->dims[i], &n) || n > MAX_ELEMENTS)
            return 0;
    return n;
}

static void add_values(making *k, const char *name, oq_dtype type, const oq_unit_shape *s) {
    const uint64_t n = count_of(s), width = type == OQ_FLOAT ? sizeof(float) : 1;
    oq_tensor *t = add_tensor(k, name, type, s);
    void *p = oq_timed_values(k->a, type, n);
    k->failed |= p == NULL;
    if (!k->failed)
        oq_tensor_set_view(t, p, n * width);
}

/* Scales and zero points. */
typedef enum pair { PAIR_IN, PAIR_WEIGHT, PAIR_OUT, PAIRS } pair;
static const char *const pair_names[PAIRS][2] = {{"xs", "xz"}, {"ws", "wz"}, {"ys", "yz"}};

static void add_params(making *k) {
    static const float scales[PAIRS] = {0.02f, 0.01f, 0.5f};
    static const uint8_t zeros[PAIRS] = {128, 0, 128};
    const oq_unit_shape scalar = {NULL, 0};
    for (size_t i = 0; i < PAIRS; i++) {
        const oq_dtype type = i == PAIR_WEIGHT ? OQ_INT8 : OQ_UINT8;
        oq_tensor *s = add_tensor(k, pair_names[i][0], OQ_FLOAT, &scalar);
        oq_tensor *z = add_tensor(k, pair_names[i][1], type, &scalar);
        /* A Relu or Clip is in the range, which begins at 0 then. */
        const uint8_t *zero = i == PAIR_OUT && k->u->act != NULL ? &zeros[PAIR_WEIGHT] : &zeros[i];
        if (!k->failed) {
            oq_tensor_set_view(s, &scales[i], sizeof scales[i]);
            oq_tensor_set_view(z, zero, 1);
        }
    }
}

static oq_str add_half(making *k, const char *type, oq_str in, pair p, const char *out) {
    const oq_str all[3] = {in, oq_str_of(pair_names[p][0]), oq_str_of(pair_names[p][1])};
    add_node(k, type, all, 3, out);
    return k->name;
}

/* An input of the model, and what it is fed; the result is what the node reads. */
static oq_str add_input(making *k, const char *const names[3], const oq_unit_shape *s) {
    const oq_dtype type = k->form == FORM_INNER ? OQ_UINT8 : OQ_FLOAT;
    const uint64_t n = count_of(s);
    oq_graph *g = k->m->proto->graph;
    oq_value_info *info =
        oq_value_info_new(k->a, oq_str_of(names[0]), (int32_t)type, s->dims, s->rank, true);
    const void *p = oq_timed_values(k->a, type, n);
    oq_str name = oq_str_of(names[0]);
    k->failed |= info == NULL || p == NULL || !OQ_PUSH(k->a, &g->input, info);
    assert(n > 0 && k->t->n_in < OQ_COUNT(k->t->in));
    k->t->in[k->t->n_in++] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                                        .dtype = type,
                                        .rank = s->rank,
                                        .dims = s->dims,
                                        .count = n,
                                        .data = p,
                                        .size_bytes = n * (type == OQ_FLOAT ? sizeof(float) : 1)};
    if (k->form == FORM_ALONE)
        name = add_half(k, OQ_QUANTIZE_LINEAR, name, PAIR_IN, names[1]);
    return k->form == FORM_REAL ? name : add_half(k, OQ_DEQUANTIZE_LINEAR, name, PAIR_IN, names[2]);
}

static oq_str add_weight(making *k) {
    static const char *const names[3] = {"v", "v_q", "v_d"};
    if (k->u->kind == OQ_UNIT_PAIR)
        return add_input(k, names, &k->u->weight);
    if (k->form == FORM_REAL) {
        add_values(k, "w", OQ_FLOAT, &k->u->weight);
        return OQ_S("w");
    }
    add_values(k, "w", OQ_INT8, &k->u->weight);
    return add_half(k, OQ_DEQUANTIZE_LINEAR, OQ_S("w"), PAIR_WEIGHT, "w_d");
}

static void add_product(making *k) {
    static const char *const names[3] = {"x", "x_q", "x_d"};
    const oq_node *like = k->u->node;
    const oq_str x = add_input(k, names, &k->u->in);
    const oq_str in[2] = {x, add_weight(k)};
    oq_node *n = oq_message_clone(k->a, OQ_SCHEMA_node, like);
    k->failed |= n == NULL;
    if (k->failed)
        return;
    n->input.n = n->output.n = 0;
    n->name = OQ_S("unit");
    k->failed |= !oq_node_add_input(k->a, n, in[0]) || !oq_node_add_input(k->a, n, in[1]) ||
                 !oq_node_add_output(k->a, n, OQ_S("t")) ||
                 !oq_graph_add_node(k->a, k->m->proto->graph, n);
    k->name = OQ_S("t");
}

static void add_activation(making *k) {
    static const float bounds[2] = {0, 6};
    const oq_unit_shape scalar = {NULL, 0};
    if (k->u->act == NULL)
        return;
    const bool clip = oq_str_is(k->u->act->op_type, "Clip");
    oq_tensor *low = add_tensor(k, "low", OQ_FLOAT, &scalar);
    oq_tensor *high = add_tensor(k, "high", OQ_FLOAT, &scalar);
    const oq_str in[3] = {k->name, OQ_S("low"), OQ_S("high")};
    if (k->failed)
        return;
    oq_tensor_set_view(low, &bounds[0], sizeof bounds[0]);
    oq_tensor_set_view(high, &bounds[1], sizeof bounds[1]);
    add_node(k, clip ? "Clip" : "Relu", in, clip ? 3 : 1, "r");
}

/* Outputs of Conv are integers; those of MatMul and Gemm stay float, as --op_set noout has them. */
static void add_output(making *k) {
    const bool quantized = k->u->product == OQ_CONV && k->form != FORM_REAL;
    oq_dtype type = OQ_FLOAT;
    if (!quantized)
        add_activation(k);
    if (quantized) {
        add_half(k, OQ_QUANTIZE_LINEAR, k->name, PAIR_OUT, "y_q");
        type = OQ_UINT8;
    }
    if (quantized && k->form == FORM_ALONE) {
        add_half(k, OQ_DEQUANTIZE_LINEAR, k->name, PAIR_OUT, "y_d");
        type = OQ_FLOAT;
    }
    oq_value_info *info =
        oq_value_info_new(k->a, k->name, (int32_t)type, k->u->out.dims, k->u->out.rank, true);
    k->failed |= info == NULL || !OQ_PUSH(k->a, &k->m->proto->graph->output, info);
}

static onq_code make_model(onq_env *env, const oq_unit *u, form f, trial *t, onq_error *err) {
    OQ_TRY(oq_model_new(env, IR_VERSION, OPSET, &t->m, err));
    making k = {.u = u, .form = f, .m = t->m, .a = &t->m->arena, .t = t};
    if (f != FORM_REAL)
        add_params(&k);
    add_product(&k);
    add_output(&k);
    return k.failed ? oq_fail_nomem(err) : ONQ_OK;
}

/* ---- timing ---- */

static onq_code time_round(trial *t, onq_error *err) {
    double times[MAX_RUNS], sum = 0;
    size_t n = 0;
    OQ_TRY(oq_session_run(t->s, t->in, t->n_in, NULL, err)); /* caches as they will be */
    for (; n < MAX_RUNS && (n < MIN_RUNS || sum < SECONDS_ROUND); n++) {
        const double start = oq_seconds();
        OQ_TRY(oq_session_run(t->s, t->in, t->n_in, NULL, err));
        times[n] = oq_seconds() - start;
        sum += times[n];
    }
    assert(n >= MIN_RUNS && n <= MAX_RUNS);
    qsort(times, n, sizeof times[0], oq_by_double);
    t->best = fmin(t->best, times[n / 2]);
    return ONQ_OK;
}

static onq_code time_all(oq_engine *e, const oq_unit *u, const oq_session_options *like,
                         trial *trials, onq_error *err) {
    const size_t n = u->kind == OQ_UNIT_TRANSPOSE ? 1 : FORMS; /* there is no integer kernel */
    for (size_t i = 0; i < n; i++) {
        oq_session_options o = *like;
        OQ_TRY(make_model(e->env, u, (form)i, &trials[i], err));
        o.model = trials[i].m;
        o.level = OQ_OPT_ALL;
        o.no_spinning = true;
        OQ_TRY(oq_session_open(e, &o, &trials[i].s, err));
    }
    for (int r = 0; r < ROUNDS; r++)
        for (size_t i = 0; i < n; i++)
            OQ_TRY(time_round(&trials[i], err));
    return ONQ_OK;
}

onq_code oq_unit_time(oq_engine *e, const oq_unit *u, const oq_session_options *like,
                      oq_unit_cost *out, bool *timed, onq_error *err) {
    trial trials[FORMS];
    onq_code rc = ONQ_OK;
    *timed =
        !u->guessed && count_of(&u->in) > 0 && count_of(&u->weight) > 0 && count_of(&u->out) > 0;
    for (size_t i = 0; i < FORMS; i++)
        trials[i] = (trial){.best = INFINITY};
    if (*timed)
        rc = time_all(e, u, like, trials, err);
    *out = (oq_unit_cost){trials[FORM_REAL].best * 1e3, trials[FORM_INNER].best * 1e3,
                          trials[FORM_ALONE].best * 1e3};
    for (size_t i = 0; i < FORMS; i++) {
        oq_session_close(trials[i].s);
        oq_model_free(trials[i].m);
    }
    return rc;
}
