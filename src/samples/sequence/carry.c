/*
 * carry.c — see carry.h.
 */
#include "samples/sequence/carry.h"

#include "base/text/pattern.h"

/* ---- one pair ---- */

static bool dims_follow(const oq_io *out, const oq_io *in) {
    if (!out->has_shape || !in->has_shape)
        return true;
    if (out->rank != in->rank)
        return false;
    for (size_t i = 0; i < in->rank; i++)
        if (out->dims[i].value >= 0 && in->dims[i].value >= 0 &&
            out->dims[i].value != in->dims[i].value)
            return false;
    return true;
}

/* What a model does not say may fit. */
static bool follows(const oq_io *out, const oq_io *in) {
    const bool kinds = out->kind == OQ_DATUM_NONE || in->kind == OQ_DATUM_NONE ||
                       (out->kind == OQ_DATUM_TENSOR && in->kind == OQ_DATUM_TENSOR);
    const bool types =
        out->dtype == OQ_UNDEFINED || in->dtype == OQ_UNDEFINED || out->dtype == in->dtype;
    return kinds && types && dims_follow(out, in);
}

static const oq_carry_pair *into(const oq_carry *c, size_t in) {
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].in == in)
            return &c->v[i];
    return NULL;
}

static size_t find_name(const oq_ios *ios, oq_str name) {
    for (size_t i = 0; i < ios->n; i++)
        if (oq_str_eq(ios->v[i].name, name))
            return i;
    return SIZE_MAX;
}

static onq_code init(oq_carry *c, oq_arena *a, const oq_ios *in, onq_error *err) {
    *c = (oq_carry){.v = OQ_NEW_ARRAY(a, oq_carry_pair, in->n + 1)};
    return c->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- names of exporters ---- */

/* "present.0.key" goes to "past_key_values.0.key" or "past.0.key": the beginnings, in this order. */
static const struct {
    const char *out, *in;
} caches[] = {
    {"present_key_values", "past_key_values"},
    {"present_key_value", "past_key_value"},
    {"present", "past_key_values"},
    {"present", "past_key_value"},
    {"present", "past"},
};

/* What is put before and after the name of a state to tell the new one from the old one. */
static const char *const new_begins[] = {"new_", "next_", "out_", "output_", "updated_", "r_"};
static const char *const new_ends[] = {"_out", "_output", "_new",  "_next", "_n",
                                       "n",    "N",       "_last", ".out",  "Out"};
static const char *const old_begins[] = {"in_", "input_", "prev_", "past_", "init_", "initial_"};
static const char *const old_ends[] = {"_in", "_input", "_prev", "_past", "_init",
                                       "_0",  "0",      ".in",   "In"};
/* The name of a state has one of these in it, or is one of the short ones. */
static const char *const words[] = {"state", "hidden", "cell", "cache", "mem", "past",   "kv",
                                    "lstm",  "gru",    "rnn",  "buf",   "ctx", "context"};
static const char *const shorts[] = {"h", "c", "s", "hx", "cx", "h_", "c_"};

static bool is_state_word(oq_str s) {
    if (oq_str_is_any(s, shorts, OQ_COUNT(shorts)))
        return true;
    for (size_t i = 0; i < OQ_COUNT(words); i++)
        if (oq_str_contains(s, oq_str_of(words[i])))
            return true;
    return oq_str_ends(s, OQ_S("_lens")) || oq_str_ends(s, OQ_S("_h")) ||
           oq_str_ends(s, OQ_S("_c"));
}

static bool strip_begin(oq_str *s, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const oq_str begin = oq_str_of(list[i]);
        if (s->n > begin.n && oq_str_starts(*s, begin)) {
            *s = (oq_str){s->p + begin.n, s->n - begin.n};
            return true;
        }
    }
    return false;
}

static bool strip_end(oq_str *s, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const oq_str end = oq_str_of(list[i]);
        if (s->n > end.n && oq_str_ends(*s, end)) {
            s->n -= end.n;
            return true;
        }
    }
    return false;
}

/* The stem as it is, or without the marks of an old state. */
static bool is_old(oq_str name, oq_str stem) {
    oq_str x = name, y = name;
    if (oq_str_eq(name, stem))
        return true;
    if (strip_begin(&x, old_begins, OQ_COUNT(old_begins)) && oq_str_eq(x, stem))
        return true;
    return strip_end(&y, old_ends, OQ_COUNT(old_ends)) && oq_str_eq(y, stem);
}

static size_t find_old(const oq_ios *in, oq_str stem) {
    for (size_t i = 0; is_state_word(stem) && i < in->n; i++)
        if (is_old(in->v[i].name, stem))
            return i;
    return SIZE_MAX;
}

/* The input that takes a state of this name; SIZE_MAX: none. */
static onq_code find_input(oq_arena *a, const oq_ios *in, oq_str name, size_t *found,
                           onq_error *err) {
    *found = SIZE_MAX;
    for (size_t i = 0; i < OQ_COUNT(caches) && *found == SIZE_MAX; i++) {
        const oq_str begin = oq_str_of(caches[i].out);
        if (!oq_str_starts(name, begin))
            continue;
        const oq_str rest = {name.p + begin.n, name.n - begin.n};
        const oq_str want = oq_str_cat(a, oq_str_of(caches[i].in), rest);
        OQ_TRY_ALLOC(want.p != NULL, err);
        *found = find_name(in, want);
    }
    oq_str begin = name, end = name;
    if (*found == SIZE_MAX && strip_begin(&begin, new_begins, OQ_COUNT(new_begins)))
        *found = find_old(in, begin);
    if (*found == SIZE_MAX && strip_end(&end, new_ends, OQ_COUNT(new_ends)))
        *found = find_old(in, end);
    return ONQ_OK;
}

onq_code oq_carry_find(oq_arena *a, const oq_ios *in, const oq_ios *out, oq_carry *c,
                       onq_error *err) {
    OQ_TRY(init(c, a, in, err));
    for (size_t i = 0; i < out->n; i++) {
        size_t to = SIZE_MAX;
        OQ_TRY(find_input(a, in, out->v[i].name, &to, err));
        if (to != SIZE_MAX && into(c, to) == NULL && follows(&out->v[i], &in->v[to]))
            c->v[c->n++] = (oq_carry_pair){i, to};
    }
    return ONQ_OK;
}

/* ---- rules of the user ---- */

typedef struct rule {
    oq_str text, in; /* as given; the name with \1 .. \9 */
    oq_regex *out;
} rule;

static onq_code fail_rule(const rule *r, const char *why, onq_error *err) {
    return oq_fail(err, ONQ_E_OPTION, "--carry %.*s: %s", OQ_STR(r->text), why);
}

/* OUT=IN at the last "="; the expression is for whole names. */
static onq_code read_rule(rule *r, oq_arena *a, oq_str text, onq_error *err) {
    size_t at = text.n;
    r->text = text;
    while (at > 0 && text.p[at - 1] != '=')
        at--;
    if (at < 2 || at == text.n)
        return fail_rule(r, "is not OUT=IN, the names of an output and an input", err);
    r->in = (oq_str){text.p + at, text.n - at};
    const oq_str whole = oq_str_format(a, "^(%.*s)$", (int)(at - 1), text.p);
    OQ_TRY_ALLOC(whole.p != NULL, err);
    const onq_code rc = oq_regex_compile(a, whole.p, &r->out, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "--carry %.*s", OQ_STR(text));
}

/* The name of the input, with groups of the output's name in place of \1 .. \9: group 0 of the user
 * is our group 1. */
static onq_code expand(const rule *r, oq_str name, const oq_regex_group *groups, oq_arena *a,
                       oq_str *out, onq_error *err) {
    oq_buf text;
    oq_buf_init(&text, a->alloc);
    for (size_t i = 0; i < r->in.n; i++) {
        const char c = r->in.p[i], next = i + 1 < r->in.n ? r->in.p[i + 1] : '\0';
        if (c != '\\' || next == '\0') {
            oq_buf_addc(&text, c);
            continue;
        }
        i++;
        if (next < '1' || next > '9') {
            oq_buf_addc(&text, next);
            continue;
        }
        const oq_regex_group *g = &groups[next - '0' + 1];
        if (g->start != SIZE_MAX)
            oq_buf_add(&text, name.p + g->start, g->end - g->start);
    }
    *out = oq_str_copy(a, (oq_str){text.p, text.n});
    const bool failed = text.failed || (out->p == NULL && text.n > 0);
    oq_buf_release(&text);
    return failed ? oq_fail_nomem(err) : ONQ_OK;
}

static onq_code fail_pair(const rule *r, const oq_io *out, const oq_io *in, oq_arena *a,
                          onq_error *err) {
    oq_buf gives, takes;
    oq_buf_init(&gives, a->alloc);
    oq_buf_init(&takes, a->alloc);
    oq_io_describe(out, &gives);
    oq_io_describe(in, &takes);
    onq_code rc =
        oq_fail(err, ONQ_E_OPTION, "--carry %.*s: output '%.*s' is %s, and input '%.*s' takes %s",
                OQ_STR(r->text), OQ_STR(out->name), gives.p != NULL ? gives.p : "?",
                OQ_STR(in->name), takes.p != NULL ? takes.p : "?");
    if (gives.failed || takes.failed)
        rc = oq_fail_nomem(err);
    oq_buf_release(&gives);
    oq_buf_release(&takes);
    return rc;
}

static onq_code add_match(const rule *r, oq_arena *a, const oq_ios *in, const oq_ios *out, size_t i,
                          oq_str name, oq_carry *c, onq_error *err) {
    const size_t to = find_name(in, name);
    if (to == SIZE_MAX)
        return oq_fail(err, ONQ_E_OPTION,
                       "--carry %.*s: output '%.*s' would go to '%.*s', which is not an input",
                       OQ_STR(r->text), OQ_STR(out->v[i].name), OQ_STR(name));
    const oq_carry_pair *other = into(c, to);
    if (other != NULL && other->out == i)
        return ONQ_OK;
    if (other != NULL)
        return oq_fail(err, ONQ_E_OPTION,
                       "--carry %.*s: outputs '%.*s' and '%.*s' would both go to input '%.*s'",
                       OQ_STR(r->text), OQ_STR(out->v[other->out].name), OQ_STR(out->v[i].name),
                       OQ_STR(name));
    if (!follows(&out->v[i], &in->v[to]))
        return fail_pair(r, &out->v[i], &in->v[to], a, err);
    c->v[c->n++] = (oq_carry_pair){i, to};
    return ONQ_OK;
}

static onq_code apply(const rule *r, oq_arena *a, const oq_ios *in, const oq_ios *out, oq_carry *c,
                      onq_error *err) {
    bool any = false;
    for (size_t i = 0; i < out->n; i++) {
        oq_regex_group groups[OQ_PATTERN_GROUPS];
        oq_str name;
        if (!oq_regex_match(r->out, out->v[i].name, groups))
            continue;
        any = true;
        OQ_TRY(expand(r, out->v[i].name, groups, a, &name, err));
        OQ_TRY(add_match(r, a, in, out, i, name, c, err));
    }
    return any ? ONQ_OK : fail_rule(r, "no output matches (onq inspect lists them)", err);
}

onq_code oq_carry_read(oq_arena *a, const oq_str *rules, size_t n, const oq_ios *in,
                       const oq_ios *out, oq_carry *c, onq_error *err) {
    OQ_TRY(init(c, a, in, err));
    for (size_t i = 0; i < n; i++) {
        rule r;
        OQ_TRY(read_rule(&r, a, rules[i], err));
        OQ_TRY(apply(&r, a, in, out, c, err));
    }
    return ONQ_OK;
}

/* ---- states ---- */

void oq_carry_mark_states(const oq_carry *c, const oq_ios *out, bool *states) {
    for (size_t i = 0; i < out->n; i++)
        states[i] = oq_str_starts(out->v[i].name, OQ_S("present")) &&
                    (oq_str_contains(out->v[i].name, OQ_S("key")) ||
                     oq_str_contains(out->v[i].name, OQ_S("value")) ||
                     oq_str_contains(out->v[i].name, OQ_S("present_")));
    for (size_t i = 0; i < c->n; i++)
        states[c->v[i].out] = true;
}
