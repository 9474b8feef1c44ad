/*
 * dim_order.c — order of symbolic dimensions: <=, minimum, maximum, and replacing one by another.
 *
 * a <= b is proved by a lower bound of b - a. Where that does not come out, a minimum, maximum or
 * division in the difference is replaced by what bounds it and the proof is tried again, a few
 * levels deep.
 */
#include "shape/dim/expr.h"

#define PROOF_DEPTH 3

static bool proved(oq_sdims *ds, oq_sdim d, unsigned depth);

/* `p` without its term i, plus coef * scale * by, all times `times`. */
static oq_sdim swapped(oq_sdims *ds, const oq_poly *p, size_t i, int64_t times, oq_sdim by) {
    oq_poly out = {.n = 0}, q;
    for (size_t k = 0; k < p->n; k++)
        if (k != i)
            oq_poly_add_term(&out, times, &p->t[k]);
    oq_poly_of(&q, by);
    oq_poly_add(&out, p->t[i].coef, &q);
    return oq_poly_intern(ds, &out);
}

/* Tries to prove p >= 0 by its term i, which is one minimum, maximum or division. */
static bool proved_by_term(oq_sdims *ds, const oq_poly *p, size_t i, unsigned depth) {
    const oq_atom *a = p->t[i].f[0];
    const bool up = p->t[i].coef > 0;
    if (a->kind == OQ_ATOM_FLOOR) {
        /* p/q - (q-1)/q <= floor(p/q) <= p/q */
        if (!oq_sdim_is_num(a->args[1]))
            return false;
        const int64_t q = a->args[1].n;
        const oq_sdim bound = up ? oq_sdim_addn(ds, a->args[0], 1 - q) : a->args[0];
        return proved(ds, swapped(ds, p, i, q, bound), depth);
    }
    /* A minimum that is added must hold for all its arguments; one that is taken away, for any. */
    const bool all = (a->kind == OQ_ATOM_MIN) == up;
    for (size_t k = 0; k < a->n_args; k++)
        if (proved(ds, swapped(ds, p, i, 1, a->args[k]), depth) != all)
            return !all;
    return all;
}

static bool proved(oq_sdims *ds, oq_sdim d, unsigned depth) {
    if (oq_sdim_is_unknown(d))
        return false;
    if (oq_sdim_least(d) >= 0)
        return true;
    if (oq_sdim_is_num(d) || depth == 0 || oq_sdim_most(d) < 0)
        return false;
    oq_poly p;
    oq_poly_of(&p, d);
    for (size_t i = 0; i < p.n; i++)
        if (p.t[i].n == 1 && p.t[i].f[0]->kind != OQ_ATOM_NAME &&
            proved_by_term(ds, &p, i, depth - 1))
            return true;
    return false;
}

bool oq_sdim_le(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    if (oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b))
        return false;
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b))
        return a.n <= b.n;
    if (ds->plain)
        return oq_sdim_eq(a, b);
    return proved(ds, oq_sdim_sub(ds, b, a), PROOF_DEPTH);
}

static bool comes_before(oq_sdim a, oq_sdim b) {
    if (oq_sdim_is_num(a) || oq_sdim_is_num(b))
        return oq_sdim_is_num(a) && (!oq_sdim_is_num(b) || a.n < b.n);
    return a.e->id < b.e->id;
}

/* Adds `d` to the arguments of a minimum or maximum unless another makes it redundant. */
static bool add_arg(oq_sdims *ds, oq_atom_kind kind, oq_sdim *args, size_t *n, oq_sdim d) {
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        const oq_sdim lo = kind == OQ_ATOM_MIN ? args[i] : d,
                      hi = kind == OQ_ATOM_MIN ? d : args[i];
        if (oq_sdim_le(ds, lo, hi))
            return true;
    }
    for (size_t i = 0; i < *n; i++) {
        const oq_sdim lo = kind == OQ_ATOM_MIN ? d : args[i],
                      hi = kind == OQ_ATOM_MIN ? args[i] : d;
        if (!oq_sdim_le(ds, lo, hi))
            args[kept++] = args[i];
    }
    if (kept == OQ_SDIM_ARGS)
        return false;
    size_t at = kept;
    while (at > 0 && comes_before(d, args[at - 1])) {
        args[at] = args[at - 1];
        at--;
    }
    args[at] = d;
    *n = kept + 1;
    return true;
}

static oq_sdim extreme(oq_sdims *ds, oq_atom_kind kind, oq_sdim a, oq_sdim b) {
    const oq_sdim given[2] = {a, b};
    oq_sdim args[OQ_SDIM_ARGS];
    size_t n = 0;
    if (oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b))
        return oq_sdim_unknown();
    for (size_t i = 0; i < 2; i++) {
        const oq_atom *atom = oq_sdim_atom(given[i]);
        const bool flat = atom == NULL || atom->kind != kind;
        const oq_sdim *part = flat ? &given[i] : atom->args;
        for (size_t k = 0; k < (flat ? 1 : atom->n_args); k++)
            if (!add_arg(ds, kind, args, &n, part[k]))
                return oq_sdim_unknown();
    }
    if (n == 1)
        return args[0];
    return ds->plain ? oq_sdim_unknown() : oq_atom_intern(ds, kind, args, n);
}

oq_sdim oq_sdim_min(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    return extreme(ds, OQ_ATOM_MIN, a, b);
}

oq_sdim oq_sdim_max(oq_sdims *ds, oq_sdim a, oq_sdim b) {
    return extreme(ds, OQ_ATOM_MAX, a, b);
}

/* The atom with its arguments replaced; depth is that of atoms, at most OQ_SDIM_DEPTH. */
static oq_sdim replace_in_atom(oq_sdims *ds, const oq_atom *a, oq_sdim from, oq_sdim to) {
    oq_poly p = {.n = 1};
    p.t[0] = (oq_term){.coef = 1, .n = 1, .f = {a}};
    const oq_sdim self = oq_poly_intern(ds, &p);
    if (oq_sdim_eq(self, from))
        return to;
    if (a->kind == OQ_ATOM_NAME)
        return self;
    oq_sdim out = oq_sdim_replace(ds, a->args[0], from, to);
    for (size_t i = 1; i < a->n_args; i++) {
        const oq_sdim arg = oq_sdim_replace(ds, a->args[i], from, to);
        out = a->kind == OQ_ATOM_FLOOR ? oq_sdim_floordiv(ds, out, arg)
                                       : extreme(ds, a->kind, out, arg);
    }
    return out;
}

oq_sdim oq_sdim_replace(oq_sdims *ds, oq_sdim d, oq_sdim from, oq_sdim to) {
    if (oq_sdim_eq(d, from))
        return to;
    if (!oq_sdim_is_symbolic(d))
        return d;
    oq_sdim sum = oq_sdim_num(0);
    for (size_t i = 0; i < d.e->n; i++) {
        oq_sdim product = oq_sdim_num(d.e->t[i].coef);
        for (size_t k = 0; k < d.e->t[i].n; k++)
            product = oq_sdim_mul(ds, product, replace_in_atom(ds, d.e->t[i].f[k], from, to));
        sum = oq_sdim_add(ds, sum, product);
    }
    return sum;
}
