/*
 * dim_divide.c — division of symbolic dimensions.
 *
 * floor(a/b) is brought to one form: what divides evenly is outside, coefficients inside are
 * between 0 and b, common factors are cancelled, and floor(floor(p/q)/b) is floor(p/(q*b)). So the
 * chains of halvings of a network give one division, and two ways to the same size compare equal.
 */
#include "shape/dim/expr.h"

int64_t oq_gcd(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

/* a / b for one term; false when b does not divide it. */
static bool term_divide(const oq_term *a, const oq_term *b, oq_term *out) {
    if (b->coef == 0 || (a->coef == INT64_MIN && b->coef == -1) || a->coef % b->coef != 0)
        return false;
    size_t n = 0, j = 0;
    for (size_t i = 0; i < a->n; i++)
        if (j < b->n && a->f[i] == b->f[j])
            j++;
        else
            out->f[n++] = a->f[i];
    out->n = n;
    out->coef = a->coef / b->coef;
    return j == b->n;
}

/* Long division; false when a remainder is left. */
static bool poly_divide(const oq_poly *a, const oq_poly *b, oq_poly *out) {
    oq_poly rest = *a;
    out->n = 0;
    out->bad = a->bad || b->bad || b->n == 0;
    for (size_t steps = 0; rest.n > 0 && !out->bad && !rest.bad; steps++) {
        oq_term q = {0};
        if (steps == 4 * OQ_SDIM_TERMS || !term_divide(&rest.t[0], &b->t[0], &q))
            return false;
        oq_poly_add_term(out, 1, &q);
        for (size_t i = 0; i < b->n; i++) {
            oq_term t = {0};
            if (!oq_term_mul(&q, &b->t[i], &t))
                return false;
            oq_poly_add_term(&rest, -1, &t);
        }
    }
    return !out->bad && !rest.bad;
}

bool oq_sdim_divide(oq_sdims *ds, oq_sdim a, oq_sdim b, oq_sdim *out) {
    if (oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b) || oq_sdim_is(b, 0))
        return false;
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b)) {
        if (b.n == -1 || a.n % b.n != 0)
            return false;
        *out = oq_sdim_num(a.n / b.n);
        return true;
    }
    if (oq_sdim_is(b, 1)) {
        *out = a;
        return true;
    }
    if (ds->plain)
        return false;
    oq_poly p, q, r;
    oq_poly_of(&p, a);
    oq_poly_of(&q, b);
    if (!poly_divide(&p, &q, &r))
        return false;
    *out = oq_poly_intern(ds, &r);
    return !oq_sdim_is_unknown(*out);
}

/* floor((floor(p/q) + c) / d) is floor((p + c*q) / (q*d)): true with the new a and d. */
static bool unnest(oq_sdims *ds, const oq_poly *rest, oq_sdim *a, int64_t *d) {
    if (rest->n == 0 || rest->n > 2 || rest->t[0].n != 1 || rest->t[0].coef != 1 ||
        (rest->n == 2 && rest->t[1].n != 0))
        return false;
    const oq_atom *atom = rest->t[0].f[0];
    int64_t by;
    if (atom->kind != OQ_ATOM_FLOOR || !oq_sdim_is_num(atom->args[1]) ||
        __builtin_mul_overflow(atom->args[1].n, *d, &by))
        return false;
    const int64_t c = rest->n == 2 ? rest->t[1].coef : 0;
    const oq_sdim shift = oq_sdim_mul(ds, oq_sdim_num(c), atom->args[1]);
    const oq_sdim inner = oq_sdim_add(ds, atom->args[0], shift);
    if (oq_sdim_is_unknown(inner))
        return false;
    *a = inner;
    *d = by;
    return true;
}

/* Cancels the greatest common divisor of d and of the coefficients of names. */
static void cancel(oq_poly *rest, int64_t *d) {
    int64_t g = *d;
    for (size_t i = 0; i < rest->n; i++)
        if (rest->t[i].n > 0)
            g = oq_gcd(g, rest->t[i].coef);
    if (g <= 1)
        return;
    for (size_t i = 0; i < rest->n; i++)
        rest->t[i].coef = oq_floor_div(rest->t[i].coef, g);
    if (rest->n > 0 && rest->t[rest->n - 1].coef == 0)
        rest->n--;
    *d /= g;
}

static oq_sdim divide_by_number(oq_sdims *ds, oq_sdim a, int64_t d) {
    oq_poly p, whole = {.n = 0};
    for (unsigned round = 0; round <= OQ_SDIM_DEPTH; round++) {
        oq_poly rest = {.n = 0};
        oq_poly_of(&p, a);
        whole.bad = whole.bad || p.bad;
        for (size_t i = 0; i < p.n && !whole.bad; i++) {
            oq_term t = p.t[i];
            const int64_t q = oq_floor_div(t.coef, d), r = t.coef - q * d;
            t.coef = 1;
            oq_poly_add_term(&whole, q, &t);
            oq_poly_add_term(&rest, r, &t);
        }
        cancel(&rest, &d);
        int64_t lo, hi;
        oq_poly_bounds(&rest, &lo, &hi);
        if (rest.n == 0 || d == 1 || (lo >= 0 && hi < d)) {
            if (d == 1)
                oq_poly_add(&whole, 1, &rest);
            return oq_poly_intern(ds, &whole);
        }
        if (unnest(ds, &rest, &a, &d))
            continue;
        const oq_sdim args[2] = {oq_poly_intern(ds, &rest), oq_sdim_num(d)};
        if (oq_sdim_is_unknown(args[0]))
            return args[0];
        const oq_sdim out = oq_atom_intern(ds, OQ_ATOM_FLOOR, args, 2);
        return oq_sdim_add(ds, oq_poly_intern(ds, &whole), out);
    }
    return oq_sdim_unknown();
}

/* Takes out of both what every term of a has in common with the one term of b. */
static void cancel_term(oq_poly *a, oq_term *b) {
    int64_t g = b->coef;
    for (size_t i = 0; i < a->n; i++)
        g = oq_gcd(g, a->t[i].coef);
    oq_term common = {.coef = g > 0 ? g : 1};
    for (size_t k = 0; k < b->n; k++) {
        common.f[common.n++] = b->f[k];
        oq_term q = {0};
        bool all = true;
        for (size_t i = 0; i < a->n && all; i++)
            all = term_divide(&a->t[i], &common, &q);
        common.n -= all ? 0 : 1;
    }
    for (size_t i = 0; i < a->n; i++) {
        oq_term q = {0};
        if (term_divide(&a->t[i], &common, &q))
            a->t[i] = q;
    }
    oq_term q = {0};
    if (term_divide(b, &common, &q))
        *b = q;
}

static oq_sdim divide_by_term(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    oq_poly p, d, whole = {.n = 0}, rest = {.n = 0};
    oq_poly_of(&p, a);
    oq_poly_of(&d, b);
    for (size_t i = 0; i < p.n; i++) {
        oq_term q = {0};
        if (term_divide(&p.t[i], &d.t[0], &q))
            oq_poly_add_term(&whole, 1, &q);
        else
            oq_poly_add_term(&rest, 1, &p.t[i]);
    }
    cancel_term(&rest, &d.t[0]);
    const oq_sdim args[2] = {oq_poly_intern(ds, &rest), oq_poly_intern(ds, &d)};
    oq_sdim out;
    if (oq_sdim_is_unknown(args[0]) || oq_sdim_is_unknown(args[1]))
        return oq_sdim_unknown();
    if (oq_sdim_is_num(args[1]))
        out = args[1].n > 0 ? divide_by_number(ds, args[0], args[1].n) : oq_sdim_unknown();
    else
        out = oq_sdim_is(args[0], 0) ? args[0] : oq_atom_intern(ds, OQ_ATOM_FLOOR, args, 2);
    return oq_sdim_add(ds, oq_poly_intern(ds, &whole), out);
}

oq_sdim oq_sdim_floordiv(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    if (oq_sdim_is(b, 1))
        return a;
    if (oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b) || oq_sdim_is(b, 0))
        return oq_sdim_unknown();
    if (oq_sdim_is_num(b) && b.n < 0) {
        if (b.n == INT64_MIN || oq_sdim_is(a, INT64_MIN))
            return oq_sdim_unknown();
        return oq_sdim_floordiv(ds, oq_sdim_sub(ds, oq_sdim_num(0), a), oq_sdim_num(-b.n));
    }
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b))
        return oq_sdim_num(oq_floor_div(a.n, b.n));
    if (ds->plain)
        return oq_sdim_unknown();
    if (oq_sdim_is_num(b))
        return divide_by_number(ds, a, b.n);
    oq_sdim out;
    if (oq_sdim_divide(ds, a, b, &out))
        return out;
    if (b.e->n == 1)
        return divide_by_term(ds, a, b);
    const oq_sdim args[2] = {a, b};
    return oq_atom_intern(ds, OQ_ATOM_FLOOR, args, 2);
}

oq_sdim oq_sdim_ceildiv(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    if (oq_sdim_is(b, 1))
        return a;
    /* Over a number: floor((a + b - 1) / b), so that one form covers both roundings. */
    if (oq_sdim_is_num(b) && b.n > 0)
        return oq_sdim_floordiv(ds, oq_sdim_addn(ds, a, b.n - 1), b);
    const oq_sdim zero = oq_sdim_num(0);
    return oq_sdim_sub(ds, zero, oq_sdim_floordiv(ds, oq_sdim_sub(ds, zero, a), b));
}

oq_sdim oq_sdim_mod(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    return oq_sdim_sub(ds, a, oq_sdim_mul(ds, oq_sdim_floordiv(ds, a, b), b));
}
