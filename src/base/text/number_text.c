/*
 * number_text.c — the shortest decimal text of a float or double that reads back as the same.
 */
#include "base/text/number_text.h"

#include <locale.h>

/* A positive decimal number 0.DIGITS x 10^point, digits without leading or trailing zeros. */
#define DIGITS 20 /* at most; a copy of them takes that many, whatever is needed */
struct decimal {
    char digits[2 * DIGITS];
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

/* ---- everyday sizes ---- */

__extension__ typedef unsigned __int128 u128;

static const uint64_t fives[] = {1,
                                 5,
                                 25,
                                 125,
                                 625,
                                 3125,
                                 15625,
                                 78125,
                                 390625,
                                 1953125,
                                 9765625,
                                 48828125,
                                 244140625,
                                 1220703125,
                                 6103515625,
                                 30517578125,
                                 152587890625,
                                 762939453125,
                                 3814697265625,
                                 19073486328125,
                                 95367431640625,
                                 476837158203125,
                                 2384185791015625,
                                 11920928955078125,
                                 59604644775390625,
                                 298023223876953125,
                                 1490116119384765625,
                                 7450580596923828125};

/* A format of numbers: bits of the mantissa, the digits that always suffice, 10 to that power. */
struct format {
    int bits, most;
    uint64_t limit;
};
static const struct format double_format = {53, 17, 100000000000000000u};
static const struct format float_format = {24, 9, 1000000000u};

/* v = m 2^e, with as many bits as the format has. */
static uint64_t take_apart(double v, const struct format *f, int *e) {
    uint64_t m;
    memcpy(&m, &v, sizeof m);
    *e = (int)(m >> 52) - 1023 - (f->bits - 1);
    return ((m & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52) >> (53 - f->bits);
}

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536"
    "37383940414243444546474849505152535455565758596061626364656667686970717273"
    "7475767778798081828384858687888990919293949596979899";

/* The n digits of a number, which goes without the zeros at its end. */
static void set_digits(struct decimal *d, uint64_t v, int n) {
    for (; v % 100 == 0 && n > 2; n -= 2)
        v /= 100;
    if (v % 10 == 0 && n > 1) {
        v /= 10;
        n--;
    }
    d->n = n;
    for (; n >= 2; v /= 100)
        memcpy(d->digits + (n -= 2), pairs + 2 * (v % 100), 2);
    if (n == 1)
        d->digits[0] = (char)('0' + v);
}

/* A number of whole + part / 2^shift, and how far from it, in twice 2^-shift, others begin. */
struct scaled {
    uint64_t whole, part, apart;
    int shift;
};

/* The nearest multiple of ten_to, divided by it; false if it is too far off. ten_to is a constant
 * where this is inlined, which makes the divisions cheap. */
static inline __attribute__((always_inline)) bool nearest(const struct scaled *s, uint64_t ten_to,
                                                          uint64_t *out) {
    const uint64_t q = s->whole / ten_to;
    const u128 unit = (u128)ten_to << s->shift;
    const u128 rest = (u128)(s->whole - q * ten_to) << s->shift | s->part;
    const bool up = rest * 2 > unit || (rest * 2 == unit && (q & 1) != 0);
    *out = q + up;
    return (up ? unit - rest : rest) * 2 < s->apart;
}

/* As few digits as do; returns how many of f->most are left out. */
static int fewest(const struct scaled *s, const struct format *f, uint64_t *digits) {
    if (f == &float_format && nearest(s, 1000, digits))
        return 3;
    if (nearest(s, 100, digits))
        return 2;
    if (nearest(s, 10, digits))
        return 1;
    (void)nearest(s, 1, digits);
    return 0;
}

/*
 * The same as `shortest` for numbers of everyday size, in integers and many times as fast. v = m
 * 2^e; with k such that v 10^k has as many digits before the point as are ever needed, everything
 * is counted in units of 2^(e + k): v 10^k is m 5^k of them, exactly, and half the distance to the
 * next number is 5^k / 2. All fits in 128 bits. False where it would not, and for powers of two,
 * whose neighbours lie at different distances.
 */
static bool shortest_exact(double v, const struct format *f, struct decimal *out) {
    int e;
    const uint64_t m = take_apart(v, f, &e);
    if (m == (uint64_t)1 << (f->bits - 1) || e < -128)
        return false;
    const int ten = (e + f->bits - 1) * 315653 >> 20; /* 10^ten is not above v, 10^(ten + 2) is */
    struct scaled s = {.whole = f->limit};
    int k = f->most - ten;
    while (s.whole >= f->limit) {
        s.shift = -(e + --k);
        if (k < 0 || k >= (int)OQ_COUNT(fives) || s.shift <= 0 || s.shift > 63)
            return false;
        const u128 exact = (u128)m * fives[k];
        s.whole = (uint64_t)(exact >> s.shift);
        s.part = (uint64_t)exact & (((uint64_t)1 << s.shift) - 1);
    }
    s.apart = fives[k];
    static const uint64_t tens[] = {1, 10, 100, 1000};
    uint64_t digits;
    const int cut = fewest(&s, f, &digits);
    const bool carried = digits * tens[cut] == f->limit; /* 999...9 became 1000...0 */
    set_digits(out, carried ? 1 : digits, carried ? 1 : f->most - cut);
    out->point = f->most - k + carried;
    return true;
}

/* ---- layout ---- */

/* Digits of a decimal. */
static char *put(char *b, const char *p, int n) {
    memcpy(b, p, DIGITS);
    return b + n;
}

static char *put_word(char *b, const char *word) {
    const size_t n = strlen(word);
    memcpy(b, word, n);
    return b + n;
}

static char *put_zeros(char *b, int n) {
    memset(b, '0', (size_t)n);
    return b + n;
}

static char *put_exponent(char *b, int e) {
    const unsigned size = (unsigned)(e < 0 ? -e : e) % 1000; /* at most 324 */
    return b + snprintf(b, 8, "e%c%02u", e < 0 ? '-' : '+', size);
}

/* Laid out as Python's repr, an exponent below 1e-4 and from 1e16 on; `end` comes after a number
 * without a point. Returns the end. */
static char *layout(char *b, const struct decimal *d, const char *end) {
    if (d->point > 16 || d->point <= -4) {
        *b++ = d->digits[0];
        if (d->n > 1) {
            *b++ = '.';
            b = put(b, d->digits + 1, d->n - 1);
        }
        return put_exponent(b, d->point - 1);
    }
    if (d->point <= 0) {
        b = put_zeros(put_word(b, "0."), -d->point);
        return put(b, d->digits, d->n);
    }
    if (d->n <= d->point) {
        b = put(b, d->digits, d->n);
        return put_word(put_zeros(b, d->point - d->n), end);
    }
    b = put(b, d->digits, d->point);
    *b++ = '.';
    return put(b, d->digits + d->point, d->n - d->point);
}

static char *lay_out(char *b, double v, const struct format *f, const char *end) {
    if (isnan(v))
        return put_word(b, "nan");
    const bool negative = signbit(v);
    if (negative) {
        *b++ = '-';
        v = -v;
    }
    if (isinf(v))
        return put_word(b, "inf");
    if (v == 0) /* "-0" would be read as a whole number, which has no sign */
        return put_word(b, negative || end[0] != '\0' ? "0.0" : "0");
    struct decimal d = {.n = 0};
    if (!shortest_exact(v, f, &d))
        d = shortest(v, f == &float_format);
    return layout(b, &d, end);
}

static size_t number_text(char *b, double v, const struct format *f, const char *end) {
    char *last = lay_out(b, v, f, end);
    *last = '\0';
    return (size_t)(last - b);
}

size_t oq_real_text(char b[static OQ_NUMBER_TEXT], double v) {
    return number_text(b, v, &double_format, "");
}

size_t oq_float_text(char b[static OQ_NUMBER_TEXT], float v) {
    return number_text(b, (double)v, &float_format, "");
}

size_t oq_python_text(char b[static OQ_NUMBER_TEXT], double v) {
    return number_text(b, v, &double_format, ".0");
}

static size_t uint_text(char *b, uint64_t v) {
    if (v < 10) { /* most counts of a histogram */
        b[0] = (char)('0' + v);
        b[1] = '\0';
        return 1;
    }
    char text[24], *p = text + sizeof text;
    for (; v >= 100; v /= 100)
        memcpy(p -= 2, pairs + 2 * (v % 100), 2);
    memcpy(p -= 2, pairs + 2 * v, 2);
    p += *p == '0';
    const size_t n = (size_t)(text + sizeof text - p);
    memcpy(b, p, n);
    b[n] = '\0';
    return n;
}

size_t oq_uint_text(char b[static OQ_NUMBER_TEXT], uint64_t v) {
    return uint_text(b, v);
}

size_t oq_int_text(char b[static OQ_NUMBER_TEXT], int64_t v) {
    if (v >= 0)
        return uint_text(b, (uint64_t)v);
    *b = '-';
    return 1 + uint_text(b + 1, 0 - (uint64_t)v);
}

const char *oq_size_text(char b[static 32], uint64_t bytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double x = (double)bytes / 1000;
    size_t u = 0;
    if (bytes < 1000) {
        snprintf(b, 32, "%llu bytes", (unsigned long long)bytes);
        return b;
    }
    for (; x >= 999.95 && u + 1 < OQ_COUNT(units); u++)
        x /= 1000;
    snprintf(b, 32, "%.1f %s", x, units[u]);
    return b;
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
