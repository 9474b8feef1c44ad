/*
 * nb_node_config.c — --node_config: what single nodes get, the reference's
 * customized_weight_config.
 */
#include "quantize/nbits/nbits.h"

#include "base/text/json.h"

static onq_code read_key(oq_nb_how *how, const char *key, const json_t *v, onq_error *err) {
    const bool is_int = json_is_integer(v);
    const json_int_t n = json_integer_value(v);
    const char *text = json_string_value(v);
    if (strcmp(key, "bits") == 0) {
        if (!is_int || n < 1 || n > 32)
            return oq_fail(err, ONQ_E_CONFIG, "'bits' is not a number of bits");
        how->bits = (unsigned)n;
    } else if (strcmp(key, "group_size") == 0 || strcmp(key, "block_size") == 0) {
        if (!is_int || n < -1 || n == 0)
            return oq_fail(err, ONQ_E_CONFIG, "'%s' is not a block size", key);
        how->block = n < 0 ? 0 : (uint64_t)n;
    } else if (strcmp(key, "scheme") == 0) {
        if (text == NULL || (strcmp(text, "sym") != 0 && strcmp(text, "asym") != 0))
            return oq_fail(err, ONQ_E_CONFIG, "'scheme' is neither \"sym\" nor \"asym\"");
        how->symmetric = strcmp(text, "sym") == 0;
    } else if (strcmp(key, "symmetric") == 0) {
        if (!json_is_boolean(v))
            return oq_fail(err, ONQ_E_CONFIG, "'symmetric' is neither true nor false");
        how->symmetric = json_is_true(v);
    } else if (strcmp(key, "accuracy_level") == 0) {
        if (!is_int || n < 0 || n > 4)
            return oq_fail(err, ONQ_E_CONFIG, "'accuracy_level' is not 0 to 4");
        how->accuracy_level = (int64_t)n;
    } else {
        return oq_fail(err, ONQ_E_CONFIG,
                       "unknown key '%s' (there are bits, group_size, scheme, symmetric, "
                       "accuracy_level)",
                       key);
    }
    return ONQ_OK;
}

static onq_code read_node(const oq_nb_config *c, json_t *v, oq_nb_how *how, onq_error *err) {
    const char *key;
    json_t *item;
    const char *text = json_string_value(v);
    *how = c->how;
    if (text != NULL && (strcmp(text, "fp32") == 0 || strcmp(text, "float") == 0)) {
        how->leave = true;
        return ONQ_OK;
    }
    if (!json_is_object(v))
        return oq_fail(err, ONQ_E_CONFIG, "neither an object nor \"fp32\"");
    json_object_foreach(v, key, item) OQ_TRY(read_key(how, key, item, err));
    return oq_nb_check(c, how, ONQ_E_CONFIG, err);
}

static onq_code read_all(oq_nb_config *c, json_t *root, onq_error *err) {
    const char *name;
    json_t *item;
    if (!json_is_object(root))
        return oq_fail(err, ONQ_E_CONFIG, "not an object with the names of nodes as its keys");
    json_object_foreach(root, name, item) {
        oq_nb_node node = {.name = oq_str_copy(c->lists->arena, oq_str_of(name))};
        OQ_TRY_ALLOC(node.name.p != NULL, err);
        OQ_TRY_IN(read_node(c, item, &node.how, err), err, "node '%s'", name);
        if (!oq_map_put(&c->node_map, node.name, (uint32_t)c->nodes.n) ||
            !OQ_PUSH(c->lists->arena, &c->nodes, node))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_nb_config_nodes(oq_nb_config *c, const onq_allocator *alloc, const char *path,
                            onq_error *err) {
    json_t *root = NULL;
    OQ_TRY(oq_json_read(alloc, path, &root, err));
    const onq_code rc = read_all(c, root, err);
    json_decref(root);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
}
