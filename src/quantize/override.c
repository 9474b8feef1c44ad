/*
 * override.c — reading and checking TensorQuantOverrides.
 */
#include "quantize/override.h"

#include "base/file.h"
#include "base/literal.h"

#include <math.h>
#include <stdio.h>

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

bool oq_overrides_any_type(const oq_overrides *o, bool (*fn)(oq_dtype)) {
    for (size_t i = 0; o != NULL && i < o->all.n; i++) {
        for (size_t k = 0; k < o->all.v[i]->channels.n; k++) {
            const oq_override *v = &o->all.v[i]->channels.v[k];
            if ((v->has_type && fn(v->type)) ||
                (v->convert != NULL && v->convert->has_type && fn(v->convert->type)))
                return true;
        }
    }
    return false;
}

/* ---- reading ---- */

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
        return oq_fail(err, ONQ_E_CONFIG, "quant_type '%.*s' is none of: %s", OQ_STR(name),
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
        if (!OQ_PUSH(o->arena, &out->recv_nodes, oq_str_copy(o->arena, text)))
            return oq_fail_nomem(err);
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
        if (out->convert == NULL)
            return oq_fail_nomem(err);
        const onq_code rc = read_keys(o, v, true, out->convert, err);
        return rc == ONQ_OK ? rc : oq_error_in(err, rc, "convert");
    }
    return oq_fail(err, ONQ_E_CONFIG,
                   "key '%s' is unknown%s (known: scale, zero_point, quant_type, symmetric, "
                   "reduce_range, rmin, rmax, axis, convert)",
                   key, in_convert ? " in convert" : "");
}

/* Which keys go together is judged before any value, in the words of the reference.
 * get_qnn_qdq_config leaves `symmetric` beside the parameters that it fixes: together with a
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
        return oq_fail(err, ONQ_E_CONFIG, "a dictionary is wanted");
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
    if (t == NULL)
        return oq_fail_nomem(err);
    if (json_is_object(list)) {
        OQ_TRY(read_keys(o, list, false, &one, err));
        return OQ_PUSH(o->arena, &t->channels, one) ? ONQ_OK : oq_fail_nomem(err);
    }
    if (!json_is_array(list))
        return oq_fail(err, ONQ_E_CONFIG, "a list of dictionaries is wanted");
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const onq_code rc = read_keys(o, json_array_get(list, i), false, &one, err);
        if (rc != ONQ_OK)
            return n == 1 ? rc : oq_error_in(err, rc, "channel %zu", i);
        if (!OQ_PUSH(o->arena, &t->channels, one))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_overrides_parse(oq_overrides *o, const char *where, const json_t *root,
                            onq_error *err) {
    if (!json_is_object(root))
        return oq_fail(err, ONQ_E_CONFIG, "%s: a dictionary of tensors is wanted", where);
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
    oq_buf quoted;
    oq_buf_init(&quoted, alloc);
    onq_code rc = oq_json_quote_words(&quoted, text, err);
    if (rc == ONQ_OK)
        rc = oq_json_parse(where, (oq_str){quoted.p, quoted.n}, &root, err);
    if (rc == ONQ_OK)
        rc = oq_overrides_parse(o, where, root, err);
    json_decref(root);
    oq_buf_release(&quoted);
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
    oq_arena arena;
    oq_buf json;
    oq_str text = {0};
    oq_arena_init(&arena, alloc);
    oq_buf_init(&json, alloc);
    onq_code rc;
    if (is_text(path)) {
        rc = oq_literal_json(&json, oq_str_of(path), err);
        text = (oq_str){json.p, json.n};
    } else {
        rc = oq_file_read_all(&arena, path, OQ_JSON_MOST, &text, err);
    }
    if (rc == ONQ_OK)
        rc = read_text(o, alloc, oq_overrides_name(path), text, err);
    oq_buf_release(&json);
    oq_arena_release(&arena);
    return rc;
}

/* ---- checking against the model ---- */

static onq_code check_zero(const oq_override *v, oq_dtype type, onq_error *err) {
    const oq_qtype_info *t = oq_qtype_find(type);
    const int64_t low = t->full.min, high = t->full.max;
    if (v->has_zero && (v->zero < low || v->zero > high))
        return oq_fail(err, ONQ_E_CONFIG, "zero_point %lld is outside of %lld to %lld of %s",
                       (long long)v->zero, (long long)low, (long long)high, t->name);
    return ONQ_OK;
}

/* An initializer without quant_type gets the weight or the activation type, depending on its use:
 * where that is not known, either will do. */
static onq_code check_zero_of(const oq_override *v, const oq_override *first,
                              const oq_override_model *m, bool is_init, bool is_weight,
                              onq_error *err) {
    if (first->has_type)
        return check_zero(v, first->type, err);
    if (is_weight)
        return check_zero(v, m->weight_type, err);
    if (check_zero(v, m->activation_type, err) == ONQ_OK)
        return ONQ_OK;
    oq_error_clear(err);
    return check_zero(v, is_init ? m->weight_type : m->activation_type, err);
}

static onq_code check_convert(const oq_override *v, const oq_override_model *m, bool is_init,
                              onq_error *err) {
    const oq_override *c = v->convert;
    if (c == NULL)
        return ONQ_OK;
    if (is_init)
        return oq_fail(err, ONQ_E_CONFIG, "'convert' is not for initializers");
    if (!c->has_type)
        return oq_fail(err, ONQ_E_CONFIG, "'convert' must specify a 'quant_type'");
    if (c->reduce_range != OQ_UNSET)
        return oq_fail(err, ONQ_E_CONFIG, "'reduce_range' is only supported for initializers");
    if (c->type == (v->has_type ? v->type : m->activation_type))
        return oq_fail(err, ONQ_E_CONFIG,
                       "'convert' quant_type must differ from the original quant_type");
    return check_zero(c, c->type, err);
}

static onq_code check_per_tensor(const oq_tensor_override *t, const oq_override_model *m,
                                 bool is_init, onq_error *err) {
    const oq_override *v = &t->channels.v[0];
    if (v->reduce_range != OQ_UNSET && !is_init)
        return oq_fail(err, ONQ_E_CONFIG,
                       "'reduce_range' is only supported for initializers, not for activations");
    const bool is_weight = is_init && m->is_weight != NULL && m->is_weight(m->ctx, t->name);
    OQ_TRY(check_zero_of(v, v, m, is_init, is_weight, err));
    return check_convert(v, m, is_init, err);
}

/* Channel k must say what the first says, where it says anything. */
static onq_code check_channel(const oq_override *first, const oq_override *v, int64_t axis,
                              int64_t rank, onq_error *err) {
    if (v->convert != NULL)
        return oq_fail(err, ONQ_E_CONFIG, "'convert' is not for initializers");
    if (v->has_type && (!first->has_type || v->type != first->type))
        return oq_fail(err, ONQ_E_CONFIG, "quant_type differs from the first channel's");
    if (v->has_axis && (v->axis < 0 ? v->axis + rank : v->axis) != axis)
        return oq_fail(err, ONQ_E_CONFIG, "axis differs from the first channel's");
    if (v->symmetric != OQ_UNSET && v->symmetric != first->symmetric)
        return oq_fail(err, ONQ_E_CONFIG, "symmetric differs from the first channel's");
    if (v->reduce_range != OQ_UNSET && v->reduce_range != first->reduce_range)
        return oq_fail(err, ONQ_E_CONFIG, "reduce_range differs from the first channel's");
    if (first->has_scale != v->has_scale)
        return oq_fail(err, ONQ_E_CONFIG, "scale and zero_point are for all channels or for none");
    if (first->has_rmin && !(v->has_rmin && v->has_rmax))
        return oq_fail(err, ONQ_E_CONFIG,
                       "rmin and rmax must be given for all channels where the first has them");
    return ONQ_OK;
}

static onq_code check_per_channel(const oq_tensor_override *t, const oq_override_model *m,
                                  const oq_tensor *init, onq_error *err) {
    const oq_override *first = &t->channels.v[0];
    if (init == NULL)
        return oq_fail(err, ONQ_E_CONFIG, "overrides per channel are for initializers only");
    if (!first->has_axis)
        return oq_fail(err, ONQ_E_CONFIG,
                       "%zu dictionaries, and 'axis' is missing in the first (no axis, or more "
                       "than one, has that size)",
                       t->channels.n);
    if (first->has_rmin != first->has_rmax)
        return oq_fail(err, ONQ_E_CONFIG,
                       "Must provide both 'rmin' and 'rmax' if one is provided ('%s' is missing)",
                       first->has_rmin ? "rmax" : "rmin");
    const bool is_weight = m->is_weight != NULL && m->is_weight(m->ctx, t->name);
    const int64_t rank = (int64_t)init->dims.n;
    if (first->axis < -rank || first->axis >= rank)
        return oq_fail(err, ONQ_E_CONFIG, "axis %lld is out of range for rank %lld",
                       (long long)first->axis, (long long)rank);
    const int64_t axis = first->axis < 0 ? first->axis + rank : first->axis;
    if (t->channels.n > 1 && (int64_t)t->channels.n != init->dims.v[axis])
        return oq_fail(err, ONQ_E_CONFIG, "%zu channels are given, axis %lld has %lld",
                       t->channels.n, (long long)axis, (long long)init->dims.v[axis]);
    for (size_t i = 0; i < t->channels.n; i++) {
        const oq_override *v = &t->channels.v[i];
        onq_code rc = check_channel(first, v, axis, rank, err);
        if (rc == ONQ_OK)
            rc = check_zero_of(v, first, m, true, is_weight, err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "channel %zu", i);
    }
    return ONQ_OK;
}

static onq_code fail_absent(const oq_tensor_override *t, const oq_override_model *m,
                            onq_error *err) {
    oq_nearest near;
    char hint[700];
    if (m->is_inner != NULL && m->is_inner(m->ctx, t->name))
        return oq_fail(err, ONQ_E_CONFIG,
                       "is inside of an If, Loop or Scan (--enable_subgraph quantizes that)");
    oq_nearest_init(&near, t->name);
    if (m->offer != NULL)
        m->offer(m->ctx, &near);
    oq_nearest_text(&near, "", hint, sizeof hint);
    return oq_fail(err, ONQ_E_CONFIG, "is not present in the model%s", hint);
}

static onq_code check_one(const oq_tensor_override *t, const oq_override_model *m, onq_error *err) {
    const oq_tensor *init = m->init(m->ctx, t->name);
    if (init == NULL && !m->is_activation(m->ctx, t->name))
        return fail_absent(t, m, err);
    if (t->channels.n > 1 || t->channels.v[0].has_axis)
        return check_per_channel(t, m, init, err);
    return check_per_tensor(t, m, init != NULL, err);
}

/* The axis of one dictionary for each channel: that of the operator which reads the weight, else
 * the only one of that size. */
static bool find_axis(const oq_tensor_override *t, const oq_override_model *m,
                      const oq_tensor *init, int64_t *axis) {
    const int64_t n = (int64_t)t->channels.n;
    size_t fitting = 0;
    if (m->channel_axis != NULL && m->channel_axis(m->ctx, t->name, axis) && *axis >= 0 &&
        (uint64_t)*axis < init->dims.n && init->dims.v[*axis] == n)
        return true;
    for (size_t i = init->dims.n; i > 0; i--) {
        if (init->dims.v[i - 1] != n)
            continue;
        *axis = (int64_t)(i - 1);
        fitting++;
    }
    return fitting == 1;
}

void oq_overrides_find_axes(oq_overrides *o, const oq_override_model *m) {
    for (size_t i = 0; i < o->all.n; i++) {
        oq_tensor_override *t = o->all.v[i];
        const oq_tensor *init = t->channels.n > 1 ? m->init(m->ctx, t->name) : NULL;
        oq_override *first = &t->channels.v[0];
        if (init != NULL && !first->has_axis)
            first->has_axis = find_axis(t, m, init, &first->axis);
    }
}

bool oq_override_any_range(const oq_tensor_override *t) {
    for (size_t i = 0; i < t->channels.n; i++)
        if (t->channels.v[i].has_rmin || t->channels.v[i].has_rmax)
            return true;
    return false;
}

onq_code oq_overrides_check(const oq_overrides *o, const oq_override_model *m, onq_error *err) {
    onq_code rc = ONQ_OK;
    size_t n_bad = 0;
    for (size_t i = 0; i < o->all.n; i++) {
        onq_error one = ONQ_ERROR_INIT;
        const onq_code got = check_one(o->all.v[i], m, &one);
        if (got == ONQ_OK)
            continue;
        if (n_bad++ == 0) {
            rc = got;
            oq_error_in(&one, got, "tensor '%.*s'", OQ_STR(o->all.v[i]->name));
            if (err != NULL)
                *err = one;
        }
    }
    if (n_bad > 1)
        oq_error_in(err, rc, "%zu overrides are wrong; the first", n_bad);
    return rc;
}
