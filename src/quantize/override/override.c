/*
 * override.c — reading and checking TensorQuantOverrides.
 */
#include "quantize/override/override.h"

#include "base/system/file.h"
#include "base/text/literal.h"

void oq_overrides_init(oq_overrides *o, oq_arena *arena) {
    *o = (oq_overrides){.arena = arena};
    oq_map_init(&o->map, arena);
}

oq_tensor_override *oq_overrides_find(const oq_overrides *o, oq_str tensor) {
    const uint32_t i = o != NULL ? oq_map_find(&o->map, tensor) : OQ_MAP_NONE;
    return i == OQ_MAP_NONE ? NULL : o->all.v[i];
}

const oq_override *oq_overrides_tensor(const oq_overrides *o, oq_str tensor) {
    const oq_tensor_override *t = oq_overrides_find(o, tensor);
    return t != NULL && !t->channels.v[0].has_axis ? &t->channels.v[0] : NULL;
}

static oq_override empty(void) {
    return (oq_override){.symmetric = OQ_UNSET, .reduce_range = OQ_UNSET};
}

static oq_tensor_override *add_tensor(oq_overrides *o, oq_str tensor) {
    oq_tensor_override *t = OQ_NEW(o->arena, oq_tensor_override);
    if (t == NULL)
        return NULL;
    t->name = oq_str_copy(o->arena, tensor);
    if (t->name.p == NULL || !oq_map_put(&o->map, t->name, (uint32_t)o->all.n) ||
        !OQ_PUSH(o->arena, &o->all, t))
        return NULL;
    return t;
}

oq_tensor_override *oq_overrides_add(oq_overrides *o, oq_str tensor) {
    oq_tensor_override *t = oq_overrides_find(o, tensor);
    if (t != NULL)
        return t;
    t = add_tensor(o, tensor);
    return t != NULL && OQ_PUSH(o->arena, &t->channels, empty()) ? t : NULL;
}

bool oq_override_uses_type(const oq_tensor_override *t, bool (*fn)(oq_dtype)) {
    for (size_t k = 0; t != NULL && k < t->channels.n; k++) {
        const oq_override *v = &t->channels.v[k];
        if ((v->has_type && fn(v->type)) ||
            (v->convert != NULL && v->convert->has_type && fn(v->convert->type)))
            return true;
    }
    return false;
}

bool oq_overrides_any_type(const oq_overrides *o, bool (*fn)(oq_dtype)) {
    for (size_t i = 0; o != NULL && i < o->all.n; i++)
        if (oq_override_uses_type(o->all.v[i], fn))
            return true;
    return false;
}

bool oq_overrides_any_blocks(const oq_overrides *o) {
    for (size_t i = 0; o != NULL && i < o->all.n; i++)
        if (o->all.v[i]->blocks != NULL)
            return true;
    return false;
}

/* ---- reading */

static onq_code get_real(const json_t *v, const char *key, double *out, onq_error *err) {
    if (!oq_json_real(v, out))
        return oq_fail(err, ONQ_E_CONFIG, "'%s' is not a number", key);
    if (!isfinite(*out))
        return oq_fail(err, ONQ_E_CONFIG, "'%s' is %g, which is not finite", key, *out);
    return ONQ_OK;
}

static onq_code get_int(const json_t *v, const char *key, int64_t *out, onq_error *err) {
    if (json_is_integer(v)) {
        *out = (int64_t)json_integer_value(v);
        return ONQ_OK;
    }
    const double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (d != rint(d) || fabs(d) > 9.0e15)
        return oq_fail(err, ONQ_E_CONFIG, "'%s' is not a whole number", key);
    *out = (int64_t)d;
    return ONQ_OK;
}

static onq_code get_flag(const json_t *v, const char *key, oq_tri *out, onq_error *err) {
    if (!json_is_boolean(v))
        return oq_fail(err, ONQ_E_CONFIG, "'%s' is not true or false", key);
    *out = json_is_true(v) ? OQ_YES : OQ_NO;
    return ONQ_OK;
}

static onq_code get_scale(const json_t *v, oq_override *out, onq_error *err) {
    double d = 0.0;
    OQ_TRY(get_real(v, "scale", &d, err));
    out->scale = (float)d;
    out->has_scale = true;
    if (!(d > 0.0) || !isfinite(out->scale) || out->scale <= 0.0f)
        return oq_fail(err, ONQ_E_CONFIG, "scale %g is not a positive float", d);
    return ONQ_OK;
}

static onq_code get_type(const json_t *v, oq_override *out, onq_error *err) {
    const oq_str name =
        json_is_string(v) ? (oq_str){json_string_value(v), json_string_length(v)} : OQ_S("");
    out->has_type = true;
    if (!json_is_string(v))
        return oq_fail(err, ONQ_E_CONFIG, "'quant_type' is not a text (one of: %s)",
                       oq_qtype_names());
    if (!oq_qtype_parse(name, &out->type))
        return oq_fail(err, ONQ_E_CONFIG, "quant_type '%.*s' is not one of: %s", OQ_STR(name),
                       oq_qtype_names());
    return ONQ_OK;
}

static onq_code get_nodes(oq_overrides *o, const json_t *v, oq_override *out, onq_error *err) {
    out->has_recv = true;
    if (!json_is_array(v))
        return oq_fail(err, ONQ_E_CONFIG, "'recv_nodes' is not a list of node names");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *name = json_array_get(v, i);
        if (!json_is_string(name))
            return oq_fail(err, ONQ_E_CONFIG, "'recv_nodes' is not a list of node names");
        const oq_str text = {json_string_value(name), json_string_length(name)};
        OQ_TRY_ALLOC(OQ_PUSH(o->arena, &out->recv_nodes, oq_str_copy(o->arena, text)), err);
    }
    return ONQ_OK;
}

static onq_code read_keys(oq_overrides *o, json_t *d, bool in_convert, oq_override *out,
                          onq_error *err);

static onq_code read_key(oq_overrides *o, const char *key, json_t *v, bool in_convert,
                         oq_override *out, onq_error *err) {
    if (strcmp(key, "scale") == 0)
        return get_scale(v, out, err);
    if (strcmp(key, "zero_point") == 0) {
        out->has_zero = true;
        return get_int(v, key, &out->zero, err);
    }
    if (strcmp(key, "quant_type") == 0)
        return get_type(v, out, err);
    if (strcmp(key, "symmetric") == 0)
        return get_flag(v, key, &out->symmetric, err);
    if (strcmp(key, "reduce_range") == 0)
        return get_flag(v, key, &out->reduce_range, err);
    if (strcmp(key, "rmin") == 0) {
        out->has_rmin = true;
        return get_real(v, key, &out->rmin, err);
    }
    if (strcmp(key, "rmax") == 0) {
        out->has_rmax = true;
        return get_real(v, key, &out->rmax, err);
    }
    if (strcmp(key, "axis") == 0 && !in_convert) {
        out->has_axis = true;
        return get_int(v, key, &out->axis, err);
    }
    if (strcmp(key, "recv_nodes") == 0 && in_convert)
        return get_nodes(o, v, out, err);
    if (strcmp(key, "convert") == 0 && !in_convert) {
        out->convert = OQ_NEW(o->arena, oq_override);
        OQ_TRY_ALLOC(out->convert != NULL, err);
        const onq_code rc = read_keys(o, v, true, out->convert, err);
        return rc == ONQ_OK ? rc : oq_error_in(err, rc, "convert");
    }
    return oq_fail(err, ONQ_E_CONFIG,
                   "key '%s' is unknown%s (known: scale, zero_point, quant_type, symmetric, "
                   "reduce_range, rmin, rmax, axis, convert)",
                   key, in_convert ? " in convert" : "");
}

/* Which keys go together is judged before any value, in the words of the reference.
 * get_qnn_qdq_config leaves `symmetric` with the parameters that it fixes: together with a
 * quant_type it is taken, and has no say. */
static onq_code check_keys(const json_t *d, onq_error *err) {
    static const char *const not_with_params[] = {"symmetric", "reduce_range", "rmax", "rmin"};
    const bool scale = json_object_get(d, "scale") != NULL;
    const bool zero = json_object_get(d, "zero_point") != NULL;
    char found[64] = "";
    size_t n = 0;
    if (scale != zero)
        return oq_fail(err, ONQ_E_CONFIG,
                       "Must provide both 'scale' and 'zero_point' if one of them is provided "
                       "('%s' is missing)",
                       scale ? "zero_point" : "scale");
    for (size_t i = json_object_get(d, "quant_type") != NULL ? 1 : 0;
         scale && i < OQ_COUNT(not_with_params); i++)
        if (json_object_get(d, not_with_params[i]) != NULL)
            n += (size_t)snprintf(found + n, sizeof found - n, "%s%s", n > 0 ? ", " : "",
                                  not_with_params[i]);
    return n == 0 ? ONQ_OK
                  : oq_fail(err, ONQ_E_CONFIG,
                            "override option(s) [%s] are invalid with 'scale' and 'zero_point'",
                            found);
}

/* One dictionary: `convert` nests once, so this calls itself at most once. */
static onq_code read_keys(oq_overrides *o, json_t *d, bool in_convert, oq_override *out,
                          onq_error *err) {
    const char *key;
    json_t *v;
    *out = empty();
    if (!json_is_object(d))
        return oq_fail(err, ONQ_E_CONFIG, "every item must be a dictionary");
    OQ_TRY(check_keys(d, err));
    json_object_foreach(d, key, v) OQ_TRY(read_key(o, key, v, in_convert, out, err));
    if (out->has_rmin && out->has_rmax && out->rmin > out->rmax)
        return oq_fail(err, ONQ_E_CONFIG, "rmin %g is above rmax %g", out->rmin, out->rmax);
    return ONQ_OK;
}

static onq_code read_tensor(oq_overrides *o, oq_str name, json_t *list, onq_error *err) {
    oq_override one;
    if (json_is_array(list) && json_array_size(list) == 0)
        return ONQ_OK; /* nothing said */
    oq_tensor_override *t = add_tensor(o, name);
    OQ_TRY_ALLOC(t != NULL, err);
    if (json_is_object(list)) {
        OQ_TRY(read_keys(o, list, false, &one, err));
        return OQ_PUSH(o->arena, &t->channels, one) ? ONQ_OK : oq_fail_nomem(err);
    }
    if (!json_is_array(list))
        return oq_fail(err, ONQ_E_CONFIG, "its value must be a list of dictionaries");
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const onq_code rc = read_keys(o, json_array_get(list, i), false, &one, err);
        if (rc != ONQ_OK)
            return n == 1 ? rc : oq_error_in(err, rc, "channel %zu", i);
        OQ_TRY_ALLOC(OQ_PUSH(o->arena, &t->channels, one), err);
    }
    return ONQ_OK;
}

onq_code oq_overrides_parse(oq_overrides *o, const char *where, const json_t *root,
                            onq_error *err) {
    if (!json_is_object(root))
        return oq_fail(err, ONQ_E_CONFIG, "%s: it must be a dictionary of tensors", where);
    /* jansson iterates a non-const object, and changes nothing. */
    json_t *all = json_incref((json_t *)(uintptr_t)root);
    onq_code rc = ONQ_OK;
    for (void *it = json_object_iter(all); it != NULL && rc == ONQ_OK;
         it = json_object_iter_next(all, it)) {
        const oq_str name = oq_str_of(json_object_iter_key(it));
        rc = read_tensor(o, name, json_object_iter_value(it), err);
        if (rc != ONQ_OK)
            oq_error_in(err, rc, "%s: tensor '%.*s'", where, OQ_STR(name));
    }
    json_decref(all);
    return rc;
}

static onq_code read_text(oq_overrides *o, const onq_allocator *alloc, const char *where,
                          oq_str text, onq_error *err) {
    json_t *root = NULL;
    OQ_SCRATCH_BUF(quoted, alloc);
    onq_code rc = oq_json_quote_words(&quoted, text, err);
    if (rc == ONQ_OK)
        rc = oq_json_parse(where, (oq_str){quoted.p, quoted.n}, &root, err);
    if (rc == ONQ_OK)
        rc = oq_overrides_parse(o, where, root, err);
    json_decref(root);
    return rc;
}

static bool is_text(const char *path) {
    return path[strspn(path, " \t\r\n")] == '{';
}

const char *oq_overrides_name(const char *path) {
    return is_text(path) ? "TensorQuantOverrides" : path;
}

onq_code oq_overrides_load(oq_overrides *o, const onq_allocator *alloc, const char *path,
                           onq_error *err) {
    oq_str text = {0};
    OQ_SCRATCH(arena, alloc);
    OQ_SCRATCH_BUF(json, alloc);
    if (is_text(path)) {
        OQ_TRY(oq_literal_json(&json, oq_str_of(path), err));
        text = (oq_str){json.p, json.n};
    } else {
        OQ_TRY(oq_file_read_all(&arena, path, OQ_MAX_JSON, &text, err));
    }
    return read_text(o, alloc, oq_overrides_name(path), text, err);
}

bool oq_override_any_range(const oq_tensor_override *t) {
    for (size_t i = 0; i < t->channels.n; i++)
        if (t->channels.v[i].has_rmin || t->channels.v[i].has_rmax)
            return true;
    return false;
}
