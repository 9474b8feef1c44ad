/*
 * pattern.c — see pattern.h.
 *
 * An expression becomes a small program of states; all states that a text can have reached are kept
 * side by side, best first, and each takes a character at a time (Thompson, Pike). So nothing is
 * ever tried twice.
 */
#include "base/text/pattern.h"

#include <ctype.h>

enum {
    MAX_DEPTH = 64,
    MAX_STATES = 8000,
    MAX_TIMES = 4000,
    LONGEST_MATCHED = 1024,
    PLACES = 2 * OQ_PATTERN_GROUPS,
};

enum kind {
    SET,   /* one byte of a set */
    SPLIT, /* to `next` or, less well, to `other` */
    GO,    /* to `next` */
    PLACE, /* notes the place as number `other` */
    TEST,  /* goes on where a condition holds: `other` */
    FOUND,
};

/* Conditions between two characters, by the letter that GNU gives them after a backslash. */
enum {
    AT_START = '^',
    AT_END = '$',
    AT_EDGE = 'b',
    AT_INSIDE = 'B',
    AT_BEGIN = '<',
    AT_FINISH = '>'
};

typedef struct state {
    uint8_t kind;
    uint16_t next, other; /* SET: `other` is the number of the set */
} state;

typedef struct byte_set {
    uint64_t bits[4];
} byte_set;

/* States that were reached, best first, and the places that each has noted. */
typedef struct reached {
    uint16_t *list;
    uint16_t (*places)[PLACES]; /* of each state; LONGEST_MATCHED + 1: none */
    size_t n;
} reached;

/* A state to be reached, or a place to be put back to what it was. */
typedef struct waiting {
    uint16_t state, place, was; /* place PLACES: a state */
} waiting;

struct oq_regex {
    state *states;
    byte_set *sets;
    size_t n_states, n_sets, n_groups;
    reached now, then;
    uint16_t *seen_at; /* when a state was reached last */
    waiting *stack;
};

/* ---- compiling ---- */

static const char TOO_MANY[] = "its repetitions are too many";

typedef struct parser {
    const char *p;
    oq_regex *re;
    unsigned depth;
    const char *wrong;
} parser;

static bool fail(parser *s, const char *why) {
    if (s->wrong == NULL)
        s->wrong = why;
    return false;
}

static uint16_t emit(parser *s, enum kind kind, size_t other) {
    oq_regex *re = s->re;
    if (re->n_states == MAX_STATES) {
        fail(s, TOO_MANY);
        return 0;
    }
    re->states[re->n_states] =
        (state){(uint8_t)kind, (uint16_t)(re->n_states + 1), (uint16_t)other};
    return (uint16_t)re->n_states++;
}

static void add_byte(byte_set *set, unsigned char c) {
    set->bits[c >> 6] |= (uint64_t)1 << (c & 63);
}

static bool has_byte(const byte_set *set, unsigned char c) {
    return (set->bits[c >> 6] >> (c & 63) & 1) != 0;
}

static void emit_set(parser *s, byte_set set, bool others) {
    for (size_t i = 0; others && i < OQ_COUNT(set.bits); i++)
        set.bits[i] = ~set.bits[i];
    oq_regex *re = s->re;
    if (re->n_sets == MAX_STATES) {
        fail(s, TOO_MANY);
        return;
    }
    re->sets[re->n_sets] = set;
    emit(s, SET, re->n_sets++);
}

static bool is_word(unsigned char c) {
    return c < 128 && (isalnum(c) || c == '_');
}

/* [:NAME:] */
static bool add_class(byte_set *set, oq_str name) {
    static const struct {
        const char *name;
        int (*has)(int);
    } classes[] = {{"alpha", isalpha}, {"digit", isdigit}, {"alnum", isalnum},
                   {"upper", isupper}, {"lower", islower}, {"space", isspace},
                   {"blank", isblank}, {"punct", ispunct}, {"print", isprint},
                   {"graph", isgraph}, {"cntrl", iscntrl}, {"xdigit", isxdigit}};
    for (size_t i = 0; i < OQ_COUNT(classes); i++)
        if (oq_str_is(name, classes[i].name)) {
            for (int c = 1; c < 128; c++)
                if (classes[i].has(c))
                    add_byte(set, (unsigned char)c);
            return true;
        }
    return false;
}

/* One end of a range, or one character: "x" or "[.x.]". */
static bool bracket_char(parser *s, unsigned char *c) {
    if (s->p[0] == '[' && s->p[1] == '.') {
        if (s->p[2] == '\0' || s->p[3] != '.' || s->p[4] != ']')
            return fail(s, "its brackets name a character that is not known");
        *c = (unsigned char)s->p[2];
        s->p += 5;
        return true;
    }
    if (*s->p == '\0')
        return fail(s, "a bracket [ is not closed");
    *c = (unsigned char)*s->p++;
    return true;
}

/* "[:alpha:]" or "[=x=]" inside of brackets; false when there is none or it is wrong. */
static bool bracket_class(parser *s, byte_set *set) {
    const char mark = s->p[0] == '[' ? s->p[1] : '\0';
    if (mark != ':' && mark != '=')
        return false;
    const char close[] = {mark, ']', '\0'}, *end = strstr(s->p + 2, close);
    const oq_str name = {s->p + 2, end != NULL ? (size_t)(end - s->p - 2) : 0};
    if (end == NULL)
        return fail(s, "a bracket [ is not closed");
    if (mark == '=' && name.n == 1)
        add_byte(set, (unsigned char)name.p[0]);
    else if (mark == '=' || !add_class(set, name))
        return fail(s, "its brackets name a class that is not known");
    s->p = end + 2;
    return true;
}

static void bracket(parser *s) {
    byte_set set = {0};
    const bool others = *s->p == '^';
    s->p += others;
    for (bool first = true; s->wrong == NULL && (first || *s->p != ']'); first = false) {
        unsigned char from, to;
        if (bracket_class(s, &set) || s->wrong != NULL || !bracket_char(s, &from))
            continue;
        to = from;
        if (s->p[0] == '-' && s->p[1] != ']') {
            s->p++;
            if (!bracket_char(s, &to))
                return;
        }
        if (to < from)
            fail(s, "a range ends before it begins");
        for (unsigned c = from; c <= to; c++)
            add_byte(&set, (unsigned char)c);
    }
    if (s->wrong != NULL)
        return;
    s->p++;
    emit_set(s, set, others);
}

static void escape(parser *s) {
    const char c = *s->p++;
    byte_set set = {0};
    if (c == '\0') {
        s->p--;
        fail(s, "it ends with a backslash");
    } else if (c >= '1' && c <= '9') {
        fail(s, "back-references are not for patterns");
    } else if (strchr("bB<>", c) != NULL) {
        emit(s, TEST, (size_t)c);
    } else if (c == '`' || c == '\'') {
        emit(s, TEST, c == '`' ? AT_START : AT_END);
    } else if (strchr("wWsS", c) != NULL) {
        for (unsigned i = 1; i < 128; i++)
            if (tolower(c) == 'w' ? is_word((unsigned char)i) : isspace((int)i) != 0)
                add_byte(&set, (unsigned char)i);
        emit_set(s, set, c == 'W' || c == 'S');
    } else {
        add_byte(&set, (unsigned char)c);
        emit_set(s, set, false);
    }
}

static void alternatives(parser *s);

static void group(parser *s) {
    const size_t number = ++s->re->n_groups;
    if (++s->depth > MAX_DEPTH) {
        fail(s, "groups are too deep");
        return;
    }
    if (number < OQ_PATTERN_GROUPS)
        emit(s, PLACE, 2 * number);
    alternatives(s);
    if (s->wrong == NULL && *s->p != ')')
        fail(s, "a parenthesis ( is not closed");
    if (s->wrong != NULL)
        return;
    s->p++;
    s->depth--;
    if (number < OQ_PATTERN_GROUPS)
        emit(s, PLACE, 2 * number + 1);
}

/* One thing that may be repeated. False for a condition, which may not. */
static bool atom(parser *s) {
    const char c = *s->p++;
    byte_set set = {0};
    switch (c) {
    case '(':
        group(s);
        return true;
    case '[':
        bracket(s);
        return true;
    case '.':
        emit_set(s, set, true);
        return true;
    case '\\': {
        const bool condition = *s->p != '\0' && strchr("bB<>`'", *s->p) != NULL;
        escape(s);
        return !condition;
    }
    case '^':
    case '$':
        emit(s, TEST, (size_t)c);
        return false;
    case '*':
    case '+':
    case '?':
    case '{':
        fail(s, "there is nothing before an operator of repetition");
        return false;
    default:
        add_byte(&set, (unsigned char)c);
        emit_set(s, set, false);
        return true;
    }
}

static bool number(parser *s, size_t *out) {
    size_t n = 0;
    if (!isdigit((unsigned char)*s->p))
        return false;
    for (; isdigit((unsigned char)*s->p); s->p++)
        n = n > MAX_TIMES ? n : n * 10 + (size_t)(*s->p - '0');
    *out = n;
    return true;
}

/* "{m}", "{m,}", "{,n}" or "{m,n}"; *most is SIZE_MAX when there is no end. */
static void counts(parser *s, size_t *least, size_t *most) {
    const bool begins = number(s, least);
    *most = *least;
    if (*s->p == ',') {
        s->p++;
        if (!number(s, most))
            *most = SIZE_MAX;
        if (!begins)
            *least = 0;
        if (!begins && *most == SIZE_MAX)
            fail(s, "braces {} hold no number");
    } else if (!begins) {
        fail(s, "braces {} hold no number");
    }
    if (*s->p != '}')
        fail(s, "braces {} are not closed");
    else
        s->p++;
    if (*most < *least)
        fail(s, "braces {} end with fewer times than they begin with");
    if (*least > MAX_TIMES || (*most != SIZE_MAX && *most > MAX_TIMES))
        fail(s, TOO_MANY);
}

/* A copy of the states [from, to) at the end. */
static void copy(parser *s, size_t from, size_t to) {
    const size_t by = s->re->n_states - from;
    for (size_t i = from; i < to && s->wrong == NULL; i++) {
        const state *was = &s->re->states[i];
        const uint16_t at = emit(s, (enum kind)was->kind, was->other);
        s->re->states[at].next = (uint16_t)(was->next + by);
        if (was->kind == SPLIT)
            s->re->states[at].other = (uint16_t)(was->other + by);
    }
}

/* Puts a state before `from`: what is there moves on by one. */
static void insert(parser *s, size_t from, enum kind kind) {
    oq_regex *re = s->re;
    emit(s, kind, 0);
    if (s->wrong != NULL)
        return;
    memmove(&re->states[from + 1], &re->states[from], (re->n_states - 1 - from) * sizeof(state));
    re->states[from] = (state){(uint8_t)kind, (uint16_t)(from + 1), 0};
    for (size_t i = from + 1; i < re->n_states; i++) {
        re->states[i].next++;
        if (re->states[i].kind == SPLIT)
            re->states[i].other++;
    }
}

/* The states [from, end) once or not at all; `again`: any number of times. */
static void make_optional(parser *s, size_t from, bool again) {
    insert(s, from, SPLIT);
    if (again) {
        const uint16_t back = emit(s, GO, 0);
        s->re->states[back].next = (uint16_t)from;
    }
    if (s->wrong == NULL)
        s->re->states[from].other = (uint16_t)s->re->n_states;
}

static void repeat(parser *s, size_t from, size_t least, size_t most) {
    oq_regex *re = s->re;
    const size_t once = re->n_states - from;
    const size_t times = most != SIZE_MAX ? most : least > 0 ? least : 1;
    if (most == 0) { /* never: the states stay, and nothing leads to them */
        insert(s, from, GO);
        if (s->wrong == NULL)
            re->states[from].next = (uint16_t)re->n_states;
        return;
    }
    if (once * times > MAX_STATES) {
        fail(s, TOO_MANY);
        return;
    }
    for (size_t i = 1; i < times && s->wrong == NULL; i++)
        copy(s, from, from + once);
    if (most == SIZE_MAX && least > 0) { /* the last one again and again */
        const uint16_t back = emit(s, SPLIT, re->n_states + 1);
        re->states[back].next = (uint16_t)(from + (least - 1) * once);
        return;
    }
    /* From the last to the first: each holds those after it. */
    for (size_t i = times; i-- > least && s->wrong == NULL;)
        make_optional(s, from + i * once, most == SIZE_MAX);
}

static void branch(parser *s) {
    while (s->wrong == NULL && *s->p != '\0' && *s->p != '|' && (*s->p != ')' || s->depth == 0)) {
        const size_t from = s->re->n_states;
        if (!atom(s))
            continue;
        while (s->wrong == NULL && *s->p != '\0' && strchr("*+?{", *s->p) != NULL) {
            const char c = *s->p++;
            size_t least = c == '+', most = c == '?' ? 1 : SIZE_MAX;
            if (c == '{')
                counts(s, &least, &most);
            if (s->wrong == NULL)
                repeat(s, from, least, most);
        }
    }
}

static void alternatives(parser *s) {
    size_t from = s->re->n_states;
    branch(s);
    if (s->wrong != NULL || *s->p != '|')
        return;
    s->p++;
    insert(s, from, SPLIT);
    const uint16_t out = emit(s, GO, 0);
    if (s->wrong != NULL)
        return;
    s->re->states[from].other = (uint16_t)s->re->n_states;
    alternatives(s);
    if (s->wrong == NULL)
        s->re->states[out].next = (uint16_t)s->re->n_states;
}

static onq_code make_room(oq_arena *a, const oq_regex *re, reached *r, onq_error *err) {
    r->list = OQ_NEW_ARRAY(a, uint16_t, re->n_states);
    r->places = oq_arena_alloc(a, re->n_states * sizeof *r->places);
    OQ_TRY_ALLOC(r->list != NULL && r->places != NULL, err);
    return ONQ_OK;
}

onq_code oq_regex_compile(oq_arena *a, const char *text, oq_regex **out, onq_error *err) {
    state states[MAX_STATES];
    const size_t n = strlen(text) + 1;
    oq_regex *re = OQ_NEW(a, oq_regex);
    OQ_TRY_ALLOC(re != NULL, err);
    *re = (oq_regex){.states = states};
    re->sets = OQ_NEW_ARRAY(a, byte_set, n < MAX_STATES ? n : MAX_STATES);
    OQ_TRY_ALLOC(re->sets != NULL, err);
    parser s = {.p = text, .re = re};
    alternatives(&s);
    emit(&s, FOUND, 0);
    if (s.wrong != NULL)
        return oq_fail(err, ONQ_E_OPTION, "%s", s.wrong);
    re->states = OQ_NEW_ARRAY(a, state, re->n_states);
    re->seen_at = OQ_NEW_ARRAY(a, uint16_t, re->n_states);
    re->stack = OQ_NEW_ARRAY(a, waiting, 2 * re->n_states + 2);
    OQ_TRY_ALLOC(re->states != NULL && re->seen_at != NULL && re->stack != NULL, err);
    memcpy(re->states, states, re->n_states * sizeof *states);
    OQ_TRY(make_room(a, re, &re->now, err));
    OQ_TRY(make_room(a, re, &re->then, err));
    *out = re;
    return ONQ_OK;
}

/* ---- matching ---- */

typedef struct text {
    const unsigned char *p;
    size_t n;
} text;

static bool holds(unsigned test, text t, size_t at) {
    const bool before = at > 0 && is_word(t.p[at - 1]), after = at < t.n && is_word(t.p[at]);
    switch (test) {
    case AT_START:
        return at == 0;
    case AT_END:
        return at == t.n;
    case AT_EDGE:
        return before != after;
    case AT_INSIDE:
        return before == after;
    case AT_BEGIN:
        return !before && after;
    default:
        return before && !after;
    }
}

/* Adds a state, and those that it leads to without a character, in the order of their worth.
 * `places` are what led there; it is the same again afterwards. */
static void reach(oq_regex *re, reached *r, size_t start, text t, size_t at,
                  uint16_t places[PLACES]) {
    waiting *stack = re->stack;
    size_t n = 0;
    stack[n++] = (waiting){(uint16_t)start, PLACES, 0};
    while (n > 0) {
        const waiting w = stack[--n];
        if (w.place < PLACES) {
            places[w.place] = w.was;
            continue;
        }
        if (re->seen_at[w.state] == at + 1)
            continue;
        re->seen_at[w.state] = (uint16_t)(at + 1);
        const state *s = &re->states[w.state];
        if (s->kind == SET || s->kind == FOUND) {
            r->list[r->n++] = w.state;
            memcpy(r->places[w.state], places, sizeof r->places[0]);
        } else if (s->kind != TEST || holds(s->other, t, at)) {
            if (s->kind == SPLIT)
                stack[n++] = (waiting){s->other, PLACES, 0};
            if (s->kind == PLACE) {
                stack[n++] = (waiting){0, s->other, places[s->other]};
                places[s->other] = (uint16_t)at;
            }
            stack[n++] = (waiting){s->next, PLACES, 0};
        }
    }
}

/* Takes the character at `at`. True if a match has ended before it, with its places in `found`. */
static bool take(oq_regex *re, text t, size_t at, uint16_t found[PLACES]) {
    re->then.n = 0;
    for (size_t i = 0; i < re->now.n; i++) {
        const state *s = &re->states[re->now.list[i]];
        uint16_t *places = re->now.places[re->now.list[i]];
        if (s->kind == FOUND) {
            memcpy(found, places, sizeof re->now.places[0]);
            found[1] = (uint16_t)at;
            return true; /* what comes after it in the list is worth less */
        }
        if (at < t.n && has_byte(&re->sets[s->other], t.p[at]))
            reach(re, &re->then, s->next, t, at + 1, places);
    }
    return false;
}

bool oq_regex_match(oq_regex *re, oq_str name, oq_regex_group groups[OQ_PATTERN_GROUPS]) {
    enum { NONE = LONGEST_MATCHED + 1 };
    const char *end = name.n > 0 ? memchr(name.p, '\0', name.n) : NULL;
    const text t = {(const unsigned char *)name.p, end != NULL ? (size_t)(end - name.p) : name.n};
    uint16_t places[PLACES], found[PLACES];
    bool any = false;
    if (name.n > LONGEST_MATCHED)
        return false;
    memset(re->seen_at, 0, re->n_states * sizeof *re->seen_at);
    re->now.n = 0;
    for (size_t at = 0; at <= t.n; at++) {
        if (!any) {
            for (size_t i = 0; i < PLACES; i++)
                places[i] = NONE;
            places[0] = (uint16_t)at;
            reach(re, &re->now, 0, t, at, places);
        }
        any |= take(re, t, at, found);
        const reached was = re->now;
        re->now = re->then;
        re->then = was;
        if (any && (groups == NULL || re->now.n == 0))
            break;
    }
    for (size_t i = 0; any && groups != NULL && i < OQ_PATTERN_GROUPS; i++) {
        const bool there = found[2 * i] != NONE && found[2 * i + 1] != NONE;
        groups[i] = (oq_regex_group){there ? found[2 * i] : SIZE_MAX, there ? found[2 * i + 1] : 0};
    }
    return any;
}
