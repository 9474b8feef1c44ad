/*
 * nearest.c — see nearest.h.
 */
#include "base/text/nearest.h"

#define MAX_EDITS 4
#define MAX_NAME  256 /* of longer names the beginning is compared */

static oq_str folded(char *b, oq_str name) {
    size_t n = 0;
    for (; n < MAX_NAME && n < name.n; n++) {
        const char c = name.p[n];
        b[n] = c == '-' ? '_' : (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return (oq_str){b, n};
}

void oq_nearest_init(oq_nearest *s, oq_str wanted) {
    *s = (oq_nearest){.wanted = wanted};
}

/* How near, from 0; SIZE_MAX when it is not near. */
static size_t rank_of(oq_str wanted, oq_str candidate) {
    char a[MAX_NAME], b[MAX_NAME];
    const oq_str x = folded(a, wanted), y = folded(b, candidate);
    if (x.n == 0 || y.n == 0)
        return SIZE_MAX;
    const size_t longer = x.n > y.n ? x.n : y.n;
    /* Nobody mistypes more letters than that: long names that differ by more are of other
     * things. */
    const size_t part = longer <= 3 ? 1 : 1 + longer / 4,
                 most = part < MAX_EDITS ? part : MAX_EDITS;
    const size_t rank = oq_str_distance(x, y, most + 1);
    if (rank <= most)
        return rank;
    /* --channel for --per_channel */
    if (x.n < 4 || x.n >= y.n || !oq_str_contains(y, x))
        return SIZE_MAX;
    return MAX_NAME + y.n;
}

void oq_nearest_offer(oq_nearest *s, oq_str candidate) {
    const size_t rank = rank_of(s->wanted, candidate);
    size_t at = s->n;
    for (size_t i = 0; i < s->n; i++)
        if (oq_str_eq(s->best[i], candidate))
            return;
    while (at > 0 && s->rank[at - 1] > rank)
        at--;
    if (rank == SIZE_MAX || at >= OQ_COUNT(s->best))
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
        const int k = snprintf(out + w, out_size - w, "%s%s%.*s%s", before, prefix,
                               OQ_STR(s->best[i]), i + 1 == s->n ? "?)" : "");
        if (k < 0 || (size_t)k >= out_size - w) {
            out[0] = '\0';
            return;
        }
        w += (size_t)k;
    }
}
