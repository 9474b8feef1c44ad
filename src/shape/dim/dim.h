/*
 * dim.h — dimensions: a number, a name, or an expression of names.
 *
 * An expression is kept in one normal form: a sum of products of atoms with integer coefficients,
 * where an atom is a name, floor(p/q), min(...) or max(...) of expressions. Ceiling division and
 * modulo are written with floor. Expressions are interned in an oq_sdims, so two dimensions of the
 * same oq_sdims are equal exactly when their fields are equal: oq_sdim_eq is two compares.
 *
 * Names are sizes, so they are never negative; a name that a model's input has is at least 1
 * unless it was made with `least` 0. Comparisons (oq_sdim_least) rest on that.
 *
 * Size is bounded: an expression of more than OQ_SDIM_TERMS terms, OQ_SDIM_FACTORS factors or
 * OQ_SDIM_DEPTH nested divisions, and any overflow of 64 bits, gives the unknown dimension. With
 * `plain` set everything but a number or one bare name gives unknown, which is what onnx's own
 * inference does.
 */
#pragma once

#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"

#define OQ_SDIM_TERMS   24
#define OQ_SDIM_FACTORS 8
#define OQ_SDIM_DEPTH   8
#define OQ_SDIM_ARGS    8

typedef struct oq_expr oq_expr;
struct oq_atom;

/* A dimension; pass it by value. */
typedef struct oq_sdim {
    const oq_expr *e; /* NULL: the number n; OQ_SDIM_NONE: unknown */
    int64_t n;        /* 0 unless a number */
} oq_sdim;

/* The mark of an unknown dimension: points at no expression of an oq_sdims. */
extern const oq_expr oq_sdim_none;

typedef struct oq_sdims {
    oq_arena *arena;
    oq_map exprs, atoms; /* keyed by the bytes of their content */
    OQ_VEC(const oq_expr *) expr_list;
    OQ_VEC(struct oq_atom *) atom_list;
    bool plain;  /* no expressions: what onnx's own inference can say */
    bool failed; /* out of memory; sticky */
} oq_sdims;

void oq_sdims_init(oq_sdims *ds, oq_arena *arena, bool plain);

static inline oq_sdim oq_sdim_num(int64_t n) {
    return (oq_sdim){NULL, n};
}
static inline oq_sdim oq_sdim_unknown(void) {
    return (oq_sdim){&oq_sdim_none, 0};
}
static inline bool oq_sdim_is_num(oq_sdim d) {
    return d.e == NULL;
}
static inline bool oq_sdim_is_unknown(oq_sdim d) {
    return d.e == &oq_sdim_none;
}
/* A name or an expression. */
static inline bool oq_sdim_is_symbolic(oq_sdim d) {
    return d.e != NULL && d.e != &oq_sdim_none;
}
/* Two unknown dimensions are not known to be equal. */
static inline bool oq_sdim_eq(oq_sdim a, oq_sdim b) {
    return a.e == b.e && a.n == b.n && !oq_sdim_is_unknown(a);
}
static inline bool oq_sdim_is(oq_sdim d, int64_t n) {
    return d.e == NULL && d.n == n;
}

/* The dimension called `name`, which is never below `least` (0 or 1). The name is borrowed. The
 * first call for a name fixes its `least`. */
oq_sdim oq_sdim_name(oq_sdims *ds, oq_str name, int64_t least);
/* True for one bare name; gives its text. */
bool oq_sdim_is_name(oq_sdim d, oq_str *name);

oq_sdim oq_sdim_add(oq_sdims *ds, oq_sdim a, oq_sdim b);
oq_sdim oq_sdim_sub(oq_sdims *ds, oq_sdim a, oq_sdim b);
oq_sdim oq_sdim_mul(oq_sdims *ds, oq_sdim a, oq_sdim b);
/* Towards minus infinity and plus infinity; unknown when b is 0. */
oq_sdim oq_sdim_floordiv(oq_sdims *ds, oq_sdim a, oq_sdim b);
oq_sdim oq_sdim_ceildiv(oq_sdims *ds, oq_sdim a, oq_sdim b);
/* a - floordiv(a, b) * b. */
oq_sdim oq_sdim_mod(oq_sdims *ds, oq_sdim a, oq_sdim b);
oq_sdim oq_sdim_min(oq_sdims *ds, oq_sdim a, oq_sdim b);
oq_sdim oq_sdim_max(oq_sdims *ds, oq_sdim a, oq_sdim b);
/* a / b where b is known to divide a: exact polynomial division; false when it does not come
 * out. */
bool oq_sdim_divide(oq_sdims *ds, oq_sdim a, oq_sdim b, oq_sdim *out);

static inline oq_sdim oq_sdim_addn(oq_sdims *ds, oq_sdim a, int64_t n) {
    return oq_sdim_add(ds, a, oq_sdim_num(n));
}
static inline oq_sdim oq_sdim_muln(oq_sdims *ds, oq_sdim a, int64_t n) {
    return oq_sdim_mul(ds, a, oq_sdim_num(n));
}

/* Bounds of the value; INT64_MIN and INT64_MAX when none is known. */
int64_t oq_sdim_least(oq_sdim d);
int64_t oq_sdim_most(oq_sdim d);
/* True when a <= b for all values the names can have; false when not, or not known. */
bool oq_sdim_le(oq_sdims *ds, oq_sdim a, oq_sdim b);

/* The dimension with every expression (or name) equal to `from` replaced by `to`. */
oq_sdim oq_sdim_replace(oq_sdims *ds, oq_sdim d, oq_sdim from, oq_sdim to);

/* Text as sympy prints it, as dim_param holds it: "2*seq + 1", "floor(h/2 + 1/2)", "Max(0, a -
 * b)". */
void oq_sdim_print(oq_buf *out, oq_sdim d);
/* The same copied into the arena; p == NULL when out of memory. */
oq_str oq_sdim_text(oq_arena *a, oq_sdim d);
/* The reverse, for dim_param of a model: sums, differences and products of names and numbers,
 * floor/Min/Max; anything else is one name. */
oq_sdim oq_sdim_parse(oq_sdims *ds, oq_str text, int64_t least);
