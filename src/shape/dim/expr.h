/*
 * expr.h — the inside of symbolic dimensions, shared by dim.c, dim_order.c and dim_text.c.
 *
 * A polynomial in hand is an oq_poly on the stack; interning it gives the oq_expr that an oq_sdim
 * points to. Terms are sorted by degree, highest first, then by the indices of their atoms (graded
 * lexicographic order, which multiplication respects: long division relies on it); the constant
 * term is last.
 */
#pragma once

#include "shape/dim/dim.h"

typedef enum oq_atom_kind {
    OQ_ATOM_NAME,
    OQ_ATOM_FLOOR, /* args[0] / args[1], towards minus infinity */
    OQ_ATOM_MIN,
    OQ_ATOM_MAX
} oq_atom_kind;

typedef struct oq_atom {
    uint32_t id;
    oq_atom_kind kind;
    unsigned depth; /* of nested divisions, minima and maxima; 0 for a name */
    int64_t least, most;
    oq_str name;
    size_t n_args;
    oq_sdim args[OQ_SDIM_ARGS];
} oq_atom;

typedef struct oq_term {
    int64_t coef;
    size_t n; /* factors; 0 in the constant term */
    const oq_atom *f[OQ_SDIM_FACTORS];
} oq_term;

struct oq_expr {
    uint32_t id;
    unsigned depth;
    int64_t least, most;
    size_t n;
    const oq_term *t;
};

typedef struct oq_poly {
    size_t n;
    bool bad; /* a limit or 64 bits were passed */
    oq_term t[OQ_SDIM_TERMS];
} oq_poly;

void oq_poly_of(oq_poly *p, oq_sdim d);
/* p += coef * term. */
void oq_poly_add_term(oq_poly *p, int64_t coef, const oq_term *t);
/* p += coef * q. */
void oq_poly_add(oq_poly *p, int64_t coef, const oq_poly *q);
/* The product of two terms; false when it has too many factors or overflows. */
bool oq_term_mul(const oq_term *a, const oq_term *b, oq_term *out);
/* The interned dimension. */
oq_sdim oq_poly_intern(oq_sdims *ds, const oq_poly *p);
/* The interned atom as a dimension; unknown past the limits. */
oq_sdim oq_atom_intern(oq_sdims *ds, oq_atom_kind kind, const oq_sdim *args, size_t n);
/* True if the dimension is this one atom and nothing else. */
const oq_atom *oq_sdim_atom(oq_sdim d);
/* Bounds of a polynomial by interval arithmetic. */
void oq_poly_bounds(const oq_poly *p, int64_t *least, int64_t *most);

int64_t oq_floor_div(int64_t a, int64_t b); /* b > 0 */
int64_t oq_gcd(int64_t a, int64_t b);       /* not negative; of 0 and 0 it is 0 */
