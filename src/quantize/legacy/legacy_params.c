/*
 * legacy_params.c — reading {"tensor": [zero_point, scale]}.
 */
#include "base/text/json.h"
#include "quantize/legacy/legacy.h"

static onq_code bad(const char *path, const char *tensor, const char *what, onq_error *err) {
    return oq_fail(err, ONQ_E_CONFIG, "%s: tensor '%.200s': %s", path, tensor, what);
}

static onq_code read_one(const char *path, const char *name, const json_t *v, oq_qparam *out,
                         onq_error *err) {
    if (!json_is_array(v) || json_array_size(v) != 2)
        return bad(path, name, "its value must be [zero_point, scale]", err);
    const json_t *zero = json_array_get(v, 0), *scale = json_array_get(v, 1);
    if (!json_is_integer(zero))
        return bad(path, name, "zero_point is not an integer", err);
    if (!json_is_number(scale))
        return bad(path, name, "scale is not a number", err);
    const json_int_t z = json_integer_value(zero);
    const double s = json_number_value(scale);
    if (z < -128 || z > 255)
        return bad(path, name, "zero_point is outside of 0 to 255 (uint8) and -128 to 127 (int8)",
                   err);
    if (!isfinite(s) || !((float)s > 0.0f) || !isfinite((float)s))
        return bad(path, name, "scale is not a positive number", err);
    *out = (oq_qparam){(float)s, (int32_t)(z < 0 ? z + 128 : z)};
    return ONQ_OK;
}

onq_code oq_legacy_read(oq_legacy_params *p, oq_arena *a, const onq_allocator *alloc,
                        const char *path, onq_error *err) {
    *p = (oq_legacy_params){.path = path};
    oq_map_init(&p->map, a);
    if (path == NULL)
        return ONQ_OK;
    json_t *root = NULL;
    OQ_TRY(oq_json_read(alloc, path, &root, err));
    onq_code rc = ONQ_OK;
    const char *name = NULL;
    json_t *v = NULL;
    if (!json_is_object(root))
        rc = oq_fail(err, ONQ_E_CONFIG,
                     "%s: it must be an object {\"tensor\": [zero_point, scale]}", path);
    json_object_foreach(root, name, v) {
        oq_legacy_param one = {0};
        if (rc == ONQ_OK)
            rc = read_one(path, name, v, &one.q, err);
        if (rc != ONQ_OK)
            break;
        one.name = oq_str_copy(a, oq_str_of(name));
        if (one.name.p == NULL || !OQ_PUSH(a, &p->all, one) ||
            !oq_map_put(&p->map, one.name, (uint32_t)(p->all.n - 1)))
            rc = oq_fail_nomem(err);
    }
    json_decref(root);
    return rc;
}
