/*
 * number_text.c — the shortest decimal text of a float or double that reads back as the same.
 */
#include "base/number_text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A positive decimal number 0.DIGITS x 10^point, digits without leading or trailing zeros. */
struct decimal {
    char digits[20];
    int n;
    int point;
};

/* v rounded to `precision` digits. Only digits are taken from the text, whatever the decimal point
 * of the locale. */
static struct decimal round_to(double v, int precision) {
    char b[64];
    struct decimal d = {.n = 0};
    snprintf(b, sizeof b, "%.*e", precision - 1, v);
    const char *p = b;
    for (; *p != 'e' && *p != '\0'; p++)
        if (*p >= '0' && *p <= '9')
            d.digits[d.n++] = *p;
    d.point = *p == 'e' ? atoi(p + 1) + 1 : 1;
    while (d.n > 1 && d.digits[d.n - 1] == '0')
        d.n--;
    return d;
}

/* One more in the last of `precision` places. */
static struct decimal step_up(struct decimal d, int precision) {
    while (d.n < precision)
        d.digits[d.n++] = '0';
    int i = d.n - 1;
    while (i >= 0 && d.digits[i] == '9')
        i--;
    if (i < 0) {
        d.digits[0] = '1';
        d.n = 1;
        d.point++;
        return d;
    }
    d.digits[i]++;
    d.n = i + 1;
    return d;
}

/* Reads it back; no decimal point is in the text, so no locale matters. */
static bool reads_as(struct decimal d, double v, bool is_float) {
    char b[40];
    snprintf(b, sizeof b, "%.*se%d", d.n, d.digits, d.point - d.n);
    return is_float ? strtof(b, NULL) == (float)v : strtod(b, NULL) == v;
}

/* The fewest digits that read back as v > 0 and, of these, the nearest to it. The first try
 * covers all that have fewer still (their zeros are cut), but for subnormals, which have fewer
 * digits than that. Just above a power of two the doubles lie twice as far apart as below it, so
 * there the next decimal above may do where the nearest one (below) does not. */
static struct decimal shortest(double v, bool is_float) {
    int exponent;
    const bool power_of_two = frexp(v, &exponent) == 0.5;
    const bool subnormal = v < (is_float ? (double)FLT_MIN : DBL_MIN);
    const int first = subnormal ? 1 : is_float ? 6 : 15, last = is_float ? 9 : 17;
    for (int precision = first; precision < last; precision++) {
        struct decimal d = round_to(v, precision);
        if (reads_as(d, v, is_float))
            return d;
        d = step_up(d, precision);
        if (power_of_two && reads_as(d, v, is_float))
            return d;
    }
    return round_to(v, last);
}

/*
 * The same for the doubles of everyday size, in integers and many times as fast. v = m 2^e;
 * with k such that v 10^k has 17 digits before the point, everything is counted in units of 2^(e +
 * k): v 10^k is m 5^k of them, exactly, and half the distance to the next double is 5^k / 2. All
 * fits in 128 bits. False where it would not, and for powers of two, whose neighbours lie at
 * different distances.
 */
__extension__ typedef unsigned __int128 u128;

static const uint64_t tens[] = {1, 10, 100};

static bool shortest_exact(double v, struct decimal *out) {
    uint64_t m;
    memcpy(&m, &v, sizeof m);
    int e = (int)(m >> 52) - 1075;
    m &= ((uint64_t)1 << 52) - 1;
    if (!(v >= 1e-10 && v < 1e16) || m == 0)
        return false;
    m |= (uint64_t)1 << 52;
    int k = 16 - (int)floor(log10(v));
    u128 five = 1;
    for (int i = 0; i < k; i++)
        five *= 5;
    u128 exact = m * five;
    const int shift = -(e + k); /* of the units: positive, since v is below 2^54 and k at least 1 */
    if (shift <= 0 || shift > 63)
        return false;
    if (exact >> shift >=
        (u128)100000000000000000u) /* log10 was rounded up to a whole number, or not */
        return false;
    const u128 least = (u128)10000000000000000u << shift;
    if (exact < least)
        return false;
    for (int cut = 2; cut >= 0; cut--) { /* 15 digits, 16, 17 */
        const u128 unit = (u128)tens[cut] << shift, rest = exact % unit;
        u128 q = exact / unit;
        const bool up = rest * 2 > unit || (rest * 2 == unit && (q & 1) != 0);
        const u128 off = up ? unit - rest : rest;
        if (cut > 0 && off * 2 >= five)
            continue;
        uint64_t digits = (uint64_t)(q + (up ? 1 : 0));
        int n = 17 - cut;
        out->point = 17 - k;
        if (digits == (cut == 2   ? 1000000000000000u
                       : cut == 1 ? 10000000000000000u
                                  : 100000000000000000u)) {
            digits = 1; /* 999...9 became 1000...0 */
            n = 1;
            out->point++;
        }
        while (n > 1 && digits % 10 == 0) {
            digits /= 10;
            n--;
        }
        out->n = n;
        for (int i = n; i-- > 0; digits /= 10)
            out->digits[i] = (char)('0' + digits % 10);
        return true;
    }
    return false;
}

static char *put(char *b, const char *p, int n) {
    memcpy(b, p, (size_t)n);
    return b + n;
}

static char *put_zeros(char *b, int n) {
    memset(b, '0', (size_t)n);
    return b + n;
}

/* Laid out as Python's repr: an exponent below 1e-4 and from 1e16 on. */
static void layout(char *b, struct decimal d) {
    if (d.point > 16 || d.point <= -4) {
        *b++ = d.digits[0];
        if (d.n > 1) {
            *b++ = '.';
            b = put(b, d.digits + 1, d.n - 1);
        }
        const int e = d.point - 1;
        const unsigned size = (unsigned)(e < 0 ? -e : e) % 1000; /* at most 324 */
        snprintf(b, 8, "e%c%02u", e < 0 ? '-' : '+', size);
        return;
    }
    if (d.point <= 0) {
        b = put(b, "0.", 2);
        b = put_zeros(b, -d.point);
        b = put(b, d.digits, d.n);
    } else if (d.n <= d.point) {
        b = put(b, d.digits, d.n);
        b = put_zeros(b, d.point - d.n);
    } else {
        b = put(b, d.digits, d.point);
        *b++ = '.';
        b = put(b, d.digits + d.point, d.n - d.point);
    }
    *b = '\0';
}

static void number_text(char *b, double v, bool is_float) {
    if (isnan(v)) {
        memcpy(b, "nan", 4);
        return;
    }
    const bool negative = signbit(v);
    if (negative) {
        *b++ = '-';
        v = -v;
    }
    if (isinf(v))
        memcpy(b, "inf", 4);
    else if (v != 0) {
        struct decimal d;
        if (is_float || !shortest_exact(v, &d))
            d = shortest(v, is_float);
        layout(b, d);
    } else if (negative)
        memcpy(b, "0.0", 4); /* "-0" would be read as a whole number, which has no sign */
    else
        memcpy(b, "0", 2);
}

void oq_real_text(char *b, double v) {
    number_text(b, v, false);
}

void oq_float_text(char *b, float v) {
    number_text(b, (double)v, true);
}

/* ---- reading ---- */

bool oq_real_read(const char *text, double *out) {
    char b[128];
    const size_t n = strlen(text);
    if (n == 0 || n >= sizeof b || strspn(text, "0123456789+-.eE") != n)
        return false;
    const char *point = localeconv()->decimal_point;
    size_t w = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t more = text[i] == '.' ? strlen(point) : 1;
        if (w + more >= sizeof b)
            return false;
        memcpy(b + w, text[i] == '.' ? point : text + i, more);
        w += more;
    }
    b[w] = '\0';
    char *end = NULL;
    *out = strtod(b, &end);
    return end == b + w && isfinite(*out);
}
