/*
 * evaluate_math.c — folding of arithmetic, comparisons, casts and reductions.
 */
#include "prepare/evaluate/evaluate.h"

static bool is_real(oq_dtype dt) {
    return oq_dtype_is_float(dt);
}

static bool is_integer(oq_dtype dt) {
    const oq_dtype_info *i = oq_dtype_find(dt);
    return i != NULL && (i->cls == OQ_CLASS_INT || i->cls == OQ_CLASS_UINT) && dt != OQ_UINT64;
}

/* ---- broadcasting ---- */

/* The dims that both broadcast to; false when they do not. */
static bool broadcast(const oq_cval *a, const oq_cval *b, int64_t *dims, size_t *rank) {
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (size_t i = 0; i < *rank; i++) {
        const int64_t x = i < *rank - a->rank ? 1 : a->dims[i - (*rank - a->rank)];
        const int64_t y = i < *rank - b->rank ? 1 : b->dims[i - (*rank - b->rank)];
        if (x != y && x != 1 && y != 1)
            return false;
        dims[i] = x == 1 ? y : x;
    }
    return true;
}

/* Which element of v is at element i of a tensor of `dims`. */
static size_t source_of(const oq_cval *v, const int64_t *dims, size_t rank, size_t i) {
    size_t at = 0, stride = 1;
    for (size_t k = rank; k-- > 0;) {
        const size_t here = i % (size_t)dims[k];
        i /= (size_t)dims[k];
        if (k < rank - v->rank)
            continue;
        const int64_t d = v->dims[k - (rank - v->rank)];
        at += d == 1 ? 0 : here * stride;
        stride *= (size_t)d;
    }
    return at;
}

/* ---- two inputs ---- */

typedef double (*real2)(double, double);
typedef bool (*int2)(int64_t, int64_t, int64_t *);

static bool binary(oq_eval *c, real2 real, int2 integer, bool truth) {
    const oq_cval *a = &c->in[0], *b = &c->in[1];
    int64_t dims[OQ_EVAL_AXES];
    size_t rank;
    if (c->n_in != 2 || !a->given || !b->given || a->dt != b->dt || !broadcast(a, b, dims, &rank))
        return false;
    const bool reals = is_real(a->dt);
    if (reals ? real == NULL
              : integer == NULL || !(is_integer(a->dt) || (truth && a->dt == OQ_BOOL)))
        return false;
    if (!oq_eval_make(c, truth ? OQ_BOOL : a->dt, dims, rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++) {
        const size_t x = source_of(a, dims, rank, i), y = source_of(b, dims, rank, i);
        int64_t v = 0;
        if (reals && truth)
            oq_cval_put_int(c, i, real(oq_cval_real(a, x), oq_cval_real(b, y)) != 0.0);
        else if (reals)
            oq_cval_put_real(c, i, real(oq_cval_real(a, x), oq_cval_real(b, y)));
        else if (integer(oq_cval_int(a, x), oq_cval_int(b, y), &v))
            oq_cval_put_int(c, i, v);
        else
            return false;
    }
    return true;
}

#define BINARY(op, truth, real_expr, int_expr, int_ok)                                             \
    static double real_##op(double a, double b) {                                                  \
        return (double)(real_expr);                                                                \
    }                                                                                              \
    static bool int_##op(int64_t a, int64_t b, int64_t *out) {                                     \
        if (!(int_ok))                                                                             \
            return false;                                                                          \
        *out = (int64_t)(int_expr);                                                                \
        return true;                                                                               \
    }                                                                                              \
    bool oq_eval_##op(oq_eval *c) {                                                                \
        return binary(c, real_##op, int_##op, truth);                                              \
    }

#define SMALL(a, b)                                                                                \
    ((a) > -(INT64_C(1) << 62) && (a) < (INT64_C(1) << 62) && (b) > -(INT64_C(1) << 62) &&         \
     (b) < (INT64_C(1) << 62))

BINARY(Add, false, a + b, a + b, SMALL(a, b))
BINARY(Sub, false, a - b, a - b, SMALL(a, b))
BINARY(Div, false, a / b, a / b, b != 0 && SMALL(a, b))
BINARY(Equal, true, a == b, a == b, true)
BINARY(Greater, true, a > b, a > b, true)
BINARY(GreaterOrEqual, true, a >= b, a >= b, true)
BINARY(Less, true, a < b, a < b, true)
BINARY(LessOrEqual, true, a <= b, a <= b, true)

static double real_mul(double a, double b) {
    return a * b;
}
static bool int_mul(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
bool oq_eval_Mul(oq_eval *c) {
    return binary(c, real_mul, int_mul, false);
}

/* The result has the sign of the divisor; that of C with fmod. */
static bool int_mod(int64_t a, int64_t b, int64_t *out) {
    if (b == 0 || !SMALL(a, b))
        return false;
    *out = a % b;
    if (*out != 0 && (*out < 0) != (b < 0))
        *out += b;
    return true;
}
static bool int_fmod(int64_t a, int64_t b, int64_t *out) {
    if (b == 0 || !SMALL(a, b))
        return false;
    *out = a % b;
    return true;
}
bool oq_eval_Mod(oq_eval *c) {
    const bool as_c = oq_attr_int(c->node, "fmod", 0) != 0;
    return binary(c, as_c ? fmod : NULL, as_c ? int_fmod : int_mod, false);
}

static bool int_pow(int64_t a, int64_t b, int64_t *out) {
    *out = 1;
    for (; b > 0; b--)
        if (b > 64 || __builtin_mul_overflow(*out, a, out))
            return false;
    return b == 0;
}
bool oq_eval_Pow(oq_eval *c) {
    return binary(c, pow, int_pow, false);
}

static bool int_and(int64_t a, int64_t b, int64_t *out) {
    *out = a != 0 && b != 0;
    return true;
}
static bool int_or(int64_t a, int64_t b, int64_t *out) {
    *out = a != 0 || b != 0;
    return true;
}
bool oq_eval_And(oq_eval *c) {
    return c->n_in == 2 && c->in[0].dt == OQ_BOOL && binary(c, NULL, int_and, true);
}
bool oq_eval_Or(oq_eval *c) {
    return c->n_in == 2 && c->in[0].dt == OQ_BOOL && binary(c, NULL, int_or, true);
}

static double real_max(double a, double b) {
    return a > b || isnan(a) ? a : b;
}
static double real_min(double a, double b) {
    return a < b || isnan(a) ? a : b;
}
static bool int_max(int64_t a, int64_t b, int64_t *out) {
    *out = a > b ? a : b;
    return true;
}
static bool int_min(int64_t a, int64_t b, int64_t *out) {
    *out = a < b ? a : b;
    return true;
}
bool oq_eval_Max(oq_eval *c) {
    return binary(c, real_max, int_max, false);
}
bool oq_eval_Min(oq_eval *c) {
    return binary(c, real_min, int_min, false);
}

/* ---- one input ---- */

static bool unary(oq_eval *c, double (*real)(double), int64_t (*integer)(int64_t)) {
    const oq_cval *a = &c->in[0];
    const bool reals = is_real(a->dt);
    if (c->n_in != 1 || (reals ? real == NULL : integer == NULL || !is_integer(a->dt)) ||
        !oq_eval_make(c, a->dt, a->dims, a->rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++)
        if (reals)
            oq_cval_put_real(c, i, real(oq_cval_real(a, i)));
        else
            oq_cval_put_int(c, i, integer(oq_cval_int(a, i)));
    return true;
}

static int64_t int_neg(int64_t a) {
    return (int64_t)(0 - (uint64_t)a);
}
static int64_t int_abs(int64_t a) {
    return a < 0 ? int_neg(a) : a;
}
static double real_neg(double a) {
    return -a;
}
static double real_inverse(double a) {
    return 1.0 / a;
}
static double real_relu(double a) {
    return a > 0.0 || isnan(a) ? a : 0.0;
}
static int64_t int_relu(int64_t a) {
    return a > 0 ? a : 0;
}

#define UNARY(op, real, integer)                                                                   \
    bool oq_eval_##op(oq_eval *c) {                                                                \
        return unary(c, real, integer);                                                            \
    }
UNARY(Abs, fabs, int_abs)
UNARY(Ceil, ceil, NULL)
UNARY(Cos, cos, NULL)
UNARY(Exp, exp, NULL)
UNARY(Floor, floor, NULL)
UNARY(Log, log, NULL)
UNARY(Neg, real_neg, int_neg)
UNARY(Reciprocal, real_inverse, NULL)
UNARY(Relu, real_relu, int_relu)
UNARY(Sin, sin, NULL)
UNARY(Sqrt, sqrt, NULL)

bool oq_eval_Not(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    if (c->n_in != 1 || a->dt != OQ_BOOL || !oq_eval_make(c, OQ_BOOL, a->dims, a->rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++)
        oq_cval_put_int(c, i, a->p[i] == 0);
    return true;
}

bool oq_eval_Cast(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const oq_dtype to = (oq_dtype)oq_attr_int(c->node, "to", 0);
    const bool from_real = is_real(a->dt), to_real = is_real(to);
    if (c->n_in != 1 || !(from_real || is_integer(a->dt) || a->dt == OQ_BOOL) ||
        !(to_real || is_integer(to) || to == OQ_BOOL) || !oq_eval_make(c, to, a->dims, a->rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++) {
        const double r = from_real ? oq_cval_real(a, i) : 0.0;
        const int64_t n = from_real ? 0 : oq_cval_int(a, i);
        if (to_real) {
            oq_cval_put_real(c, i, from_real ? r : (double)n);
        } else if (to == OQ_BOOL) {
            oq_cval_put_int(c, i, from_real ? r != 0.0 : n != 0);
        } else if (from_real) {
            if (!(r > -9e18 && r < 9e18))
                return false; /* each machine has its own answer */
            oq_cval_put_int(c, i, (int64_t)r);
        } else {
            oq_cval_put_int(c, i, n);
        }
    }
    return true;
}

/* ---- choices, ranges ---- */

bool oq_eval_Where(oq_eval *c) {
    const oq_cval *k = &c->in[0], *a = &c->in[1], *b = &c->in[2];
    int64_t dims[OQ_EVAL_AXES];
    size_t rank;
    if (c->n_in != 3 || k->dt != OQ_BOOL || a->dt != b->dt || !broadcast(a, b, dims, &rank))
        return false;
    oq_cval both = {.rank = rank};
    memcpy(both.dims, dims, sizeof dims);
    if (!broadcast(k, &both, dims, &rank) || !oq_eval_make(c, a->dt, dims, rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++) {
        const oq_cval *from = k->p[source_of(k, dims, rank, i)] != 0 ? a : b;
        memcpy(c->to + i * a->width, from->p + source_of(from, dims, rank, i) * a->width, a->width);
    }
    return true;
}

bool oq_eval_Expand(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t *shape;
    size_t n, rank;
    int64_t dims[OQ_EVAL_AXES];
    oq_cval want = {0};
    if (c->n_in != 2 || !oq_eval_ints(c, 1, &shape, &n) || n > OQ_EVAL_AXES)
        return false;
    want.rank = n;
    memcpy(want.dims, shape, n * sizeof *shape);
    if (!broadcast(a, &want, dims, &rank) || !oq_eval_make(c, a->dt, dims, rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++)
        memcpy(c->to + i * a->width, a->p + source_of(a, dims, rank, i) * a->width, a->width);
    return true;
}

bool oq_eval_Range(oq_eval *c) {
    const oq_cval *v = c->in;
    if (c->n_in != 3 || v[0].n != 1 || v[1].n != 1 || v[2].n != 1 || v[0].dt != v[1].dt ||
        v[0].dt != v[2].dt)
        return false;
    const bool real = is_real(v[0].dt);
    if (!real && !is_integer(v[0].dt))
        return false;
    const double begin = oq_cval_real(&v[0], 0), end = oq_cval_real(&v[1], 0);
    const double step = oq_cval_real(&v[2], 0);
    const double count = step != 0.0 ? ceil((end - begin) / step) : NAN;
    if (!(count < 1e9) || !(fabs(begin) < 9e15) || !(fabs(end) < 9e15))
        return false;
    const int64_t dims[1] = {count > 0 ? (int64_t)count : 0};
    if (!oq_eval_make(c, v[0].dt, dims, 1))
        return false;
    for (size_t i = 0; i < c->out.n; i++)
        if (real)
            oq_cval_put_real(c, i, begin + (double)i * step);
        else
            oq_cval_put_int(c, i, oq_cval_int(&v[0], 0) + (int64_t)i * oq_cval_int(&v[2], 0));
    return true;
}

/* ---- reductions ---- */

/* The dimensions of the result among those of the input, 1 where it is reduced; *rank of them are
 * those of the output, in `dims`. */
static bool reduced_dims(oq_eval *c, int64_t *kept, int64_t *dims, size_t *rank) {
    const oq_cval *a = &c->in[0];
    const int64_t *axes;
    size_t n;
    bool given, on[OQ_EVAL_AXES] = {false};
    const bool keep = oq_attr_int(c->node, "keepdims", 1) != 0;
    if (!oq_eval_axes(c, "axes", 1, &axes, &n, &given) ||
        (n == 0 && oq_attr_int(c->node, "noop_with_empty_axes", 0) != 0))
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t at;
        if (!oq_axis_of(axes[i], a->rank, &at))
            return false;
        on[at] = true;
    }
    *rank = 0;
    for (size_t i = 0; i < a->rank; i++) {
        const bool gone = n == 0 || on[i];
        kept[i] = gone ? 1 : a->dims[i];
        if (!gone || keep)
            dims[(*rank)++] = kept[i];
    }
    return true;
}

static bool reduce(oq_eval *c, real2 real, int2 integer) {
    const oq_cval *a = &c->in[0];
    size_t rank;
    int64_t dims[OQ_EVAL_AXES];
    oq_cval shape = {.rank = a->rank};
    if (c->n_in < 1 || a->n == 0 || !(is_real(a->dt) || is_integer(a->dt)) ||
        !reduced_dims(c, shape.dims, dims, &rank) || !oq_eval_make(c, a->dt, dims, rank))
        return false;
    bool *begun = OQ_NEW_ARRAY(c->arena, bool, c->out.n + 1);
    double *sum = OQ_NEW_ARRAY(c->arena, double, c->out.n + 1);
    int64_t *whole = OQ_NEW_ARRAY(c->arena, int64_t, c->out.n + 1);
    c->nomem = begun == NULL || sum == NULL || whole == NULL;
    if (c->nomem)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const size_t to = source_of(&shape, a->dims, a->rank, i);
        if (is_real(a->dt))
            sum[to] = begun[to] ? real(sum[to], oq_cval_real(a, i)) : oq_cval_real(a, i);
        else if (!begun[to])
            whole[to] = oq_cval_int(a, i);
        else if (!integer(whole[to], oq_cval_int(a, i), &whole[to]))
            return false;
        begun[to] = true;
    }
    for (size_t i = 0; i < c->out.n; i++)
        if (is_real(a->dt))
            oq_cval_put_real(c, i, sum[i]);
        else
            oq_cval_put_int(c, i, whole[i]);
    return true;
}

#define REDUCE(op, real, integer)                                                                  \
    bool oq_eval_Reduce##op(oq_eval *c) {                                                          \
        return reduce(c, real, integer);                                                           \
    }
REDUCE(Sum, real_Add, int_Add)
REDUCE(Prod, real_mul, int_mul)
REDUCE(Max, real_max, int_max)
REDUCE(Min, real_min, int_min)
