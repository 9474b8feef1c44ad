/*
 * cell.c — see cell.h.
 */
#include "shape/dim/cell.h"

#define MAX_DEN (INT64_C(1) << 40)

static bool is_float_out(const oq_rctx *c) {
    const oq_dtype_info *t = c->n_out > 0 ? oq_dtype_find(c->out[0].elem_type) : NULL;
    return t != NULL && t->cls == OQ_CLASS_REAL;
}

/* A computed real, rounded as the tensor's type would. */
static oq_cell real_cell(const oq_rctx *c, double r) {
    if (c->n_out > 0 && c->out[0].elem_type == OQ_FLOAT)
        r = (double)(float)r;
    return isfinite(r) ? oq_cell_of_real(r) : oq_cell_unknown();
}

static bool is_exact(oq_cell a) {
    return a.den > 0 && !oq_sdim_is_unknown(a.d);
}

/* num/den in lowest terms. */
static oq_cell fraction(oq_rctx *c, oq_sdim num, int64_t den) {
    oq_sdim q;
    if (den <= 0 || den > MAX_DEN || oq_sdim_is_unknown(num))
        return oq_cell_unknown();
    if (den == 1)
        return oq_cell_int(num);
    if (oq_sdim_divide(c->ds, num, oq_sdim_num(den), &q))
        return oq_cell_int(q);
    while (den % 2 == 0 && oq_sdim_divide(c->ds, num, oq_sdim_num(2), &q)) {
        num = q;
        den /= 2;
    }
    return (oq_cell){num, den, 0};
}

/* Both as doubles, when neither has a name in it. */
static bool reals(oq_cell a, oq_cell b, double *x, double *y) {
    return oq_cell_real(a, x) && oq_cell_real(b, y);
}

static oq_cell combine(oq_rctx *c, oq_cell a, oq_cell b, int64_t sign) {
    double x, y;
    if (!is_exact(a) || !is_exact(b))
        return reals(a, b, &x, &y) ? real_cell(c, x + (double)sign * y) : oq_cell_unknown();
    int64_t den;
    if (__builtin_mul_overflow(a.den, b.den, &den))
        return oq_cell_unknown();
    const oq_sdim l = oq_sdim_muln(c->ds, a.d, b.den), r = oq_sdim_muln(c->ds, b.d, a.den);
    return fraction(c, sign > 0 ? oq_sdim_add(c->ds, l, r) : oq_sdim_sub(c->ds, l, r), den);
}

oq_cell oq_cell_add(oq_rctx *c, oq_cell a, oq_cell b) {
    return combine(c, a, b, 1);
}

oq_cell oq_cell_sub(oq_rctx *c, oq_cell a, oq_cell b) {
    return combine(c, a, b, -1);
}

oq_cell oq_cell_mul(oq_rctx *c, oq_cell a, oq_cell b) {
    double x, y;
    int64_t den;
    if (!is_exact(a) || !is_exact(b))
        return reals(a, b, &x, &y) ? real_cell(c, x * y) : oq_cell_unknown();
    if (__builtin_mul_overflow(a.den, b.den, &den))
        return oq_cell_unknown();
    return fraction(c, oq_sdim_mul(c->ds, a.d, b.d), den);
}

static oq_cell div_int(oq_rctx *c, oq_cell a, oq_cell b) {
    if (!is_exact(a) || !is_exact(b) || a.den != 1 || b.den != 1 || oq_sdim_is(b.d, 0))
        return oq_cell_unknown();
    if (oq_sdim_is_num(a.d) && oq_sdim_is_num(b.d)) {
        const bool bad = a.d.n == INT64_MIN && b.d.n == -1;
        return bad ? oq_cell_unknown() : oq_cell_int(oq_sdim_num(a.d.n / b.d.n));
    }
    oq_sdim q;
    if (oq_sdim_divide(c->ds, a.d, b.d, &q))
        return oq_cell_int(q);
    const bool whole = oq_sdim_least(a.d) >= 0 && oq_sdim_least(b.d) >= 0;
    return whole ? oq_cell_int(oq_sdim_floordiv(c->ds, a.d, b.d)) : oq_cell_unknown();
}

oq_cell oq_cell_div(oq_rctx *c, oq_cell a, oq_cell b) {
    double x, y;
    if (!is_float_out(c))
        return div_int(c, a, b);
    if (!is_exact(a) || !is_exact(b))
        return reals(a, b, &x, &y) && y != 0 ? real_cell(c, x / y) : oq_cell_unknown();
    const oq_sdim num = oq_sdim_muln(c->ds, a.d, b.den), den = oq_sdim_muln(c->ds, b.d, a.den);
    oq_sdim q;
    if (oq_sdim_is(den, 0) || oq_sdim_is_unknown(num) || oq_sdim_is_unknown(den))
        return oq_cell_unknown();
    if (oq_sdim_divide(c->ds, num, den, &q))
        return oq_cell_int(q);
    if (!oq_sdim_is_num(den))
        return oq_cell_unknown();
    if (oq_sdim_is_num(num))
        return real_cell(c, (double)num.n / (double)den.n);
    const bool minus = den.n < 0;
    if (den.n == INT64_MIN)
        return oq_cell_unknown();
    return fraction(c, minus ? oq_sdim_sub(c->ds, oq_sdim_num(0), num) : num,
                    minus ? -den.n : den.n);
}

oq_cell oq_cell_mod(oq_rctx *c, oq_cell a, oq_cell b) {
    if (!is_exact(a) || !is_exact(b) || a.den != 1 || b.den != 1 || oq_sdim_is(b.d, 0) ||
        oq_r_int(c, "fmod", 0) != 0)
        return oq_cell_unknown();
    return oq_cell_int(oq_sdim_mod(c->ds, a.d, b.d));
}

oq_cell oq_cell_pow(oq_rctx *c, oq_cell a, oq_cell b) {
    double x, y;
    int64_t n;
    if (oq_cell_integer(b, &n) && n >= 1 && n <= 4 && is_exact(a)) {
        oq_cell out = a;
        for (int64_t i = 1; i < n; i++)
            out = oq_cell_mul(c, out, a);
        return out;
    }
    return is_float_out(c) && reals(a, b, &x, &y) ? real_cell(c, pow(x, y)) : oq_cell_unknown();
}

/* A bound so far out that it means "none". */
static bool is_far(const oq_rctx *c, oq_cell a, int64_t sign) {
    double x;
    return oq_cell_real(a, &x) && x * (double)sign >= (double)c->in->opt.int_max;
}

static oq_cell extreme(oq_rctx *c, oq_cell a, oq_cell b, bool smaller) {
    double x, y;
    if (reals(a, b, &x, &y))
        return (x < y) == smaller ? a : b;
    if (is_far(c, a, smaller ? 1 : -1))
        return b;
    if (is_far(c, b, smaller ? 1 : -1))
        return a;
    if (!is_exact(a) || !is_exact(b) || a.den != b.den)
        return oq_cell_unknown();
    return fraction(c, smaller ? oq_sdim_min(c->ds, a.d, b.d) : oq_sdim_max(c->ds, a.d, b.d),
                    a.den);
}

oq_cell oq_cell_min(oq_rctx *c, oq_cell a, oq_cell b) {
    return extreme(c, a, b, true);
}

oq_cell oq_cell_max(oq_rctx *c, oq_cell a, oq_cell b) {
    return extreme(c, a, b, false);
}

static oq_cell bool_cell(bool v) {
    return oq_cell_int(oq_sdim_num(v ? 1 : 0));
}

/* -1: a < b for all sizes; 1: a > b; 0: equal; 2: not known. */
static int order(oq_rctx *c, oq_cell a, oq_cell b) {
    double x, y;
    if (reals(a, b, &x, &y))
        return x < y ? -1 : x > y ? 1 : 0;
    const oq_cell d = combine(c, a, b, -1);
    if (!is_exact(d))
        return 2;
    const oq_sdim one = oq_sdim_num(1), zero = oq_sdim_num(0);
    if (oq_sdim_is(d.d, 0))
        return 0;
    if (oq_sdim_le(c->ds, one, d.d))
        return 1;
    return oq_sdim_le(c->ds, oq_sdim_addn(c->ds, d.d, 1), zero) ? -1 : 2;
}

oq_cell oq_cell_equal(oq_rctx *c, oq_cell a, oq_cell b) {
    const int o = order(c, a, b);
    return o == 2 ? oq_cell_unknown() : bool_cell(o == 0);
}

oq_cell oq_cell_less(oq_rctx *c, oq_cell a, oq_cell b) {
    const int o = order(c, a, b);
    return o == 2 ? oq_cell_unknown() : bool_cell(o < 0);
}

oq_cell oq_cell_greater(oq_rctx *c, oq_cell a, oq_cell b) {
    return oq_cell_less(c, b, a);
}

oq_cell oq_cell_less_equal(oq_rctx *c, oq_cell a, oq_cell b) {
    if (is_exact(a) && is_exact(b) && a.den == b.den && oq_sdim_le(c->ds, a.d, b.d))
        return bool_cell(true);
    const int o = order(c, a, b);
    return o == 2 ? oq_cell_unknown() : bool_cell(o <= 0);
}

oq_cell oq_cell_greater_equal(oq_rctx *c, oq_cell a, oq_cell b) {
    return oq_cell_less_equal(c, b, a);
}

/* 0, 1, or -1 when not known. */
static int truth(oq_cell a) {
    double x;
    if (oq_cell_real(a, &x))
        return x != 0;
    return is_exact(a) && oq_sdim_least(a.d) > 0 ? 1 : -1;
}

oq_cell oq_cell_and(oq_rctx *c, oq_cell a, oq_cell b) {
    const int x = truth(a), y = truth(b);
    (void)c;
    if (x == 0 || y == 0)
        return bool_cell(false);
    return x < 0 || y < 0 ? oq_cell_unknown() : bool_cell(true);
}

oq_cell oq_cell_or(oq_rctx *c, oq_cell a, oq_cell b) {
    const int x = truth(a), y = truth(b);
    (void)c;
    if (x == 1 || y == 1)
        return bool_cell(true);
    return x < 0 || y < 0 ? oq_cell_unknown() : bool_cell(false);
}

oq_cell oq_cell_xor(oq_rctx *c, oq_cell a, oq_cell b) {
    const int x = truth(a), y = truth(b);
    (void)c;
    return x < 0 || y < 0 ? oq_cell_unknown() : bool_cell(x != y);
}

oq_cell oq_cell_not(oq_rctx *c, oq_cell a, oq_cell b) {
    const int x = truth(a);
    (void)c;
    (void)b;
    return x < 0 ? oq_cell_unknown() : bool_cell(x == 0);
}

oq_cell oq_cell_neg(oq_rctx *c, oq_cell a, oq_cell b OQ_UNUSED) {
    return combine(c, oq_cell_int(oq_sdim_num(0)), a, -1);
}

oq_cell oq_cell_abs(oq_rctx *c, oq_cell a, oq_cell b) {
    double x;
    if (oq_cell_real(a, &x))
        return x < 0 ? oq_cell_neg(c, a, b) : a;
    return is_exact(a) && oq_sdim_least(a.d) >= 0 ? a : oq_cell_unknown();
}

oq_cell oq_cell_sign(oq_rctx *c, oq_cell a, oq_cell b) {
    const int o = order(c, a, oq_cell_int(oq_sdim_num(0)));
    (void)b;
    return o == 2 ? oq_cell_unknown() : oq_cell_int(oq_sdim_num(o));
}

oq_cell oq_cell_floor(oq_rctx *c, oq_cell a, oq_cell b OQ_UNUSED) {
    if (a.den == 0)
        return real_cell(c, floor(a.r));
    return is_exact(a) ? oq_cell_int(oq_sdim_floordiv(c->ds, a.d, oq_sdim_num(a.den)))
                       : oq_cell_unknown();
}

oq_cell oq_cell_ceil(oq_rctx *c, oq_cell a, oq_cell b OQ_UNUSED) {
    if (a.den == 0)
        return real_cell(c, ceil(a.r));
    return is_exact(a) ? oq_cell_int(oq_sdim_ceildiv(c->ds, a.d, oq_sdim_num(a.den)))
                       : oq_cell_unknown();
}

oq_cell oq_cell_round(oq_rctx *c, oq_cell a, oq_cell b) {
    double x;
    (void)b;
    if (a.den == 1)
        return a;
    return oq_cell_real(a, &x) ? real_cell(c, nearbyint(x)) : oq_cell_unknown();
}

oq_cell oq_cell_sqrt(oq_rctx *c, oq_cell a, oq_cell b) {
    double x;
    (void)b;
    return oq_cell_real(a, &x) && x >= 0 ? real_cell(c, sqrt(x)) : oq_cell_unknown();
}

oq_cell oq_cell_reciprocal(oq_rctx *c, oq_cell a, oq_cell b) {
    double x;
    (void)b;
    return oq_cell_real(a, &x) && x != 0 ? real_cell(c, 1 / x) : oq_cell_unknown();
}

oq_cell oq_cell_cast(oq_rctx *c, oq_cell a, oq_cell b) {
    const int32_t to = c->out[0].elem_type;
    const oq_dtype_info *t = oq_dtype_find(to);
    double x;
    (void)b;
    if (t == NULL || !oq_cell_known(a))
        return oq_cell_unknown();
    if (to == OQ_BOOL) {
        const int v = truth(a);
        return v < 0 ? oq_cell_unknown() : bool_cell(v == 1);
    }
    if (t->cls == OQ_CLASS_REAL)
        return a.den == 0 ? real_cell(c, a.r) : a;
    if (t->cls != OQ_CLASS_INT && t->cls != OQ_CLASS_UINT)
        return oq_cell_unknown();
    if (a.den == 1)
        return a;
    /* Towards zero. */
    if (oq_cell_real(a, &x))
        return fabs(x) < 0x1p62 ? oq_cell_int(oq_sdim_num((int64_t)x)) : oq_cell_unknown();
    return oq_sdim_least(a.d) >= 0 ? oq_cell_floor(c, a, a) : oq_cell_unknown();
}
