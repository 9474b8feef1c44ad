/*
 * pattern.c — see pattern.h.
 */
#include "base/text/pattern.h"

enum {
    MAX_GROUPS = 64,
    MAX_PARTS = 4000,       /* a few kilobytes each, once compiled */
    LONGEST_MATCHED = 1024, /* the time grows with the square of a name's length */
};

/* The place after a bracket expression, in which "]" may come first and [:classes:] are. */
static const char *after_bracket(const char *p) {
    p += p[1] == '^' ? 2 : 1;
    if (*p == ']')
        p++;
    for (; *p != '\0' && *p != ']'; p++) {
        if (*p != '[' || p[1] == '\0' || strchr(":.=", p[1]) == NULL)
            continue;
        const char close[] = {p[1], ']', '\0'}, *end = strstr(p + 2, close);
        p = end != NULL ? end + 1 : p;
    }
    return *p != '\0' ? p + 1 : p;
}

/* How often "{m,n}" repeats what is before it; *end is after it. */
static size_t repeats(const char *p, const char **end) {
    char *rest;
    unsigned long n = strtoul(p + 1, &rest, 10);
    if (*rest == ',') {
        const unsigned long most = strtoul(rest + 1, &rest, 10);
        n = most > n ? most : n + (n < MAX_PARTS);
    }
    *end = rest + (*rest == '}');
    return n > MAX_PARTS ? MAX_PARTS + 1 : n > 0 ? n : 1;
}

/* What the C library makes of a pattern has a part for each character with repetitions written
 * out, so that a short one can take gigabytes; and back-references take time without end. Says
 * what is wrong with a pattern of that kind, or NULL. */
static const char *too_much(const char *p) {
    size_t sums[MAX_GROUPS] = {0}, last = 0, depth = 0;
    while (*p != '\0') {
        size_t times = 1;
        if (*p == '(') {
            if (++depth == MAX_GROUPS)
                return "groups are too deep";
            sums[depth] = last = 0;
            p++;
            continue;
        }
        if (*p == ')' && depth > 0) {
            last = sums[depth--] + 1;
            p++;
        } else if (*p == '{') {
            times = repeats(p, &p);
        } else if (*p == '+') {
            times = 2; /* a+ is aa* */
            p++;
        } else if (*p == '*' || *p == '?') {
            p++;
            continue;
        } else if (*p == '\\' && p[1] >= '1' && p[1] <= '9') {
            return "back-references are not for patterns";
        } else {
            last = 1;
            p = *p == '[' ? after_bracket(p) : p + (*p == '\\' && p[1] != '\0' ? 2 : 1);
        }
        sums[depth] += times > 1 ? last * (times - 1) : last;
        last *= times;
        if (sums[depth] > MAX_PARTS)
            return "its repetitions are too many";
    }
    return NULL;
}

onq_code oq_pattern_compile(regex_t *out, const char *text, onq_error *err) {
    char why[128];
    const char *wrong = too_much(text);
    if (wrong != NULL)
        return oq_fail(err, ONQ_E_OPTION, "%s", wrong);
    const int rc = regcomp(out, text, REG_EXTENDED);
    if (rc == 0)
        return ONQ_OK;
    regerror(rc, out, why, sizeof why);
    return oq_fail(err, ONQ_E_OPTION, "%s", why);
}

bool oq_pattern_match(const regex_t *re, oq_str name, regmatch_t *groups, size_t n) {
    char text[LONGEST_MATCHED + 1];
    if (name.n > LONGEST_MATCHED)
        return false;
    if (name.n > 0)
        memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    return regexec(re, text, n, groups, 0) == 0;
}
