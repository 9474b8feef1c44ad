/*
 * ranges_handle.c — onq_ranges: what a calibration found, as data.
 *
 * oq_ranges keeps numbers as doubles with the type they stand for; callers get arrays of that type,
 * made when a range is first looked at.
 */
#include "api/interface/ranges_handle.h"

#include "base/text/real.h"
#include "calibrate/tensorrt_table.h"

#define ATTRIBUTES 7

/* The arrays that callers look at. */
typedef struct shown {
    oq_arena arena;
    onq_range **v; /* by index; NULL until it is asked for */
    size_t cap;
} shown;

struct onq_ranges {
    onq_env env; /* for what needs one: allocator and nothing else */
    oq_ranges r;
    shown *shown;
};

/* ---- life ---- */

onq_code oq_ranges_hand_over(const onq_env *env, oq_ranges *r, onq_ranges **out, onq_error *err) {
    onq_ranges *h = oq_calloc(&env->alloc, 1, sizeof *h);
    shown *s = oq_calloc(&env->alloc, 1, sizeof *s);
    *out = NULL;
    if (h == NULL || s == NULL) {
        oq_free(&env->alloc, h, sizeof *h);
        oq_free(&env->alloc, s, sizeof *s);
        oq_ranges_release(r);
        return oq_fail_nomem(err);
    }
    h->env.alloc = env->alloc;
    h->r = *r;
    h->r.arena.alloc = &h->env.alloc;
    h->shown = s;
    oq_arena_init(&s->arena, &h->env.alloc);
    *r = (oq_ranges){0};
    *out = h;
    return ONQ_OK;
}

const oq_ranges *oq_ranges_inside(const onq_ranges *ranges) {
    return &ranges->r;
}

onq_code onq_ranges_new(onq_env *env, const char *method, onq_ranges **out, onq_error *err) {
    oq_cal_method m;
    oq_ranges r;
    *out = NULL;
    if (!oq_cal_method_find(oq_str_of(method), &m))
        return oq_fail(err, ONQ_E_OPTION, "'%.100s' is not a calibration method", method);
    oq_ranges_init(&r, &env->alloc, m);
    return oq_ranges_hand_over(env, &r, out, err);
}

onq_code onq_ranges_load(onq_env *env, const char *path, onq_ranges **out, onq_error *err) {
    oq_ranges r;
    *out = NULL;
    OQ_TRY(oq_ranges_load(&r, env, path, err));
    return oq_ranges_hand_over(env, &r, out, err);
}

void onq_ranges_free(onq_ranges *ranges) {
    if (ranges == NULL)
        return;
    const onq_allocator alloc = ranges->env.alloc;
    oq_arena_release(&ranges->shown->arena);
    oq_free(&alloc, ranges->shown->v, ranges->shown->cap * sizeof(onq_range *));
    oq_free(&alloc, ranges->shown, sizeof(shown));
    oq_ranges_release(&ranges->r);
    oq_free(&alloc, ranges, sizeof *ranges);
}

/* ---- files ---- */

onq_code onq_ranges_save(const onq_ranges *ranges, const char *path, onq_error *err) {
    return oq_ranges_save(&ranges->r, &ranges->env, path, err);
}

onq_code onq_ranges_save_table(const onq_ranges *ranges, const char *folder, onq_error *err) {
    oq_out outs[OQ_TABLE_FILES] = {0};
    oq_out *list[OQ_TABLE_FILES];
    for (size_t i = 0; i < OQ_TABLE_FILES; i++)
        list[i] = &outs[i];
    onq_code rc = oq_table_write(&ranges->r, &ranges->env, folder, outs, err);
    if (rc == ONQ_OK)
        rc = oq_out_commit_all(list, OQ_TABLE_FILES, err);
    for (size_t i = 0; i < OQ_TABLE_FILES; i++)
        oq_out_abort(&outs[i]);
    return rc;
}

/* ---- looking ---- */

const char *onq_ranges_method(const onq_ranges *ranges) {
    return oq_cal_method_name(ranges->r.method);
}

size_t onq_ranges_count(const onq_ranges *ranges) {
    return ranges->r.all.n;
}

int onq_ranges_smooth_quant(const onq_ranges *ranges) {
    return ranges->r.smooth_quant;
}

void onq_ranges_set_smooth_quant(onq_ranges *ranges, int smooth_quant) {
    ranges->r.smooth_quant = smooth_quant != 0;
}

static void put_element(const oq_num *x, size_t i, void *data) {
    if (x->type == OQ_INT64) {
        memcpy((uint8_t *)data + i * 8, &x->i[i], 8);
    } else if (x->type == OQ_FLOAT16) {
        const uint16_t half = oq_f64_to_f16(x->v[i]);
        memcpy((uint8_t *)data + i * 2, &half, 2);
    } else {
        const float single = (float)x->v[i];
        memcpy((uint8_t *)data + i * 4, &single, 4);
    }
}

static bool show_number(oq_arena *a, const oq_num *x, onq_tensor *out) {
    const size_t item = x->type == OQ_INT64 ? 8 : x->type == OQ_FLOAT16 ? 2 : 4;
    if (!oq_num_has(x))
        return true;
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 1);
    void *data = oq_arena_array(a, x->n, item);
    if (dims == NULL || data == NULL)
        return false;
    dims[0] = (int64_t)x->n;
    for (size_t i = 0; i < x->n; i++)
        put_element(x, i, data);
    *out = (onq_tensor){.dtype = (int32_t)x->type,
                        .rank = x->scalar ? 0 : 1,
                        .dims = dims,
                        .data = data,
                        .size = x->n * item};
    return true;
}

/* The attributes of both structs, in the order of onq_range. */
static void list_numbers(const oq_range *r, const oq_num *out[ATTRIBUTES]) {
    const oq_num *const all[ATTRIBUTES] = {&r->lowest, &r->highest,    &r->avg, &r->std,
                                           &r->hist,   &r->hist_edges, &r->bins};
    memcpy(out, all, sizeof all);
}

static onq_range *show(oq_arena *a, const oq_range *r) {
    onq_range *x = OQ_NEW(a, onq_range);
    const oq_num *numbers[ATTRIBUTES];
    if (x == NULL || (x->name = oq_str_cstr(a, r->name)) == NULL)
        return NULL;
    onq_tensor *const tensors[ATTRIBUTES] = {&x->lowest, &x->highest,    &x->avg, &x->std,
                                             &x->hist,   &x->hist_edges, &x->bins};
    list_numbers(r, numbers);
    for (size_t i = 0; i < ATTRIBUTES; i++) {
        if (!show_number(a, numbers[i], tensors[i]))
            return NULL;
        if (oq_num_has(numbers[i]) && numbers[i]->bare)
            x->bare |= 1u << i;
    }
    return x;
}

static bool make_room(const onq_ranges *h) {
    shown *s = h->shown;
    const size_t n = h->r.all.n;
    if (n <= s->cap)
        return true;
    onq_range **v =
        oq_resize(&h->env.alloc, s->v, s->cap * sizeof(onq_range *), n * sizeof(onq_range *));
    if (v == NULL)
        return false;
    memset(v + s->cap, 0, (n - s->cap) * sizeof(onq_range *));
    s->v = v;
    s->cap = n;
    return true;
}

const onq_range *onq_ranges_at(const onq_ranges *ranges, size_t i) {
    shown *s = ranges->shown;
    if (i >= ranges->r.all.n || !make_room(ranges))
        return NULL;
    assert(i < s->cap);
    if (s->v[i] == NULL)
        s->v[i] = show(&s->arena, ranges->r.all.v[i]);
    return s->v[i];
}

static size_t index_of(const onq_ranges *h, oq_str name) {
    const uint32_t at = oq_map_find(&h->r.map, name);
    return at == OQ_MAP_NONE ? ONQ_NONE : at;
}

const onq_range *onq_ranges_find(const onq_ranges *ranges, const char *name) {
    const size_t i = index_of(ranges, oq_str_of(name));
    return i != ONQ_NONE ? onq_ranges_at(ranges, i) : NULL;
}

/* ---- setting ---- */

static onq_code fail_number(const char *name, const char *what, const char *wrong, onq_error *err) {
    return oq_fail(err, ONQ_E_INVALID, "range of '%.200s': %s %s", name, what, wrong);
}

static bool is_known(int32_t dtype) {
    return dtype == OQ_FLOAT || dtype == OQ_FLOAT16 || dtype == OQ_INT64;
}

static onq_code take_number(oq_arena *a, const char *name, const char *what, const onq_tensor *t,
                            bool bare, oq_num *out, onq_error *err) {
    const size_t item = t->dtype == OQ_INT64 ? 8 : t->dtype == OQ_FLOAT16 ? 2 : 4;
    *out = (oq_num){0};
    if (t->dtype == OQ_UNDEFINED)
        return ONQ_OK;
    if (!is_known(t->dtype))
        return fail_number(name, what, "is not of float, float16 or int64", err);
    if (t->rank > 1 || t->data == NULL || t->size == 0 || t->size % item != 0 ||
        t->strides != NULL || (t->rank == 0 && t->size != item) ||
        (t->rank == 1 && (t->dims[0] < 1 || (uint64_t)t->dims[0] != t->size / item)))
        return fail_number(name, what, "is not a number or an array of one axis with elements",
                           err);
    OQ_TRY_ALLOC(oq_num_make(a, out, (oq_dtype)t->dtype, t->rank == 0, t->size / item), err);
    out->bare = bare && t->rank == 0;
    for (size_t i = 0; i < out->n; i++) {
        const uint8_t *p = (const uint8_t *)t->data + i * item;
        uint16_t half;
        float single;
        if (t->dtype == OQ_INT64) {
            memcpy(&out->i[i], p, 8);
        } else if (t->dtype == OQ_FLOAT16) {
            memcpy(&half, p, 2);
            out->v[i] = (double)oq_f16_to_f32(half);
        } else {
            memcpy(&single, p, 4);
            out->v[i] = (double)single;
        }
    }
    return ONQ_OK;
}

onq_code onq_ranges_set(onq_ranges *ranges, const onq_range *x, onq_error *err) {
    static const char *const names[ATTRIBUTES] = {"lowest", "highest",    "avg", "std",
                                                  "hist",   "hist_edges", "bins"};
    oq_range made = {0};
    oq_num *const numbers[ATTRIBUTES] = {&made.lowest, &made.highest,    &made.avg, &made.std,
                                         &made.hist,   &made.hist_edges, &made.bins};
    const onq_tensor *const tensors[ATTRIBUTES] = {&x->lowest, &x->highest,    &x->avg, &x->std,
                                                   &x->hist,   &x->hist_edges, &x->bins};
    if (x->name == NULL || x->name[0] == '\0')
        return oq_fail(err, ONQ_E_INVALID, "a range without a name");
    for (size_t i = 0; i < ATTRIBUTES; i++)
        OQ_TRY(take_number(&ranges->r.arena, x->name, names[i], tensors[i], (x->bare >> i & 1) != 0,
                           numbers[i], err));
    made.lowest_was_bare = made.lowest.bare;
    const size_t old = index_of(ranges, oq_str_of(x->name));
    oq_range *r = oq_ranges_add(&ranges->r, oq_str_of(x->name));
    OQ_TRY_ALLOC(r != NULL, err);
    made.name = r->name;
    *r = made;
    if (old != ONQ_NONE && old < ranges->shown->cap)
        ranges->shown->v[old] = NULL;
    return ONQ_OK;
}

/* ---- into and out of jobs ---- */

onq_code onq_options_set_ranges(onq_options *opts, const onq_ranges *ranges, onq_error *err) {
    if (onq_options_find(opts, "calibration_cache") == NULL)
        return oq_fail(err, ONQ_E_OPTION, "'%s' takes no ranges", opts->command->info.name);
    opts->ranges = ranges;
    return ONQ_OK;
}

onq_code oq_job_give_ranges(oq_job *job, oq_ranges *r, onq_error *err) {
    return oq_ranges_hand_over(job->env, r, &job->ranges, err);
}
