/*
 * ranges.c — the table of ranges. Reading and writing the cache file is in ranges_json.c.
 */
#include "calibrate/ranges.h"

#include <strings.h>

static const char *const method_names[OQ_CAL_METHODS] = {
#define OQ_CAL_METHOD(NAME, text, symbol) [OQ_CAL_##NAME] = text,
#include "calibrate/method/method.def"
#undef OQ_CAL_METHOD
};

const char *oq_cal_method_name(oq_cal_method m) {
    return (unsigned)m < OQ_CAL_METHODS ? method_names[m] : "unknown";
}

bool oq_cal_method_find(oq_str name, oq_cal_method *out) {
    for (unsigned i = 0; i < OQ_CAL_METHODS; i++)
        if (strlen(method_names[i]) == name.n &&
            strncasecmp(method_names[i], name.p, name.n) == 0) {
            *out = (oq_cal_method)i;
            return true;
        }
    return false;
}

void oq_ranges_init(oq_ranges *r, const onq_allocator *alloc, oq_cal_method method) {
    *r = (oq_ranges){.method = method};
    oq_arena_init(&r->arena, alloc);
    /* The map's arena is a member of a struct that may be copied: it is set at every use. */
    oq_map_init(&r->map, NULL);
}

void oq_ranges_release(oq_ranges *r) {
    if (r->arena.alloc != NULL)
        oq_arena_release(&r->arena);
    *r = (oq_ranges){0};
}

oq_range *oq_ranges_find(const oq_ranges *r, oq_str name) {
    const uint32_t i = oq_map_find(&r->map, name);
    return i == OQ_MAP_NONE ? NULL : r->all.v[i];
}

oq_range *oq_ranges_add(oq_ranges *r, oq_str name) {
    oq_range *found = oq_ranges_find(r, name);
    if (found != NULL)
        return found;
    oq_range *t = OQ_NEW(&r->arena, oq_range);
    if (t == NULL)
        return NULL;
    t->name = oq_str_copy(&r->arena, name);
    if (t->name.p == NULL || !OQ_PUSH(&r->arena, &r->all, t))
        return NULL;
    r->map.arena = &r->arena;
    if (!oq_map_put(&r->map, t->name, (uint32_t)(r->all.n - 1))) {
        r->all.n--;
        return NULL;
    }
    return t;
}

bool oq_ranges_copy(oq_ranges *r, oq_str name, const oq_range *from) {
    const oq_range values = *from;
    oq_range *t = oq_ranges_add(r, name);
    if (t == NULL)
        return false;
    const oq_str own = t->name;
    *t = values;
    t->name = own;
    return true;
}

static bool clone_num(oq_arena *a, oq_num *to, const oq_num *from) {
    *to = *from;
    if (!oq_num_has(from))
        return true;
    if (!oq_num_make(a, to, from->type, from->scalar, from->n))
        return false;
    to->bare = from->bare;
    if (from->type == OQ_INT64)
        memcpy(to->i, from->i, from->n * sizeof *to->i);
    else
        memcpy(to->v, from->v, from->n * sizeof *to->v);
    return true;
}

static bool clone_range(oq_ranges *out, const oq_range *from) {
    oq_arena *a = &out->arena;
    oq_range *to = oq_ranges_add(out, from->name);
    if (to == NULL)
        return false;
    to->lowest_was_bare = from->lowest_was_bare;
    to->nan_from = oq_str_copy(a, from->nan_from);
    return to->nan_from.p != NULL && clone_num(a, &to->lowest, &from->lowest) &&
           clone_num(a, &to->highest, &from->highest) && clone_num(a, &to->avg, &from->avg) &&
           clone_num(a, &to->std, &from->std) && clone_num(a, &to->hist, &from->hist) &&
           clone_num(a, &to->hist_edges, &from->hist_edges) && clone_num(a, &to->bins, &from->bins);
}

bool oq_ranges_clone(oq_ranges *out, const onq_allocator *alloc, const oq_ranges *from) {
    oq_ranges_init(out, alloc, from->method);
    out->smooth_quant = from->smooth_quant;
    for (size_t i = 0; i < from->all.n; i++)
        if (!clone_range(out, from->all.v[i])) {
            oq_ranges_release(out);
            return false;
        }
    return true;
}

bool oq_num_make(oq_arena *a, oq_num *x, oq_dtype type, bool scalar, size_t n) {
    assert(n > 0);
    oq_num made = {.type = type, .scalar = scalar, .n = n};
    assert(!scalar || n == 1);
    if (type == OQ_INT64)
        made.i = OQ_NEW_ARRAY(a, int64_t, n);
    else
        made.v = OQ_NEW_ARRAY(a, double, n);
    if (made.i == NULL && made.v == NULL)
        return false;
    *x = made;
    return true;
}

bool oq_num_make_one(oq_arena *a, oq_num *x, oq_dtype type, bool bare, double v) {
    if (!oq_num_make(a, x, type, true, 1))
        return false;
    x->bare = bare;
    if (type == OQ_INT64)
        x->i[0] = (int64_t)v;
    else
        x->v[0] = v;
    return true;
}

bool oq_range_pair(const oq_range *r, double *lowest, double *highest) {
    if (!oq_num_has(&r->lowest) || !oq_num_has(&r->highest) || r->lowest.n != 1 ||
        r->highest.n != 1 || r->lowest.v == NULL || r->highest.v == NULL)
        return false;
    *lowest = r->lowest.v[0];
    *highest = r->highest.v[0];
    return true;
}

static bool has_infinity(const oq_num *x) {
    for (size_t i = 0; oq_num_has(x) && x->v != NULL && i < x->n; i++)
        if (isinf(x->v[i]))
            return true;
    return false;
}

bool oq_range_is_infinite(const oq_range *r) {
    return has_infinity(&r->lowest) || has_infinity(&r->highest);
}

bool oq_range_is_empty(const oq_range *r) {
    double lo = 0, hi = 0;
    return oq_range_pair(r, &lo, &hi) && lo > hi;
}

static bool is_symmetric(const oq_ranges *r, const oq_range *t) {
    double lo = 0, hi = 0;
    if (r->method == OQ_CAL_PERCENTILE && oq_num_has(&t->hist))
        return t->lowest_was_bare && t->hist.type == OQ_INT64 && t->hist.n == 1 && t->hist.i[0] > 0;
    return oq_range_pair(t, &lo, &hi) && lo == -hi;
}

bool oq_ranges_are_symmetric(const oq_ranges *r) {
    if (r->method != OQ_CAL_PERCENTILE && r->method != OQ_CAL_MINMAX)
        return false;
    for (size_t i = 0; i < r->all.n; i++)
        if (!is_symmetric(r, r->all.v[i]))
            return false;
    return r->all.n > 0;
}
