/*
 * recipe.c — see recipe.h.
 */
#include "tune/recipe.h"

onq_code oq_recipe_add(oq_recipe *r, oq_arena *a, const char *name, const char *value,
                       onq_error *err) {
    return OQ_PUSH(a, &r->options, (oq_recipe_option){name, value}) ? ONQ_OK : oq_fail_nomem(err);
}

void oq_recipe_drop(oq_recipe *r, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < r->options.n; i++)
        if (strcmp(r->options.v[i].name, name) != 0)
            r->options.v[n++] = r->options.v[i];
    r->options.n = n;
}

onq_code oq_recipe_copy(const oq_recipe *from, oq_arena *a, oq_recipe *to, onq_error *err) {
    *to = (oq_recipe){.command = from->command,
                      .prepares = from->prepares,
                      .drops_shapes = from->drops_shapes,
                      .methods = from->methods,
                      .after = from->after};
    for (size_t i = 0; i < from->options.n; i++)
        OQ_TRY(oq_recipe_add(to, a, from->options.v[i].name, from->options.v[i].value, err));
    return ONQ_OK;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_command(const oq_recipe *a, const oq_recipe *b) {
    bool same = same_text(a->command, b->command) && a->options.n == b->options.n &&
                a->drops_shapes == b->drops_shapes;
    for (size_t i = 0; same && i < a->options.n; i++)
        same = same_text(a->options.v[i].name, b->options.v[i].name) &&
               same_text(a->options.v[i].value, b->options.v[i].value);
    return same;
}

bool oq_recipe_equal(const oq_recipe *a, const oq_recipe *b) {
    for (; a != NULL && b != NULL; a = a->after, b = b->after)
        if (!same_command(a, b))
            return false;
    return a == b;
}

bool oq_recipe_adds(const oq_recipe *a, const oq_recipe *b, const char *option) {
    bool same = b->after == a->after && b->options.n == a->options.n + 1 &&
                oq_recipe_get(b, option) != NULL;
    for (size_t i = 0; same && i < a->options.n; i++) {
        const char *name = a->options.v[i].name;
        const char *own = oq_recipe_get(b, name), *other = oq_recipe_get(a, name);
        assert(other != NULL);
        same = own != NULL && strcmp(own, other) == 0;
    }
    return same;
}

const char *oq_recipe_get(const oq_recipe *r, const char *name) {
    for (size_t i = 0; i < r->options.n; i++)
        if (strcmp(r->options.v[i].name, name) == 0)
            return r->options.v[i].value != NULL ? r->options.v[i].value : "";
    return NULL;
}

bool oq_recipe_has_method(const oq_recipe *r, oq_method m) {
    assert((size_t)m < OQ_METHODS);
    return (r->methods & UINT32_C(1) << m) != 0;
}

static const char *const way_names[OQ_WAYS] = {
    [OQ_WAY_FLOAT] = "float",         [OQ_WAY_STATIC] = "static",   [OQ_WAY_DYNAMIC] = "dynamic",
    [OQ_WAY_QOPERATOR] = "qoperator", [OQ_WAY_FLOAT16] = "float16", [OQ_WAY_NBITS] = "nbits"};

const char *oq_way_name(oq_way way) {
    assert((size_t)way < OQ_WAYS);
    return way_names[way];
}

oq_way oq_recipe_way(const oq_recipe *r) {
    if (oq_recipe_get(r, "float16") != NULL)
        return OQ_WAY_FLOAT16;
    if (oq_recipe_get(r, "quant_format") != NULL)
        return OQ_WAY_QOPERATOR;
    for (oq_way way = OQ_WAY_FLOAT; way < OQ_WAYS; way++)
        if (same_text(r->command, way_names[way]))
            return way;
    return OQ_WAY_FLOAT;
}

void oq_recipe_text(const oq_recipe *r, const char *input, const char *output, oq_buf *out) {
    oq_buf_addf(out, "onq %s -i ", r->command);
    oq_buf_add_exact_word(out, oq_str_of(input));
    oq_buf_adds(out, " -o ");
    oq_buf_add_exact_word(out, oq_str_of(output));
    for (size_t i = 0; i < r->options.n; i++) {
        oq_buf_addf(out, " --%s", r->options.v[i].name);
        if (r->options.v[i].value == NULL)
            continue;
        oq_buf_addc(out, ' ');
        oq_buf_add_exact_word(out, oq_str_of(r->options.v[i].value));
    }
    if (r->drops_shapes)
        oq_buf_adds(out, " --drop_shapes");
}

bool oq_recipe_calibrates(const oq_recipe *r) {
    for (; r != NULL; r = r->after)
        if (oq_recipe_get(r, "data") != NULL || same_text(r->command, "static"))
            return true;
    return false;
}

void oq_recipe_json(const oq_recipe *r, oq_jw *w, const char *key) {
    oq_jw_begin_object(w, key);
    oq_jw_cstr(w, "command", r->command != NULL && !r->prepares ? r->command : "float");
    for (size_t i = 0; i < r->options.n; i++) {
        const oq_recipe_option *o = &r->options.v[i];
        oq_jw_key(w, oq_str_of(o->name));
        if (o->value == NULL)
            oq_jw_bool(w, NULL, true);
        else
            oq_jw_cstr(w, NULL, o->value);
    }
    if (r->drops_shapes)
        oq_jw_bool(w, "drop_shapes", true);
    if (r->after != NULL && !r->after->prepares)
        oq_recipe_json(r->after, w, "after");
    oq_jw_end_object(w);
}
