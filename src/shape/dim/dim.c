/*
 * dim.c — the normal form of symbolic dimensions: sums, products, interning.
 *
 * Called by all shape rules. expr.h has the picture. Division, minimum and maximum are in
 * dim_divide.c and dim_order.c, text in dim_text.c.
 */
#include "shape/dim/dim.h"

#include "shape/dim/expr.h"

const oq_expr oq_sdim_none = {.least = INT64_MIN, .most = INT64_MAX};

void oq_sdims_init(oq_sdims *ds, oq_arena *arena, bool plain) {
    *ds = (oq_sdims){.arena = arena, .plain = plain};
    oq_map_init(&ds->exprs, arena);
    oq_map_init(&ds->atoms, arena);
}

static int64_t sat_add(int64_t a, int64_t b) {
    if (a == INT64_MIN || b == INT64_MIN)
        return INT64_MIN;
    if (a == INT64_MAX || b == INT64_MAX)
        return INT64_MAX;
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

static int64_t sat_mul(int64_t a, int64_t b) {
    if (a == 0 || b == 0)
        return 0;
    int64_t r;
    const bool open = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    if (open || __builtin_mul_overflow(a, b, &r))
        return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
    return r;
}

int64_t oq_floor_div(int64_t a, int64_t b) {
    assert(b > 0);
    const int64_t q = a / b;
    return a % b != 0 && a < 0 ? q - 1 : q;
}

static int term_cmp(const oq_term *a, const oq_term *b) {
    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    for (size_t i = 0; i < a->n; i++)
        if (a->f[i] != b->f[i])
            return a->f[i]->id < b->f[i]->id ? -1 : 1;
    return 0;
}

void oq_poly_of(oq_poly *p, oq_sdim d) {
    p->n = 0;
    p->bad = oq_sdim_is_unknown(d);
    if (oq_sdim_is_num(d)) {
        if (d.n != 0)
            p->t[p->n++] = (oq_term){.coef = d.n};
    } else if (!p->bad) {
        memcpy(p->t, d.e->t, d.e->n * sizeof(oq_term));
        p->n = d.e->n;
    }
}

void oq_poly_add_term(oq_poly *p, int64_t coef, const oq_term *t) {
    int64_t c;
    if (p->bad || __builtin_mul_overflow(coef, t->coef, &c)) {
        p->bad = true;
        return;
    }
    size_t i = 0;
    int cmp = 1;
    while (i < p->n && (cmp = term_cmp(&p->t[i], t)) < 0)
        i++;
    if (i < p->n && cmp == 0) {
        if (__builtin_add_overflow(p->t[i].coef, c, &p->t[i].coef)) {
            p->bad = true;
        } else if (p->t[i].coef == 0) {
            p->n--;
            memmove(&p->t[i], &p->t[i + 1], (p->n - i) * sizeof(oq_term));
        }
        return;
    }
    if (c == 0)
        return;
    if (p->n == OQ_SDIM_TERMS) {
        p->bad = true;
        return;
    }
    memmove(&p->t[i + 1], &p->t[i], (p->n - i) * sizeof(oq_term));
    p->t[i] = *t;
    p->t[i].coef = c;
    p->n++;
    assert(p->n <= OQ_SDIM_TERMS);
}

void oq_poly_add(oq_poly *p, int64_t coef, const oq_poly *q) {
    p->bad = p->bad || q->bad;
    for (size_t i = 0; i < q->n && !p->bad; i++)
        oq_poly_add_term(p, coef, &q->t[i]);
}

bool oq_term_mul(const oq_term *a, const oq_term *b, oq_term *out) {
    if (a->n + b->n > OQ_SDIM_FACTORS || __builtin_mul_overflow(a->coef, b->coef, &out->coef))
        return false;
    out->n = a->n + b->n;
    assert(out->n <= OQ_SDIM_FACTORS);
    for (size_t i = 0, j = 0; i + j < out->n;) {
        const bool from_a = j == b->n || (i < a->n && a->f[i]->id <= b->f[j]->id);
        out->f[i + j] = from_a ? a->f[i] : b->f[j];
        *(from_a ? &i : &j) += 1;
    }
    return true;
}

/* out = a * b; out is neither. */
static void poly_mul(oq_poly *out, const oq_poly *a, const oq_poly *b) {
    out->n = 0;
    out->bad = a->bad || b->bad;
    for (size_t i = 0; i < a->n && !out->bad; i++) {
        for (size_t j = 0; j < b->n && !out->bad; j++) {
            oq_term t = {0};
            if (oq_term_mul(&a->t[i], &b->t[j], &t))
                oq_poly_add_term(out, 1, &t);
            else
                out->bad = true;
        }
    }
}

static void term_bounds(const oq_term *t, int64_t *least, int64_t *most) {
    int64_t lo = t->coef, hi = t->coef;
    for (size_t i = 0; i < t->n; i++) {
        const int64_t a = t->f[i]->least, b = t->f[i]->most;
        const int64_t c[4] = {sat_mul(lo, a), sat_mul(lo, b), sat_mul(hi, a), sat_mul(hi, b)};
        lo = hi = c[0];
        for (size_t k = 1; k < 4; k++) {
            lo = c[k] < lo ? c[k] : lo;
            hi = c[k] > hi ? c[k] : hi;
        }
    }
    *least = lo;
    *most = hi;
}

void oq_poly_bounds(const oq_poly *p, int64_t *least, int64_t *most) {
    int64_t lo = 0, hi = 0;
    bool open_lo = false, open_hi = false;
    for (size_t i = 0; i < p->n; i++) {
        int64_t a, b;
        term_bounds(&p->t[i], &a, &b);
        open_lo = open_lo || a == INT64_MIN;
        open_hi = open_hi || b == INT64_MAX;
        lo = sat_add(lo, a);
        hi = sat_add(hi, b);
    }
    /* A sum that saturated says nothing on the side it left. */
    *least = p->bad || open_lo || lo == INT64_MAX ? INT64_MIN : lo;
    *most = p->bad || open_hi || hi == INT64_MIN ? INT64_MAX : hi;
    assert(*least <= *most);
}

static size_t put(uint8_t *key, size_t at, const void *p, size_t n) {
    memcpy(key + at, p, n);
    return at + n;
}

/* What is in the map under the key, or OQ_MAP_NONE after `key` was made to outlive the map. */
static uint32_t find_or_keep(oq_sdims *ds, oq_map *map, oq_str *key) {
    const uint32_t at = oq_map_find(map, *key);
    if (at == OQ_MAP_NONE) {
        *key = oq_str_copy(ds->arena, *key);
        ds->failed = ds->failed || key->p == NULL;
    }
    return at;
}

oq_sdim oq_poly_intern(oq_sdims *ds, const oq_poly *p) {
    if (p->bad || ds->failed)
        return oq_sdim_unknown();
    if (p->n == 0)
        return oq_sdim_num(0);
    if (p->n == 1 && p->t[0].n == 0)
        return oq_sdim_num(p->t[0].coef);
    uint8_t bytes[OQ_SDIM_TERMS * (8 + 1 + OQ_SDIM_FACTORS * 4)];
    size_t n = 0;
    unsigned depth = 0;
    for (size_t i = 0; i < p->n; i++) {
        const oq_term *t = &p->t[i];
        const uint8_t n_factors = (uint8_t)t->n;
        n = put(bytes, n, &t->coef, 8);
        n = put(bytes, n, &n_factors, 1);
        for (size_t k = 0; k < t->n; k++) {
            n = put(bytes, n, &t->f[k]->id, 4);
            depth = t->f[k]->depth > depth ? t->f[k]->depth : depth;
        }
    }
    assert(n <= sizeof bytes);
    oq_str key = {(const char *)bytes, n};
    const uint32_t at = find_or_keep(ds, &ds->exprs, &key);
    if (at != OQ_MAP_NONE)
        return (oq_sdim){ds->expr_list.v[at], 0};
    oq_expr *e = OQ_NEW(ds->arena, oq_expr);
    oq_term *terms = OQ_NEW_ARRAY(ds->arena, oq_term, p->n);
    if (ds->failed || e == NULL || terms == NULL || !OQ_PUSH(ds->arena, &ds->expr_list, e) ||
        !oq_map_put(&ds->exprs, key, (uint32_t)(ds->expr_list.n - 1))) {
        ds->failed = true;
        return oq_sdim_unknown();
    }
    memcpy(terms, p->t, p->n * sizeof(oq_term));
    *e = (oq_expr){.id = (uint32_t)(ds->expr_list.n - 1), .depth = depth, .n = p->n, .t = terms};
    oq_poly_bounds(p, &e->least, &e->most);
    return (oq_sdim){e, 0};
}

static void atom_bounds(oq_atom *a) {
    a->least = INT64_MIN;
    a->most = INT64_MAX;
    if (a->kind == OQ_ATOM_FLOOR) {
        const int64_t lo = oq_sdim_least(a->args[0]), hi = oq_sdim_most(a->args[0]);
        if (oq_sdim_is_num(a->args[1])) {
            const int64_t q = a->args[1].n;
            assert(a->n_args == 2 && q != 0);
            a->least = lo == INT64_MIN ? lo : oq_floor_div(lo, q);
            a->most = hi == INT64_MAX ? hi : oq_floor_div(hi, q);
        } else if (lo >= 0 && oq_sdim_least(a->args[1]) >= 0) {
            a->least = 0;
            a->most = hi;
        }
        return;
    }
    const bool is_min = a->kind == OQ_ATOM_MIN;
    a->least = is_min ? INT64_MAX : INT64_MIN;
    a->most = is_min ? INT64_MAX : INT64_MIN;
    for (size_t i = 0; i < a->n_args; i++) {
        const int64_t lo = oq_sdim_least(a->args[i]), hi = oq_sdim_most(a->args[i]);
        a->least = (is_min ? lo < a->least : lo > a->least) ? lo : a->least;
        a->most = (is_min ? hi < a->most : hi > a->most) ? hi : a->most;
    }
}

static oq_sdim atom_dim(oq_sdims *ds, const oq_atom *a) {
    oq_poly p = {.n = 1};
    p.t[0] = (oq_term){.coef = 1, .n = 1, .f = {a}};
    return oq_poly_intern(ds, &p);
}

/* The atom at the key, or a new one of which only id and kind are set. */
static oq_atom *atom_of(oq_sdims *ds, oq_atom_kind kind, oq_str key, bool *is_new) {
    const uint32_t at = find_or_keep(ds, &ds->atoms, &key);
    *is_new = at == OQ_MAP_NONE;
    if (!*is_new)
        return ds->atom_list.v[at];
    oq_atom *a = OQ_NEW(ds->arena, oq_atom);
    if (ds->failed || a == NULL || !OQ_PUSH(ds->arena, &ds->atom_list, a) ||
        !oq_map_put(&ds->atoms, key, (uint32_t)(ds->atom_list.n - 1))) {
        ds->failed = true;
        return NULL;
    }
    a->id = (uint32_t)(ds->atom_list.n - 1);
    a->kind = kind;
    assert(oq_map_find(&ds->atoms, key) == a->id);
    return a;
}

oq_sdim oq_atom_intern(oq_sdims *ds, oq_atom_kind kind, const oq_sdim *args, size_t n) {
    assert(kind != OQ_ATOM_NAME);
    unsigned depth = 1;
    uint8_t bytes[1 + OQ_SDIM_ARGS * 9];
    bytes[0] = (uint8_t)kind;
    size_t at = 1;
    if (n > OQ_SDIM_ARGS)
        return oq_sdim_unknown();
    for (size_t i = 0; i < n; i++) {
        const uint8_t is_num = oq_sdim_is_num(args[i]);
        const int64_t v = is_num ? args[i].n : (int64_t)args[i].e->id;
        at = put(bytes, at, &is_num, 1);
        at = put(bytes, at, &v, 8);
        if (!is_num && args[i].e->depth + 1 > depth)
            depth = args[i].e->depth + 1;
    }
    if (depth > OQ_SDIM_DEPTH)
        return oq_sdim_unknown();
    bool is_new;
    oq_atom *a = atom_of(ds, kind, (oq_str){(const char *)bytes, at}, &is_new);
    if (a == NULL)
        return oq_sdim_unknown();
    if (is_new) {
        a->depth = depth;
        a->n_args = n;
        memcpy(a->args, args, n * sizeof(oq_sdim));
        atom_bounds(a);
    }
    return atom_dim(ds, a);
}

oq_sdim oq_sdim_name(oq_sdims *ds, oq_str name, int64_t least) {
    /* The key differs from those of other atoms in its first byte, which needs a copy of the
     * name. */
    char small[128];
    oq_str key = {small, name.n + 1};
    if (name.n + 1 > sizeof small) {
        char *copy = oq_arena_alloc(ds->arena, name.n + 1);
        if (copy == NULL) {
            ds->failed = true;
            return oq_sdim_unknown();
        }
        memcpy(copy + 1, name.p, name.n);
        key.p = copy;
    } else {
        small[0] = (char)OQ_ATOM_NAME;
        memcpy(small + 1, name.p, name.n);
    }
    bool is_new;
    oq_atom *a = atom_of(ds, OQ_ATOM_NAME, key, &is_new);
    if (a == NULL)
        return oq_sdim_unknown();
    if (is_new) {
        a->name = name;
        a->least = least;
        a->most = INT64_MAX;
    }
    return atom_dim(ds, a);
}

const oq_atom *oq_sdim_atom(oq_sdim d) {
    if (!oq_sdim_is_symbolic(d) || d.e->n != 1 || d.e->t[0].n != 1 || d.e->t[0].coef != 1)
        return NULL;
    return d.e->t[0].f[0];
}

bool oq_sdim_is_name(oq_sdim d, oq_str *name) {
    const oq_atom *a = oq_sdim_atom(d);
    if (a == NULL || a->kind != OQ_ATOM_NAME)
        return false;
    *name = a->name;
    return true;
}

int64_t oq_sdim_least(oq_sdim d) {
    return oq_sdim_is_num(d) ? d.n : d.e->least;
}

int64_t oq_sdim_most(oq_sdim d) {
    return oq_sdim_is_num(d) ? d.n : d.e->most;
}

static oq_sdim number_or_unknown(bool overflow, int64_t n) {
    return overflow ? oq_sdim_unknown() : oq_sdim_num(n);
}

static oq_sdim add_scaled(oq_sdims *ds, oq_sdim a, int64_t coef, oq_sdim b) {
    if (oq_sdim_is(b, 0))
        return a;
    if (oq_sdim_is(a, 0) && coef == 1)
        return b;
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b)) {
        int64_t n = 0;
        const bool bad =
            __builtin_mul_overflow(coef, b.n, &n) || __builtin_add_overflow(a.n, n, &n);
        return number_or_unknown(bad, n);
    }
    if (ds->plain || oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b))
        return oq_sdim_unknown();
    oq_poly p, q;
    oq_poly_of(&p, a);
    oq_poly_of(&q, b);
    oq_poly_add(&p, coef, &q);
    return oq_poly_intern(ds, &p);
}

oq_sdim oq_sdim_add(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    return add_scaled(ds, a, 1, b);
}

oq_sdim oq_sdim_sub(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    return add_scaled(ds, a, -1, b);
}

oq_sdim oq_sdim_mul(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    if (oq_sdim_is(a, 1))
        return b;
    if (oq_sdim_is(b, 1))
        return a;
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b)) {
        int64_t n = 0;
        const bool bad = __builtin_mul_overflow(a.n, b.n, &n);
        return number_or_unknown(bad, n);
    }
    if (ds->plain)
        return oq_sdim_unknown();
    if (oq_sdim_is(a, 0) || oq_sdim_is(b, 0))
        return oq_sdim_num(0);
    if (oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b))
        return oq_sdim_unknown();
    oq_poly p, q, r;
    oq_poly_of(&p, a);
    oq_poly_of(&q, b);
    poly_mul(&r, &p, &q);
    return oq_poly_intern(ds, &r);
}
