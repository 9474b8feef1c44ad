/*
 * nearest.c — "did you mean": the known names nearest to one that is not known.
 *
 * Near is a small edit distance for the length of the name, or the one being part of the other.
 * Case and
 * - or _ do not count.
 */
#include "api/options.h"

#include <stdio.h>

#define NAME_MOST 64

static oq_str folded(char *b, const char *name) {
    size_t n = 0;
    for (; n < NAME_MOST && name[n] != '\0'; n++) {
        const char c = name[n];
        b[n] = c == '-' ? '_' : (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return (oq_str){b, n};
}

void oq_nearest_init(oq_nearest *s, const char *wanted) {
    *s = (oq_nearest){.wanted = oq_str_of(wanted)};
}

void oq_nearest_offer(oq_nearest *s, const char *candidate) {
    char a[NAME_MOST], b[NAME_MOST];
    const oq_str x = folded(a, s->wanted.p), y = folded(b, candidate);
    if (x.n == 0 || y.n == 0)
        return;
    const size_t longer = x.n > y.n ? x.n : y.n;
    const size_t most = longer <= 3 ? 1 : 1 + longer / 4;
    size_t rank = oq_str_distance(x, y, most + 1);
    if (rank > most) {
        /* --channel for --per_channel */
        if (x.n < 4 || x.n >= y.n || memmem(y.p, y.n, x.p, x.n) == NULL)
            return;
        rank = 100 + y.n;
    }
    size_t at = s->n;
    while (at > 0 && s->rank[at - 1] > rank)
        at--;
    if (at >= OQ_COUNT(s->best))
        return;
    if (s->n < OQ_COUNT(s->best))
        s->n++;
    for (size_t i = s->n - 1; i > at; i--) {
        s->best[i] = s->best[i - 1];
        s->rank[i] = s->rank[i - 1];
    }
    s->best[at] = candidate;
    s->rank[at] = rank;
}

void oq_nearest_text(const oq_nearest *s, const char *prefix, char *out, size_t out_size) {
    out[0] = '\0';
    size_t w = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *before = i == 0 ? " (did you mean " : i + 1 < s->n ? ", " : " or ";
        const int k = snprintf(out + w, out_size - w, "%s%s%s%s", before, prefix, s->best[i],
                               i + 1 == s->n ? "?)" : "");
        if (k < 0 || (size_t)k >= out_size - w) {
            out[0] = '\0';
            return;
        }
        w += (size_t)k;
    }
}
