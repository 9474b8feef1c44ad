/*
 * shape_einsum.c — Einsum: each letter means one size; the ellipsis for leading axes.
 */
#include "shape/sop.h"

#define LETTERS  52
#define MAX_TERM 128

typedef struct einsum {
    oq_sdim size[LETTERS];
    unsigned seen[LETTERS];
    const oq_sdim *dots; /* sizes of the ellipsis, broadcast */
    size_t n_dots;
    bool has_dots;
} einsum;

static int letter_at(char ch) {
    if (ch >= 'A' && ch <= 'Z')
        return ch - 'A';
    return ch >= 'a' && ch <= 'z' ? ch - 'a' + 26 : -1;
}

/* The next term of the left side, blanks removed; letters of the ellipsis count as '.'. */
static size_t next_term(const oq_str *eq, size_t *at, size_t end, char *term) {
    size_t n = 0;
    while (*at < end && eq->p[*at] != ',') {
        if (eq->p[*at] != ' ' && n < MAX_TERM)
            term[n++] = eq->p[*at];
        *at += 1;
    }
    *at += 1;
    return n;
}

static bool add_dots(oq_rctx *c, einsum *e, const oq_sdim *dims, size_t n) {
    const oq_vtype a = {.has_shape = true, .rank = (uint32_t)e->n_dots, .dims = e->dots};
    const oq_vtype b = {.has_shape = true, .rank = (uint32_t)n, .dims = dims};
    const oq_vtype *shapes[2] = {&a, &b};
    if (e->has_dots && c->plain && n != e->n_dots)
        return oq_r_fail(c, "the ellipsis means %zu axes in one place and %zu in another",
                         e->n_dots, n);
    const bool first = !e->has_dots;
    e->has_dots = true;
    if (first) {
        e->dots = dims;
        e->n_dots = n;
        return true;
    }
    return oq_r_broadcast(c, shapes, 2, &e->dots, &e->n_dots);
}

static bool add_letter(oq_rctx *c, einsum *e, char ch, oq_sdim d) {
    const int k = letter_at(ch);
    if (k < 0)
        return oq_r_fail(c, "the equation has a '%c'", ch);
    if (e->seen[k]++ == 0)
        e->size[k] = d;
    else if (!c->plain)
        e->size[k] = oq_r_broadcast_dim(c, e->size[k], d);
    return true;
}

static bool read_term(oq_rctx *c, einsum *e, const char *term, size_t n, const oq_vtype *x) {
    size_t letters = 0, dots_at = n;
    for (size_t i = 0; i < n; i++) {
        letters += letter_at(term[i]) >= 0 ? 1 : 0;
        if (dots_at == n && i + 2 < n && memcmp(term + i, "...", 3) == 0)
            dots_at = i;
    }
    const bool has_dots = dots_at < n;
    if (letters > x->rank || (!has_dots && letters != x->rank))
        return oq_r_fail(c, "the equation does not fit an input of rank %u", x->rank);
    size_t axis = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == dots_at) {
            if (!add_dots(c, e, x->dims + axis, x->rank - letters))
                return false;
            axis += x->rank - letters;
            i += 2;
        } else if (!add_letter(c, e, term[i], x->dims[axis++])) {
            return false;
        }
    }
    return true;
}

static void set_output(oq_rctx *c, const einsum *e, const char *right, size_t n, bool explicit) {
    oq_sdim *dims = oq_r_dims(c, e->n_dots + (explicit ? n : LETTERS));
    size_t rank = 0;
    OQ_R_NEED(dims != NULL);
    for (size_t i = 0; !explicit && i < e->n_dots; i++)
        dims[rank++] = e->dots[i];
    /* Without an arrow: the letters that occur once, in alphabetical order. */
    for (size_t k = 0; !explicit && k < LETTERS; k++)
        if (e->seen[k] == 1)
            dims[rank++] = e->size[k];
    for (size_t i = 0; explicit && i < n; i++) {
        const int k = letter_at(right[i]);
        if (k >= 0 && e->seen[k] > 0) {
            dims[rank++] = e->size[k];
        } else if (k < 0 && i + 2 < n && memcmp(right + i, "...", 3) == 0) {
            for (size_t d = 0; d < e->n_dots; d++)
                dims[rank++] = e->dots[d];
            i += 2;
        } else {
            oq_r_fail(c, "the equation's result has a '%c'", right[i]);
            return;
        }
    }
    oq_r_set_shape(c, 0, dims, rank);
}

void oq_rule_einsum(oq_rctx *c) {
    const oq_str eq = oq_r_str(c, "equation", "");
    einsum e = {.n_dots = 0};
    char term[MAX_TERM];
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    size_t arrow = 0;
    while (arrow + 1 < eq.n && memcmp(eq.p + arrow, "->", 2) != 0)
        arrow++;
    const bool explicit = arrow + 1 < eq.n;
    const size_t end = explicit ? arrow : eq.n;
    size_t at = 0, input = 0;
    while (at <= end && input < c->n_in) {
        const oq_vtype *x = oq_r_shape(c, input);
        const size_t n = next_term(&eq, &at, end, term);
        OQ_R_NEED(x != NULL && read_term(c, &e, term, n, x));
        input++;
    }
    OQ_R_FAIL_IF(at <= end || input != c->n_in, c,
                 "the equation has another number of terms than the node has inputs");
    at = arrow + 2;
    const size_t n = explicit ? next_term(&eq, &at, eq.n, term) : 0;
    set_output(c, &e, term, n, explicit);
}
