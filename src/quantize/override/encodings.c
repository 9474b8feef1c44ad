/*
 * encodings.c — see encodings.h: files of other tools as overrides.
 */
#include "quantize/override/encodings.h"

#include "base/system/file.h"
#include "base/text/real.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "quantize/number/qtype.h"
#include "quantize/override/encodings_blocks.h"

#include <math.h>

typedef struct reading {
    oq_overrides *o;
    oq_model *m;
    const char *path;
    oq_index index;
    oq_encodings_read *out;
} reading;

/* One entry, in the words of ONNX. */
typedef struct entry {
    oq_str name;
    oq_dtype type;
    int64_t axis; /* -1: not said */
    size_t n;     /* scales */
} entry;

static onq_code wrong(const reading *r, oq_str name, onq_error *err, const char *why) {
    return oq_fail(err, ONQ_E_CONFIG, "%s: tensor '%.*s': %s", r->path, OQ_STR(name), why);
}

/* ---- the model ---- */

/* The axis along which a weight has its channels, by the operator that reads it. */
static int64_t channel_axis(const reading *r, oq_str name) {
    const oq_value *v = oq_index_find(&r->index, name);
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        int64_t axis = 0;
        if (oq_op_channel_axis(r->m->proto->graph->node.v[v->uses.v[i].node], &axis))
            return axis;
    }
    return 0;
}

/* The override to fill; NULL where the model has no such tensor, or the file or the user said
 * something of it before. */
static onq_code begin(reading *r, const entry *e, oq_tensor_override **out, onq_error *err) {
    const oq_value *v = oq_index_find(&r->index, e->name);
    *out = NULL;
    if (v == NULL || !oq_value_is_defined(v)) {
        if (r->out->n_gone++ == 0)
            r->out->gone = oq_str_copy(r->o->arena, e->name);
        return ONQ_OK;
    }
    if (oq_overrides_find(r->o, e->name) != NULL)
        return ONQ_OK;
    *out = oq_overrides_add(r->o, oq_str_copy(r->o->arena, e->name));
    OQ_TRY_ALLOC(*out != NULL, err);
    for (size_t i = 1; i < e->n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(r->o->arena, &(*out)->channels, (*out)->channels.v[0]), err);
    r->out->n++;
    return ONQ_OK;
}

static onq_code put(const reading *r, const entry *e, oq_tensor_override *t, size_t i, double scale,
                    double zero, onq_error *err) {
    const oq_qtype_info *info = oq_qtype_find(e->type);
    oq_override *o = &t->channels.v[i];
    if (!isfinite(scale) || !(scale > 0.0))
        return wrong(r, e->name, err, "its scale is not a positive number");
    if (zero < (double)info->full.min || zero > (double)info->full.max || zero != floor(zero))
        return wrong(r, e->name, err, "its offset or zero point does not fit its type");
    o->has_type = o->has_scale = o->has_zero = true;
    o->type = e->type;
    o->scale = (float)scale;
    o->zero = (int64_t)zero;
    if (e->n > 1) {
        o->has_axis = true;
        o->axis = e->axis >= 0 ? e->axis : channel_axis(r, e->name);
    }
    return ONQ_OK;
}

/* A weight in blocks; `e` says which axis its blocks lie along, or -1: the one that is summed. */
static onq_code put_blocks(reading *r, const entry *e, oq_encoded_blocks *blocks, onq_error *err) {
    const oq_tensor *init = oq_index_init(&r->index, e->name);
    oq_tensor_override *t = NULL;
    OQ_TRY(begin(r, e, &t, err));
    if (t == NULL)
        return ONQ_OK;
    if (init == NULL)
        return wrong(r, e->name, err, "it has blocks, but is not a weight");
    const int64_t rank = (int64_t)init->dims.n;
    blocks->channel = channel_axis(r, e->name);
    blocks->axis = e->axis != -1 || blocks->nested ? e->axis : blocks->channel == 0 ? 1 : 0;
    blocks->axis += blocks->axis < 0 ? rank : 0;
    if (blocks->nested && blocks->channel == blocks->axis)
        blocks->channel = blocks->axis == 0 ? 1 : 0;
    blocks->type = e->type;
    const onq_code rc = oq_encodings_blocks(r->o->arena, init, blocks, &t->blocks, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s: tensor '%.*s'", r->path, OQ_STR(e->name));
    oq_override *o = &t->channels.v[0];
    o->has_type = o->has_axis = true;
    o->type = e->type;
    o->axis = blocks->axis;
    r->out->n_blocks++;
    return ONQ_OK;
}

/* ---- types ---- */

static oq_dtype type_of(bool is_signed, int64_t bits) {
    switch (bits) {
    case 4:
        return is_signed ? OQ_INT4 : OQ_UINT4;
    case 8:
        return is_signed ? OQ_INT8 : OQ_UINT8;
    case 16:
        return is_signed ? OQ_INT16 : OQ_UINT16;
    default:
        return OQ_UNDEFINED;
    }
}

static bool is_true(const json_t *j) {
    const char *s = json_string_value(j);
    return json_is_true(j) || (s != NULL && (s[0] == 'T' || s[0] == 't'));
}

static oq_str text_of(const json_t *j) {
    return oq_str_of(json_string_value(j));
}

/* A list, or one number. */
static size_t list_size(const json_t *j) {
    return json_is_array(j) ? json_array_size(j) : json_is_number(j) ? 1 : 0;
}

static bool list_number(const json_t *j, size_t i, double *out) {
    const json_t *v = json_is_array(j) ? json_array_get(j, i) : j;
    *out = json_number_value(v);
    return json_is_number(v);
}

/* ---- AIMET ---- */

/* Zero point of AIMET's offset. */
static double zero_of(double offset, oq_dtype type) {
    const oq_qtype_info *info = oq_qtype_find(type);
    return -offset + (double)info->full.min;
}

/* 0.6.1: an object for each channel. */
static onq_code read_channels(reading *r, oq_str name, const json_t *list, onq_error *err) {
    const json_t *first = json_is_array(list) ? json_array_get(list, 0) : NULL;
    oq_tensor_override *t = NULL;
    if (!json_is_object(first))
        return wrong(r, name, err, "it has no list of encodings");
    const char *dtype = json_string_value(json_object_get(first, "dtype"));
    entry e = {.name = name,
               .axis = -1,
               .n = json_array_size(list),
               .type = type_of(is_true(json_object_get(first, "is_symmetric")),
                               json_integer_value(json_object_get(first, "bitwidth")))};
    if (e.type == OQ_UNDEFINED || (dtype != NULL && strcmp(dtype, "int") != 0)) {
        r->out->n_other++;
        return ONQ_OK;
    }
    OQ_TRY(begin(r, &e, &t, err));
    for (size_t i = 0; t != NULL && i < e.n; i++) {
        const json_t *c = json_array_get(list, i);
        double scale = 0, offset = 0;
        if (!list_number(json_object_get(c, "scale"), 0, &scale) ||
            !list_number(json_object_get(c, "offset"), 0, &offset))
            return wrong(r, name, err, "it has no scale or no offset");
        OQ_TRY(put(r, &e, t, i, scale, zero_of(offset, e.type), err));
    }
    return ONQ_OK;
}

/* 1.0.0: lists of scales and offsets. */
static onq_code read_lists(reading *r, const json_t *j, onq_error *err) {
    const json_t *scales = json_object_get(j, "scale"), *offsets = json_object_get(j, "offset");
    const oq_str kind = text_of(json_object_get(j, "enc_type"));
    oq_tensor_override *t = NULL;
    entry e = {.name = text_of(json_object_get(j, "name")),
               .axis = -1,
               .n = list_size(scales),
               .type = type_of(is_true(json_object_get(j, "is_sym")),
                               json_integer_value(json_object_get(j, "bw")))};
    if (e.name.n == 0)
        return oq_fail(err, ONQ_E_CONFIG, "%s: an encoding has no name", r->path);
    const bool lpbq = oq_str_is(kind, "LPBQ");
    if (lpbq)
        e.type = type_of(true, json_integer_value(json_object_get(j, "compressed_bw")));
    if (e.type == OQ_UNDEFINED || oq_str_is(text_of(json_object_get(j, "dtype")), "FLOAT")) {
        r->out->n_other++;
        return ONQ_OK;
    }
    if (lpbq || oq_str_is(kind, "PER_BLOCK")) {
        oq_encoded_blocks blocks = {.scale = scales,
                                    .times =
                                        lpbq ? json_object_get(j, "per_block_int_scale") : NULL,
                                    .zero = lpbq ? NULL : offsets,
                                    .offsets = true,
                                    .block = json_integer_value(json_object_get(j, "block_size"))};
        if (scales == NULL || (lpbq ? blocks.times : offsets) == NULL)
            return wrong(r, e.name, err,
                         lpbq ? "it has no scale or no per_block_int_scale"
                              : "it has no scale or no offset");
        e.n = 1;
        return put_blocks(r, &e, &blocks, err);
    }
    if (e.n == 0 || list_size(offsets) != e.n)
        return wrong(r, e.name, err, "it has not as many offsets as scales");
    OQ_TRY(begin(r, &e, &t, err));
    for (size_t i = 0; t != NULL && i < e.n; i++) {
        double scale = 0, offset = 0;
        if (!list_number(scales, i, &scale) || !list_number(offsets, i, &offset))
            return wrong(r, e.name, err, "a scale or an offset is not a number");
        OQ_TRY(put(r, &e, t, i, scale, zero_of(offset, e.type), err));
    }
    return ONQ_OK;
}

/* 2.0.0 and 2.1.0: blocks, nested as the weight is. Scales of scales are two lists, or an object. */
static onq_code read_nested(reading *r, const entry *e, const json_t *j, onq_error *err) {
    const json_t *scales = json_object_get(j, "y_scale"),
                 *zeros = json_object_get(j, "y_zero_point");
    oq_encoded_blocks blocks = {.scale = scales,
                                .zero = json_is_array(zeros) ? zeros : NULL,
                                .times = json_object_get(j, "per_block_int_scale"),
                                .nested = true,
                                .block = json_integer_value(json_object_get(j, "block_size"))};
    if (blocks.times != NULL) {
        blocks.scale = json_object_get(j, "per_channel_float_scale");
    } else if (json_is_object(scales)) {
        blocks.times = json_object_get(scales, "x");
        blocks.scale = json_object_get(scales, "x_scale");
        if (blocks.times == NULL || json_object_get(scales, "x_zero_point") != NULL ||
            json_object_get(scales, "block_size") != NULL)
            return wrong(r, e->name, err, "its scales are not integers with one scale a channel");
    }
    if (!json_is_array(blocks.scale))
        return wrong(r, e->name, err, "its blocks have no list of scales");
    return put_blocks(r, e, &blocks, err);
}

/* 2.0.0: the words of QuantizeLinear. */
static onq_code read_plain(reading *r, const json_t *j, onq_error *err) {
    const json_t *scales = json_object_get(j, "y_scale"),
                 *zeros = json_object_get(j, "y_zero_point");
    const json_t *axis = json_object_get(j, "axis");
    oq_tensor_override *t = NULL;
    entry e = {.name = text_of(json_object_get(j, "name")), .axis = -1, .n = list_size(scales)};
    if (e.name.n == 0)
        return oq_fail(err, ONQ_E_CONFIG, "%s: an encoding has no name", r->path);
    const oq_str type = text_of(json_object_get(j, "output_dtype"));
    const json_t *block = json_object_get(j, "block_size");
    if ((scales == NULL && !json_is_integer(block)) || type.n == 0 ||
        !oq_qtype_parse(type, &e.type) || oq_qtype_find(e.type)->is_float) {
        r->out->n_other++;
        return ONQ_OK;
    }
    e.axis = json_is_integer(axis) ? json_integer_value(axis) : -1;
    if (json_is_integer(block)) {
        e.n = 1;
        return read_nested(r, &e, j, err);
    }
    if (e.n == 0 || (zeros != NULL && !json_is_null(zeros) && list_size(zeros) != e.n))
        return wrong(r, e.name, err, "it has not as many zero points as scales");
    OQ_TRY(begin(r, &e, &t, err));
    for (size_t i = 0; t != NULL && i < e.n; i++) {
        double scale = 0, zero = 0;
        if (!list_number(scales, i, &scale) ||
            (list_size(zeros) > 0 && !list_number(zeros, i, &zero)))
            return wrong(r, e.name, err, "a scale or a zero point is not a number");
        OQ_TRY(put(r, &e, t, i, scale, zero, err));
    }
    return ONQ_OK;
}

static onq_code read_group(reading *r, json_t *group, onq_error *err) {
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_object(group)) {
        json_object_foreach(group, key, value) OQ_TRY(read_channels(r, oq_str_of(key), value, err));
        return ONQ_OK;
    }
    json_array_foreach(group, i, value) OQ_TRY(read_lists(r, value, err));
    return ONQ_OK;
}

static onq_code read_json(reading *r, json_t *root, onq_error *err) {
    json_t *plain = json_object_get(root, "encodings"), *value;
    json_t *activations = json_object_get(root, "activation_encodings");
    json_t *params = json_object_get(root, "param_encodings");
    size_t i;
    if (plain == NULL && activations == NULL && params == NULL)
        return oq_overrides_parse(r->o, r->path, root, err);
    if (plain != NULL && !json_is_array(plain))
        return oq_fail(err, ONQ_E_CONFIG, "%s: 'encodings' is not a list", r->path);
    json_array_foreach(plain, i, value) OQ_TRY(read_plain(r, value, err));
    OQ_TRY(read_group(r, activations, err));
    return read_group(r, params, err);
}

/* ---- TensorRT ---- */

/* "name: 3c010a14": a scale for int8 that is symmetric. Names may have colons in them. */
static onq_code read_line(reading *r, oq_str line, onq_error *err) {
    size_t at = line.n;
    uint32_t bits = 0;
    while (at > 0 && line.p[at - 1] != ':')
        at--;
    size_t digits = 0;
    for (size_t i = at; i < line.n; i++) {
        const char c = line.p[i];
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (c == ' ' || c == '\r')
            continue;
        if (d < 0)
            digits = 9;
        bits = bits << 4 | (uint32_t)(d & 15);
        digits++;
    }
    const entry e = {.name = {line.p, at > 0 ? at - 1 : 0}, .type = OQ_INT8, .axis = -1, .n = 1};
    oq_tensor_override *t = NULL;
    if (e.name.n == 0 || digits == 0 || digits > 8)
        return oq_fail(err, ONQ_E_CONFIG, "%s: '%.*s' is not a tensor and its scale", r->path,
                       OQ_STR(line));
    OQ_TRY(begin(r, &e, &t, err));
    return t != NULL ? put(r, &e, t, 0, (double)oq_f32_of_bits(bits), 0.0, err) : ONQ_OK;
}

static onq_code read_tensorrt(reading *r, oq_str text, onq_error *err) {
    bool first = true;
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        const oq_str line = {text.p, end != NULL ? (size_t)(end - text.p) : text.n};
        const size_t used = line.n + (end != NULL);
        text = (oq_str){text.p + used, text.n - used};
        if (!first && line.n > 0 && line.p[0] != '\r')
            OQ_TRY(read_line(r, line, err));
        first = false;
    }
    return ONQ_OK;
}

onq_code oq_encodings_load(oq_overrides *o, oq_model *m, const char *path, oq_encodings_read *out,
                           onq_error *err) {
    const onq_allocator *alloc = &m->env->alloc;
    reading r = {.o = o, .m = m, .path = path, .out = out};
    oq_file file = {0};
    json_t *root = NULL;
    OQ_SCRATCH(scratch, alloc);
    *out = (oq_encodings_read){0};
    OQ_TRY(oq_index_build(&r.index, &scratch, m->proto->graph, NULL, err));
    OQ_TRY(oq_file_open(&file, alloc, path, err));
    const oq_str text = {(const char *)file.p, file.size};
    onq_code rc;
    if (oq_str_starts(text, OQ_S("TRT-")))
        rc = read_tensorrt(&r, text, err);
    else if ((rc = oq_json_read(alloc, path, &root, err)) == ONQ_OK)
        rc = json_is_object(root) ? read_json(&r, root, err)
                                  : oq_fail(err, ONQ_E_CONFIG, "%s: it holds no encodings", path);
    json_decref(root);
    oq_file_close(&file);
    return rc;
}
