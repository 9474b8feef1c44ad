/*
 * dim_text.c — symbolic dimensions as text, in sympy's manner, and back.
 *
 * The order of terms in the text is by degree and then by name, not by when a name was first seen,
 * so the text of an expression does not depend on the rest of the model.
 */
#include "base/env.h"
#include "shape/dim/expr.h"

#define PARSE_DEPTH 16

static void print_sum(oq_buf *out, const oq_term *t, size_t n, int64_t over);

static int factor_cmp(const oq_atom *a, const oq_atom *b) {
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    const int c = oq_str_cmp(a->name, b->name);
    return c != 0 ? c : (a->id > b->id) - (a->id < b->id);
}

static void sort_factors(oq_term *t) {
    for (size_t i = 1; i < t->n; i++) {
        const oq_atom *f = t->f[i];
        size_t k = i;
        for (; k > 0 && factor_cmp(f, t->f[k - 1]) < 0; k--)
            t->f[k] = t->f[k - 1];
        t->f[k] = f;
    }
}

static int term_text_cmp(const oq_term *a, const oq_term *b) {
    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    for (size_t i = 0; i < a->n; i++) {
        const int c = factor_cmp(a->f[i], b->f[i]);
        if (c != 0)
            return c;
    }
    return 0;
}

static void print_atom(oq_buf *out, const oq_atom *a) {
    if (a->kind == OQ_ATOM_NAME) {
        oq_buf_add_str(out, a->name);
    } else if (a->kind == OQ_ATOM_FLOOR) {
        const oq_sdim p = a->args[0], q = a->args[1];
        oq_buf_adds(out, "floor(");
        if (oq_sdim_is_num(q) && !oq_sdim_is_num(p)) {
            print_sum(out, p.e->t, p.e->n, q.n);
        } else {
            const bool wrap_p = !oq_sdim_is_num(p) && p.e->n > 1;
            const bool wrap_q =
                !oq_sdim_is_num(q) && (q.e->n > 1 || q.e->t[0].n > 1 || q.e->t[0].coef != 1);
            oq_buf_adds(out, wrap_p ? "(" : "");
            oq_sdim_print(out, p);
            oq_buf_adds(out, wrap_p ? ")/" : "/");
            oq_buf_adds(out, wrap_q ? "(" : "");
            oq_sdim_print(out, q);
            oq_buf_adds(out, wrap_q ? ")" : "");
        }
        oq_buf_addc(out, ')');
    } else {
        oq_buf_adds(out, a->kind == OQ_ATOM_MIN ? "Min(" : "Max(");
        for (size_t i = 0; i < a->n_args; i++) {
            oq_buf_adds(out, i > 0 ? ", " : "");
            oq_sdim_print(out, a->args[i]);
        }
        oq_buf_addc(out, ')');
    }
}

static uint64_t magnitude(int64_t n) {
    return n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
}

/* |coef| / over times the factors. */
static void print_term(oq_buf *out, const oq_term *t, int64_t over) {
    uint64_t num = magnitude(t->coef), den = (uint64_t)over;
    for (uint64_t a = num, b = den; b != 0;) {
        const uint64_t r = a % b;
        a = b;
        b = r;
        if (b == 0) {
            num /= a;
            den /= a;
        }
    }
    const bool with_number = num != 1 || t->n == 0;
    if (with_number)
        oq_buf_addf(out, "%llu", (unsigned long long)num);
    for (size_t i = 0; i < t->n;) {
        size_t power = 1;
        while (i + power < t->n && t->f[i + power] == t->f[i])
            power++;
        oq_buf_adds(out, i > 0 || with_number ? "*" : "");
        print_atom(out, t->f[i]);
        if (power > 1)
            oq_buf_addf(out, "**%zu", power);
        i += power;
    }
    if (den != 1)
        oq_buf_addf(out, "/%llu", (unsigned long long)den);
}

static void print_sum(oq_buf *out, const oq_term *t, size_t n, int64_t over) {
    oq_term sorted[OQ_SDIM_TERMS];
    for (size_t i = 0; i < n; i++) {
        oq_term one = t[i];
        sort_factors(&one);
        size_t k = i;
        for (; k > 0 && term_text_cmp(&one, &sorted[k - 1]) < 0; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = one;
    }
    for (size_t i = 0; i < n; i++) {
        const bool minus = sorted[i].coef < 0;
        oq_buf_adds(out, i > 0 ? (minus ? " - " : " + ") : (minus ? "-" : ""));
        print_term(out, &sorted[i], over);
    }
}

void oq_sdim_print(oq_buf *out, oq_sdim d) {
    if (oq_sdim_is_num(d))
        oq_buf_addf(out, "%lld", (long long)d.n);
    else if (oq_sdim_is_unknown(d))
        oq_buf_addc(out, '?');
    else
        print_sum(out, d.e->t, d.e->n, 1);
}

oq_str oq_sdim_text(oq_arena *a, oq_sdim d) {
    oq_str name;
    if (oq_sdim_is_name(d, &name))
        return oq_str_copy(a, name);
    OQ_SCRATCH_BUF(buf, a->alloc);
    oq_sdim_print(&buf, d);
    return buf.failed ? (oq_str){0} : oq_str_copy(a, (oq_str){buf.p, buf.n});
}

/* Recursive descent over "2*seq + 1", "floor(h/2 + 1/2)", "Min(a, 512)". Fractions occur only
 * directly inside floor and ceiling: a sum there is a polynomial over one denominator. */
typedef struct parser {
    oq_sdims *ds;
    const char *p, *end;
    int64_t least;
    unsigned depth;
    bool bad;
} parser;

typedef struct ratio {
    oq_sdim num;
    oq_sdim den;
} ratio;

static ratio parse_sum(parser *s);

static void skip(parser *s) {
    while (s->p < s->end && *s->p == ' ')
        s->p++;
}

static bool accept(parser *s, char c) {
    skip(s);
    if (s->p < s->end && *s->p == c) {
        s->p++;
        return true;
    }
    return false;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == ':' || c == '/' || c == '$';
}

static bool is_letter(char c) {
    return is_word(c) && !(c >= '0' && c <= '9') && c != '.' && c != '/';
}

static ratio whole(oq_sdim d) {
    return (ratio){d, oq_sdim_num(1)};
}

static ratio parse_call(parser *s, oq_str word) {
    const bool is_floor = oq_str_is(word, "floor"), is_ceil = oq_str_is(word, "ceiling");
    const bool is_min = oq_str_is(word, "Min"), is_max = oq_str_is(word, "Max");
    if (!is_floor && !is_ceil && !is_min && !is_max) {
        s->bad = true;
        return whole(oq_sdim_unknown());
    }
    ratio r = parse_sum(s);
    if (is_floor || is_ceil) {
        r = whole(is_floor ? oq_sdim_floordiv(s->ds, r.num, r.den)
                           : oq_sdim_ceildiv(s->ds, r.num, r.den));
    }
    while ((is_min || is_max) && !s->bad && accept(s, ',')) {
        const ratio q = parse_sum(s);
        s->bad = s->bad || !oq_sdim_is(q.den, 1) || !oq_sdim_is(r.den, 1);
        r.num = is_min ? oq_sdim_min(s->ds, r.num, q.num) : oq_sdim_max(s->ds, r.num, q.num);
    }
    s->bad = s->bad || !accept(s, ')');
    return r;
}

static ratio parse_factor(parser *s) {
    skip(s);
    if (s->bad || s->p == s->end || s->depth == 0) {
        s->bad = true;
        return whole(oq_sdim_unknown());
    }
    s->depth--;
    ratio r = whole(oq_sdim_unknown());
    const char *at = s->p;
    if (accept(s, '(')) {
        r = parse_sum(s);
        s->bad = s->bad || !accept(s, ')');
    } else if (*s->p >= '0' && *s->p <= '9') {
        int64_t n = 0;
        while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
            s->p++;
        s->bad = !oq_str_to_i64((oq_str){at, (size_t)(s->p - at)}, &n) ||
                 (s->p < s->end && is_letter(*s->p));
        r = whole(oq_sdim_num(n));
    } else if (is_letter(*s->p)) {
        while (s->p < s->end && is_word(*s->p) && *s->p != '/')
            s->p++;
        const oq_str word = {at, (size_t)(s->p - at)};
        r = accept(s, '(') ? parse_call(s, word) : whole(oq_sdim_name(s->ds, word, s->least));
    } else {
        s->bad = true;
    }
    s->depth++;
    return r;
}

static ratio parse_product(parser *s) {
    ratio r = parse_factor(s);
    while (!s->bad) {
        const bool times = accept(s, '*');
        if (times && accept(s, '*')) {
            const ratio q = parse_factor(s);
            s->bad = s->bad || !oq_sdim_is_num(q.num) || q.num.n < 1 || q.num.n > OQ_SDIM_FACTORS;
            const oq_sdim base = r.num;
            for (int64_t i = 1; !s->bad && i < q.num.n; i++)
                r.num = oq_sdim_mul(s->ds, r.num, base);
        } else if (times) {
            const ratio q = parse_factor(s);
            r.num = oq_sdim_mul(s->ds, r.num, q.num);
            r.den = oq_sdim_mul(s->ds, r.den, q.den);
        } else if (accept(s, '/')) {
            const ratio q = parse_factor(s);
            r.num = oq_sdim_mul(s->ds, r.num, q.den);
            r.den = oq_sdim_mul(s->ds, r.den, q.num);
        } else {
            break;
        }
    }
    return r;
}

static ratio parse_sum(parser *s) {
    const bool negative = accept(s, '-');
    ratio r = parse_product(s);
    if (negative)
        r.num = oq_sdim_sub(s->ds, oq_sdim_num(0), r.num);
    while (!s->bad) {
        const bool plus = accept(s, '+');
        if (!plus && !accept(s, '-'))
            break;
        const ratio q = parse_product(s);
        const oq_sdim a = oq_sdim_mul(s->ds, r.num, q.den), b = oq_sdim_mul(s->ds, q.num, r.den);
        r.num = plus ? oq_sdim_add(s->ds, a, b) : oq_sdim_sub(s->ds, a, b);
        r.den = oq_sdim_mul(s->ds, r.den, q.den);
    }
    return r;
}

/* An expression as we or sympy print one has a plus, a star, a bracket or a minus with blanks
 * around it; "batch-size" and "N/A" are names. */
static bool looks_like_expression(oq_str text) {
    for (size_t i = 0; i < text.n; i++) {
        const char c = text.p[i];
        if (c == '+' || c == '*' || c == '(' ||
            (c == '-' && i > 0 && i + 1 < text.n && text.p[i - 1] == ' ' && text.p[i + 1] == ' '))
            return true;
    }
    return false;
}

oq_sdim oq_sdim_parse(oq_sdims *ds, oq_str text, int64_t least) {
    if (!ds->plain && text.n <= 1000 && looks_like_expression(text)) {
        parser s = {ds, text.p, text.p + text.n, least, PARSE_DEPTH, false};
        const ratio r = parse_sum(&s);
        skip(&s);
        if (!s.bad && s.p == s.end && oq_sdim_is(r.den, 1) && oq_sdim_is_symbolic(r.num))
            return r.num;
    }
    return oq_sdim_name(ds, text, least);
}
