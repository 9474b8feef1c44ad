/*
 * partial.c — writing, reading and joining collectors. The format is in partial.h.
 */
#include "calibrate/partial.h"

#include "calibrate/collect/collect_int.h"
#include "calibrate/method/method.h"

#include <zlib.h>

#define MAGIC "ONQPART2"
#define HEAD  12   /* magic and checksum */
#define INNER 128u /* in the byte of the scenario */

bool oq_cal_options_equal(const oq_cal_options *a, const oq_cal_options *b) {
    return a->method == b->method && a->symmetric == b->symmetric &&
           a->moving_average == b->moving_average && a->per_channel == b->per_channel &&
           a->scenario == b->scenario &&
           memcmp(&a->averaging_constant, &b->averaging_constant, sizeof(double)) == 0 &&
           memcmp(&a->percentile, &b->percentile, sizeof(double)) == 0 &&
           a->num_bins == b->num_bins && a->num_quantized_bins == b->num_quantized_bins &&
           a->stride == b->stride && a->inner == b->inner;
}

void oq_partial_model(oq_partial_meta *meta, const oq_model *m) {
    const uint64_t n = m->bytes.n, most = 1u << 24;
    uLong crc = crc32_z(0, NULL, 0);
    if (n <= 2 * most) {
        crc = crc32_z(crc, m->bytes.p, n);
    } else { /* a large file: both ends hold the graph, whichever way it was written */
        crc = crc32_z(crc, m->bytes.p, most);
        crc = crc32_z(crc, m->bytes.p + n - most, most);
    }
    meta->model_size = n;
    meta->model_crc = (uint32_t)crc;
    oq_model_drop_pages(m); /* nobody else may need them */
}

/* ---- writing ---- */

static void put(oq_buf *b, const void *p, size_t n) {
    if (n > 0)
        oq_buf_add(b, p, n);
}
static void put_u8(oq_buf *b, unsigned v) {
    const uint8_t x = (uint8_t)v;
    put(b, &x, 1);
}
static void put_u32(oq_buf *b, size_t v) {
    const uint32_t x = (uint32_t)v;
    put(b, &x, sizeof x);
}
static void put_u64(oq_buf *b, uint64_t v) {
    put(b, &v, sizeof v);
}
static void put_f32(oq_buf *b, float v) {
    put(b, &v, sizeof v);
}

static void put_head(oq_buf *b, const oq_collector *c, const oq_partial_meta *m) {
    const oq_cal_options *o = &c->options;
    put(b, MAGIC "\0\0\0\0", HEAD);
    put_u8(b, (unsigned)m->stage);
    put_u64(b, m->share);
    put_u64(b, m->n_shares);
    put_u64(b, m->total);
    put_u64(b, m->base);
    put_u64(b, m->next);
    put_u64(b, m->model_size);
    put_u32(b, m->model_crc);
    put_u8(b, (unsigned)o->method);
    put_u8(b, o->symmetric);
    put_u8(b, o->moving_average);
    put_u8(b, o->per_channel);
    put_u8(b, (unsigned)o->scenario | (o->inner ? INNER : 0));
    put(b, &o->averaging_constant, sizeof(double));
    put(b, &o->percentile, sizeof(double));
    put_u64(b, o->num_bins);
    put_u64(b, o->num_quantized_bins);
    put_u64(b, o->stride);
    put_u32(b, c->n);
}

static void put_minmax(oq_buf *b, const oq_tstat *t) {
    const size_t n = t->n_samples > 0 ? t->n_channels : 0;
    put_u32(b, n);
    put(b, t->lo, n * sizeof(float));
    put(b, t->hi, n * sizeof(float));
    put(b, t->lo_at, n * sizeof(uint64_t));
    put(b, t->hi_at, n * sizeof(uint64_t));
    put_u32(b, t->rows.n);
    for (size_t i = 0; i < t->rows.n; i++) {
        put_u64(b, t->rows.v[i].number);
        put(b, t->rows.v[i].v, 2 * n * sizeof(float));
    }
}

static void put_hist(oq_buf *b, const oq_tstat *t) {
    const oq_extent *e = &t->extent;
    put_f32(b, e->lo);
    put_f32(b, e->hi);
    put_f32(b, e->lo_abs);
    put_u64(b, e->count);
    put_u64(b, e->n_nan);
    put_u64(b, e->n_low_inf);
    put_u64(b, e->n_high_inf);
    put_f32(b, t->min);
    put_f32(b, t->max);
    put_u8(b, t->min_bare);
    put_u8(b, t->max_bare);
    put_u64(b, t->n_values);
    put_u64(b, t->n_nan);
    put_u64(b, t->n_low_inf);
    put_u64(b, t->n_high_inf);
    put_f32(b, t->threshold);
    put_u8(b, t->has_hist);
    if (t->has_hist) {
        put_u32(b, t->hist.n_bins);
        put(b, t->hist.edges, (t->hist.n_bins + 1) * sizeof(float));
        put(b, t->hist.count, t->hist.n_bins * sizeof(uint64_t));
    }
    put_u8(b, t->has_next);
    if (t->has_next) {
        put_u32(b, t->next.n_bins);
        put(b, t->next.count, t->next.n_bins * sizeof(uint64_t));
    }
}

onq_code oq_partial_encode(const oq_collector *c, const oq_partial_meta *meta, oq_buf *b,
                           onq_error *err) {
    const bool histogram = oq_cal_class_of(c->options.method)->histogram;
    put_head(b, c, meta);
    for (size_t i = 0; i < c->n; i++) {
        const oq_tstat *t = &c->v[i];
        put_u32(b, t->name.n);
        put(b, t->name.p, t->name.n);
        put_u8(b, (unsigned)t->type);
        put_u32(b, t->rank);
        put_u32(b, t->alias);
        put_u64(b, t->n_samples);
        if (t->alias != 0)
            continue;
        if (histogram)
            put_hist(b, t);
        else
            put_minmax(b, t);
    }
    OQ_TRY_ALLOC(!b->failed, err);
    const uint32_t crc =
        (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const Bytef *)b->p + HEAD, b->n - HEAD);
    memcpy(b->p + 8, &crc, sizeof crc);
    return ONQ_OK;
}

onq_code oq_partial_save(const oq_collector *c, const oq_partial_meta *meta, const char *path,
                         onq_error *err) {
    OQ_SCRATCH_BUF(b, c->arena.alloc);
    OQ_TRY(oq_partial_encode(c, meta, &b, err));
    return oq_out_text(c->arena.alloc, path, &b, err);
}

/* ---- reading ---- */

typedef struct cursor {
    const uint8_t *begin, *p, *end;
    bool bad; /* sticky: too few bytes, or a count that cannot be */
} cursor;

static bool has(cursor *r, uint64_t count, size_t size) {
    uint64_t bytes = 0;
    if (r->bad || !oq_mul(count, size, &bytes) || bytes > (uint64_t)(r->end - r->p)) {
        r->bad = true;
        return false;
    }
    return true;
}
/* n elements of `size` bytes into `out`, or zeros. */
static void get(cursor *r, void *out, size_t n, size_t size) {
    if (!has(r, n, size)) {
        memset(out, 0, n * size);
        return;
    }
    if (n > 0)
        memcpy(out, r->p, n * size);
    r->p += n * size;
}
#define GETTER(name, type)                                                                         \
    static type name(cursor *r) {                                                                  \
        type v;                                                                                    \
        get(r, &v, 1, sizeof v);                                                                   \
        return v;                                                                                  \
    }
GETTER(get_u8, uint8_t)
GETTER(get_u32, uint32_t)
GETTER(get_u64, uint64_t)
GETTER(get_f32, float)
GETTER(get_f64, double)
static bool get_bool(cursor *r) {
    const uint8_t v = get_u8(r);
    r->bad |= v > 1;
    return v == 1;
}

static onq_code broken(const cursor *r, onq_error *err) {
    return oq_fail_at(err, ONQ_E_MALFORMED, (uint64_t)(r->p - r->begin),
                      "not a calibration part, or damaged");
}

static onq_code get_head(cursor *r, oq_partial_meta *m, oq_cal_options *o, onq_error *err) {
    *m = (oq_partial_meta){0};
    *o = (oq_cal_options){0};
    const unsigned stage = get_u8(r);
    m->share = get_u64(r);
    m->n_shares = get_u64(r);
    m->total = get_u64(r);
    m->base = get_u64(r);
    m->next = get_u64(r);
    m->model_size = get_u64(r);
    m->model_crc = get_u32(r);
    const unsigned method = get_u8(r);
    o->symmetric = get_bool(r);
    o->moving_average = get_bool(r);
    o->per_channel = get_bool(r);
    const unsigned scenario_inner = get_u8(r), scenario = scenario_inner & ~INNER;
    o->averaging_constant = get_f64(r);
    o->percentile = get_f64(r);
    o->num_bins = get_u64(r);
    o->num_quantized_bins = get_u64(r);
    o->stride = get_u64(r);
    if (r->bad || stage < OQ_STAGE_EXTENT || stage > OQ_STAGE_DONE || method >= OQ_CAL_METHODS ||
        scenario > OQ_CAL_P3 || m->n_shares == 0 || m->share >= m->n_shares)
        return broken(r, err);
    m->stage = (oq_stage)stage;
    o->method = (oq_cal_method)method;
    o->scenario = (oq_cal_scenario)scenario;
    o->inner = (scenario_inner & INNER) != 0;
    if (oq_cal_check(o, NULL) != ONQ_OK)
        return broken(r, err);
    return ONQ_OK;
}

static onq_code get_minmax(cursor *r, oq_collector *c, oq_tstat *t, onq_error *err) {
    const size_t n = get_u32(r);
    if (!has(r, n, 2 * sizeof(float) + 2 * sizeof(uint64_t)) || (n > 0) != (t->n_samples > 0))
        return broken(r, err);
    OQ_TRY_ALLOC(oq_tstat_channels(&c->arena, t, n), err);
    get(r, t->lo, n, sizeof(float));
    get(r, t->hi, n, sizeof(float));
    get(r, t->lo_at, n, sizeof(uint64_t));
    get(r, t->hi_at, n, sizeof(uint64_t));
    const size_t rows = get_u32(r);
    if (!has(r, rows, sizeof(uint64_t) + 2 * n * sizeof(float)))
        return broken(r, err);
    for (size_t i = 0; i < rows; i++) {
        const uint64_t number = get_u64(r);
        float *v = OQ_NEW_ARRAY(&c->arena, float, 2 * n);
        OQ_TRY_ALLOC(v != NULL && OQ_PUSH(&c->arena, &t->rows, (oq_row){number, v}), err);
        get(r, v, 2 * n, sizeof(float));
    }
    return ONQ_OK;
}

/* The chunks before: edges and counts, never added to. */
static onq_code get_old_hist(cursor *r, oq_collector *c, oq_tstat *t, onq_error *err) {
    const size_t n = get_u32(r);
    if (n < c->options.num_bins || !has(r, n, sizeof(float) + sizeof(uint64_t)))
        return broken(r, err);
    oq_hist *h = &t->hist;
    float *edges = oq_alloc(c->arena.alloc, (n + 1) * sizeof(float));
    OQ_TRY_ALLOC(edges != NULL, err);
    get(r, edges, n + 1, sizeof(float));
    const onq_code rc =
        oq_hist_edges(h, c->arena.alloc, t->type, oq_cal_counts_abs(&c->options), edges, n, err);
    oq_free(c->arena.alloc, edges, (n + 1) * sizeof(float));
    if (rc != ONQ_OK)
        return rc;
    t->has_hist = true;
    get(r, h->count, n, sizeof(uint64_t));
    return r->bad || !oq_hist_is_sane(h, NULL) ? broken(r, err) : ONQ_OK;
}

static bool good_extent(const oq_extent *e) {
    const bool none =
        e->lo == __builtin_inff() && e->hi == -__builtin_inff() && e->lo_abs == __builtin_inff();
    const bool some = __builtin_isfinite(e->lo) && __builtin_isfinite(e->hi) && e->lo <= e->hi &&
                      __builtin_isfinite(e->lo_abs) && e->lo_abs >= 0;
    return none || some;
}

static onq_code get_hist(cursor *r, oq_collector *c, size_t index, onq_error *err) {
    oq_tstat *t = &c->v[index];
    oq_extent *e = &t->extent;
    e->lo = get_f32(r);
    e->hi = get_f32(r);
    e->lo_abs = get_f32(r);
    e->count = get_u64(r);
    e->n_nan = get_u64(r);
    e->n_low_inf = get_u64(r);
    e->n_high_inf = get_u64(r);
    t->min = get_f32(r);
    t->max = get_f32(r);
    t->min_bare = get_bool(r);
    t->max_bare = get_bool(r);
    t->n_values = get_u64(r);
    t->n_nan = get_u64(r);
    t->n_low_inf = get_u64(r);
    t->n_high_inf = get_u64(r);
    t->threshold = get_f32(r);
    if (r->bad || !good_extent(e) || !__builtin_isfinite(t->threshold) || t->threshold < 0)
        return broken(r, err);
    if (get_bool(r)) {
        if (t->type == OQ_UNDEFINED)
            return broken(r, err);
        OQ_TRY(get_old_hist(r, c, t, err));
    }
    if (!get_bool(r))
        return r->bad ? broken(r, err) : ONQ_OK;
    const size_t n = get_u32(r);
    if (t->type == OQ_UNDEFINED || !has(r, n, sizeof(uint64_t)))
        return broken(r, err);
    /* Every count is there in the file: a layout that is larger is a lie. */
    if (!t->has_hist && n != c->options.num_bins)
        return broken(r, err);
    c->most_bins = n;
    OQ_TRY(oq_collect_layout(c, index, err));
    c->most_bins = OQ_HIST_MAX_BINS;
    if (t->next.n_bins != n)
        return broken(r, err);
    get(r, t->next.count, n, sizeof(uint64_t));
    return r->bad || !oq_hist_is_sane(&t->next, NULL) ? broken(r, err) : ONQ_OK;
}

static onq_code get_tensor(cursor *r, oq_collector *c, size_t index, size_t n_tensors,
                           onq_error *err) {
    oq_tstat *t = &c->v[index];
    const size_t n = get_u32(r);
    if (!has(r, n, 1))
        return broken(r, err);
    t->name = oq_str_copy(&c->arena, (oq_str){(const char *)r->p, n});
    OQ_TRY_ALLOC(t->name.p != NULL, err);
    r->p += n;
    const unsigned type = get_u8(r);
    t->rank = get_u32(r);
    t->alias = get_u32(r);
    t->n_samples = get_u64(r);
    if (r->bad || t->alias > n_tensors || (t->alias != 0 && t->n_samples > 0) ||
        (type != OQ_UNDEFINED && type != OQ_FLOAT && type != OQ_FLOAT16) ||
        (type == OQ_UNDEFINED) != (t->n_samples == 0))
        return broken(r, err);
    t->type = (oq_dtype)type;
    t->extent = OQ_EXTENT_NONE;
    if (t->alias != 0)
        return ONQ_OK;
    return oq_cal_class_of(c->options.method)->histogram ? get_hist(r, c, index, err)
                                                         : get_minmax(r, c, t, err);
}

/* Counted tensors are laid out and measured ones are not: what the stages mean. */
static bool stage_fits(const oq_collector *c, oq_stage stage) {
    const bool counted = stage == OQ_STAGE_COUNT || stage == OQ_STAGE_DONE;
    const bool histogram = oq_cal_class_of(c->options.method)->histogram;
    if (!histogram)
        return stage == OQ_STAGE_EXTENT || stage == OQ_STAGE_DONE;
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].alias == 0 && c->v[i].has_next != counted)
            return false;
    return true;
}

onq_code oq_partial_parse(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                          const uint8_t *p, size_t n, onq_error *err) {
    cursor r = {.begin = p, .p = p, .end = p + n};
    oq_cal_options o;
    uint32_t crc = 0;
    *c = (oq_collector){0};
    if (n < HEAD || memcmp(p, MAGIC, 8) != 0)
        return oq_fail(err, ONQ_E_MALFORMED, "not a calibration part");
    memcpy(&crc, p + 8, sizeof crc);
    if (crc != (uint32_t)crc32_z(crc32_z(0, NULL, 0), p + HEAD, n - HEAD))
        return oq_fail(err, ONQ_E_MALFORMED, "damaged: its checksum does not fit its contents");
    r.p += HEAD;
    OQ_TRY(get_head(&r, meta, &o, err));
    const size_t count = get_u32(&r);
    if (!has(&r, count, 21))
        return broken(&r, err);
    OQ_TRY(oq_collect_init(c, env, &o, NULL, 0, err));
    onq_code rc = ONQ_OK;
    c->v = OQ_NEW_ARRAY(&c->arena, oq_tstat, count > 0 ? count : 1);
    if (c->v == NULL)
        rc = oq_fail_nomem(err);
    for (size_t i = 0; rc == ONQ_OK && i < count; i++) {
        c->n = i + 1;
        rc = get_tensor(&r, c, i, count, err);
    }
    if (rc == ONQ_OK && (r.bad || r.p != r.end || !stage_fits(c, meta->stage)))
        rc = broken(&r, err);
    if (rc == ONQ_OK && meta->stage == OQ_STAGE_COUNT)
        c->pass = OQ_PASS_COUNT;
    if (rc != ONQ_OK)
        oq_collect_release(c);
    return rc;
}

onq_code oq_partial_load(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                         const char *path, onq_error *err) {
    oq_file f;
    *c = (oq_collector){0};
    OQ_TRY(oq_file_open(&f, &env->alloc, path, err));
    onq_code rc = oq_partial_parse(c, meta, env, f.p, (size_t)f.size, err);
    oq_file_close(&f);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}

/* ---- joining ---- */

static onq_code joins(const oq_partial_meta *a, const oq_collector *ca, const oq_partial_meta *b,
                      const oq_collector *cb, onq_error *err) {
    if (!oq_cal_options_equal(&ca->options, &cb->options))
        return oq_fail(err, ONQ_E_INVALID, "was made with other options than the first part");
    if (a->n_shares != b->n_shares)
        return oq_fail(err, ONQ_E_INVALID, "is one of %llu shards, the first part is one of %llu",
                       (unsigned long long)b->n_shares, (unsigned long long)a->n_shares);
    if (a->model_size != b->model_size || a->model_crc != b->model_crc)
        return oq_fail(err, ONQ_E_INVALID, "was made with another model than the first part");
    if (a->total != b->total)
        return oq_fail(err, ONQ_E_INVALID,
                       "was made from %llu samples in all, the first part from %llu",
                       (unsigned long long)b->total, (unsigned long long)a->total);
    return ONQ_OK;
}

static onq_code join_one(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                         const char *path, oq_stage stage, uint8_t *there, onq_error *err) {
    oq_collector part;
    oq_partial_meta m;
    OQ_TRY(oq_partial_load(&part, &m, env, path, err));
    onq_code rc = ONQ_OK;
    if (m.stage != stage)
        rc = oq_fail(err, ONQ_E_INVALID, "is %s",
                     m.stage == OQ_STAGE_RANGE  ? "the range pass only, not a complete shard"
                     : m.stage == OQ_STAGE_DONE ? "a complete shard, not the range pass of one"
                                                : "a checkpoint of an unfinished run");
    const bool first = c->arena.alloc == NULL;
    if (rc == ONQ_OK && !first)
        rc = joins(meta, c, &m, &part, err);
    if (rc == ONQ_OK && there != NULL && !first && there[m.share] != 0)
        rc = oq_fail(err, ONQ_E_INVALID, "shard %llu of %llu was given twice",
                     (unsigned long long)m.share, (unsigned long long)m.n_shares);
    if (rc == ONQ_OK && !first)
        rc = oq_collect_merge(c, &part, err);
    if (rc == ONQ_OK && there != NULL)
        there[m.share] = 1;
    if (rc == ONQ_OK && first) {
        *c = part;
        *meta = m;
        return ONQ_OK;
    }
    oq_collect_release(&part);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}

onq_code oq_partial_join(oq_collector *c, oq_partial_meta *meta, const onq_env *env,
                         const char *const *paths, size_t n, oq_stage stage, onq_error *err) {
    uint8_t *there = NULL;
    *c = (oq_collector){0};
    if (n == 0)
        return oq_fail(err, ONQ_E_OPTION, "no parts to join");
    onq_code rc = ONQ_OK;
    /* How many there are to be is known from the first; more than there are files cannot be. */
    OQ_GO(join_one(c, meta, env, paths[0], stage, NULL, err));
    if (meta->n_shares != n) {
        rc = oq_fail(err, ONQ_E_INVALID, "%s: %zu of its %llu shards %s given%s", paths[0], n,
                     (unsigned long long)meta->n_shares, n == 1 ? "was" : "were",
                     n < meta->n_shares ? "; add the others" : ", which is too many");
        goto done;
    }
    there = oq_calloc(&env->alloc, n, 1);
    if (there == NULL) {
        rc = oq_fail_nomem(err);
        goto done;
    }
    there[meta->share] = 1;
    for (size_t i = 1; i < n; i++)
        OQ_GO(join_one(c, meta, env, paths[i], stage, there, err));
done:
    oq_free(&env->alloc, there, n);
    if (rc != ONQ_OK)
        oq_collect_release(c);
    return rc;
}
