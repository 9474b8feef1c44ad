/*
 * option_literal.c — lists and maps as JSON or Python writes them: ["Conv", "MatMul"], {"Gemm": 0}.
 */
#include "api/options/options.h"
#include "base/text/json.h"
#include "base/text/literal.h"

/* One item: a text, or the number after a key of a map. False when out of memory. */
static bool push_item(oq_arena *a, const char *key, const json_t *item, oq_opt_value *v,
                      bool *fits) {
    *fits = key == NULL ? json_is_string(item) : json_is_integer(item);
    if (!*fits)
        return true;
    const oq_str text = key == NULL
                            ? oq_str_format(a, "%s", json_string_value(item))
                            : oq_str_format(a, "%s:%lld", key, (long long)json_integer_value(item));
    return text.p != NULL && OQ_PUSH(a, &v->list, text);
}

static onq_code take_items(oq_arena *a, json_t *root, bool map, oq_opt_value *v, onq_error *err) {
    bool fits = true, room = true;
    const char *key = NULL;
    json_t *item = NULL;
    size_t i = 0;
    if (map)
        fits = json_is_object(root);
    else if (json_is_string(root))
        room = push_item(a, NULL, root, v, &fits);
    else
        fits = json_is_array(root);
    json_array_foreach(root, i, item) {
        if (room && fits)
            room = push_item(a, NULL, item, v, &fits);
    }
    json_object_foreach(root, key, item) {
        if (room && fits)
            room = push_item(a, key, item, v, &fits);
    }
    OQ_TRY_ALLOC(room, err);
    return fits ? ONQ_OK : oq_fail(err, ONQ_E_CONFIG, "items of another kind");
}

onq_code oq_opt_items(oq_arena *a, const char *text, bool map, oq_opt_value *v, onq_error *err) {
    json_t *root = NULL;
    oq_opt_value fresh = *v;
    OQ_SCRATCH_BUF(json, a->alloc);
    onq_code rc = oq_literal_json(&json, oq_str_of(text), err);
    if (rc == ONQ_OK)
        rc = oq_json_parse("", (oq_str){json.p, json.n}, &root, err);
    if (rc == ONQ_OK)
        rc = take_items(a, root, map, &fresh, err);
    if (rc == ONQ_OK)
        *v = fresh;
    json_decref(root);
    return rc;
}
