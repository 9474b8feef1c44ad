/*
 * encodings_write.c — parameters of a plan in the formats of other tools.
 */
#include "base/text/real.h"
#include "quantize/number/qtype.h"
#include "quantize/override/encodings.h"

#include <math.h>
#include <stdio.h>

static unsigned bits_of(const oq_plan_tensor *t) {
    return oq_dtype_find(t->type)->bits;
}

static bool is_signed(const oq_plan_tensor *t) {
    return oq_dtype_find(t->type)->cls == OQ_CLASS_INT;
}

/* Integers with known parameters, that are not counted twice. */
static bool is_known(const oq_plan_tensor *t) {
    const oq_dtype_info *info = oq_dtype_find(t->type);
    return t->n > 0 && t->scale != NULL && t->zero != NULL && info != NULL &&
           (info->cls == OQ_CLASS_INT || info->cls == OQ_CLASS_UINT);
}

static bool is_whole(const oq_plan_tensor *t) {
    return is_known(t) && t->block == 0;
}

static uint64_t outer_of(const oq_plan_tensor *t) {
    return t->n / (t->blocks * t->inner);
}

/* What AIMET's blocks can be: of matrices, or of whole kernels of a Conv. Its scales are positive;
 * those of `onq nbits` are negative where the largest value of a block is. */
static bool has_aimet_blocks(const oq_plan_tensor *t) {
    if (!is_known(t) || t->block == 0 || t->blocks == 0 || t->inner == 0)
        return false;
    for (uint64_t i = 0; i < t->n; i++) {
        const uint64_t first = t->rank == 2 ? i : i / t->inner * t->inner;
        if (!(t->scale[i] > 0.0f) || (t->rank != 2 && t->axis != 1) ||
            t->scale[i] != t->scale[first] || t->zero[i] != t->zero[first])
            return false;
    }
    return true;
}

static bool fits(const oq_plan_tensor *t, oq_encodings_format format) {
    return is_whole(t) ||
           ((format == OQ_ENCODINGS_1_0_0 || format == OQ_ENCODINGS_2_0_0) && has_aimet_blocks(t));
}

static bool is_symmetric(const oq_plan_tensor *t) {
    for (uint64_t i = 0; i < t->n; i++)
        if (!is_signed(t) || t->zero[i] != 0)
            return false;
    return true;
}

/* AIMET's offset: of unsigned integers, and negative. */
static double offset_of(const oq_plan_tensor *t, uint64_t i) {
    const double shift = is_signed(t) ? ldexp(1.0, (int)bits_of(t) - 1) : 0.0;
    return 0.0 - ((double)t->zero[i] + shift);
}

/* ---- AIMET ---- */

static void write_channels(oq_jw *w, const oq_plan_tensor *t) {
    const double steps = ldexp(1.0, (int)bits_of(t)) - 1.0;
    oq_jw_key(w, t->name);
    oq_jw_begin_array(w, NULL);
    for (uint64_t i = 0; i < t->n; i++) {
        const double scale = (double)t->scale[i], offset = offset_of(t, i);
        oq_jw_begin_object(w, NULL);
        oq_jw_uint(w, "bitwidth", bits_of(t));
        oq_jw_cstr(w, "dtype", "int");
        oq_jw_cstr(w, "is_symmetric", is_symmetric(t) ? "True" : "False");
        oq_jw_real(w, "max", scale * (steps + offset));
        oq_jw_real(w, "min", scale * offset);
        oq_jw_int(w, "offset", (int64_t)offset);
        oq_jw_float(w, "scale", t->scale[i]);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

/* The number of a parameter: channel by channel, and each channel's blocks. */
static uint64_t block_at(const oq_plan_tensor *t, uint64_t i) {
    if (t->block == 0)
        return i;
    if (t->axis == 0)
        return i % t->blocks * t->inner + i / t->blocks;
    return i * t->inner;
}

/* Numbers of parameters in a list: a kernel's are one. */
static uint64_t listed(const oq_plan_tensor *t) {
    return t->block == 0 || t->axis == 0 ? t->n : t->n / t->inner;
}

static void write_lists(oq_jw *w, const oq_plan_tensor *t) {
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, "name", t->name);
    oq_jw_cstr(w, "enc_type",
               t->block > 0   ? "PER_BLOCK"
               : t->axis >= 0 ? "PER_CHANNEL"
                              : "PER_TENSOR");
    oq_jw_cstr(w, "dtype", "INT");
    oq_jw_uint(w, "bw", bits_of(t));
    oq_jw_bool(w, "is_sym", is_symmetric(t));
    oq_jw_begin_array(w, "scale");
    for (uint64_t i = 0; i < listed(t); i++)
        oq_jw_float(w, NULL, t->scale[block_at(t, i)]);
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "offset");
    for (uint64_t i = 0; i < listed(t); i++)
        oq_jw_int(w, NULL, (int64_t)offset_of(t, block_at(t, i)));
    oq_jw_end_array(w);
    if (t->block > 0)
        oq_jw_uint(w, "block_size", t->block);
    oq_jw_end_object(w);
}

/* Scales or zero points of blocks, nested as the weight is. */
static void write_nested(oq_jw *w, const oq_plan_tensor *t, const char *key, bool scales) {
    const uint64_t width = t->rank == 2 ? t->inner : 1;
    oq_jw_begin_array(w, key);
    for (uint64_t o = 0; o < outer_of(t) * t->blocks; o++) {
        if (t->axis != 0 && o % t->blocks == 0)
            oq_jw_begin_array(w, NULL);
        for (size_t d = 0; d + 1 < t->rank - (t->axis != 0); d++)
            oq_jw_begin_array(w, NULL);
        for (uint64_t i = o * t->inner; i < o * t->inner + width; i++)
            if (scales)
                oq_jw_float(w, NULL, t->scale[i]);
            else
                oq_jw_int(w, NULL, t->zero[i]);
        for (size_t d = 0; d + 1 < t->rank - (t->axis != 0); d++)
            oq_jw_end_array(w);
        if (t->axis != 0 && o % t->blocks == t->blocks - 1)
            oq_jw_end_array(w);
    }
    oq_jw_end_array(w);
}

static void write_plain(oq_jw *w, const oq_plan_tensor *t) {
    char type[16];
    snprintf(type, sizeof type, "%sint%u", is_signed(t) ? "" : "u", bits_of(t));
    oq_jw_begin_object(w, NULL);
    oq_jw_str(w, "name", t->name);
    oq_jw_cstr(w, "output_dtype", type);
    if (t->block > 0) {
        write_nested(w, t, "y_scale", true);
        write_nested(w, t, "y_zero_point", false);
        oq_jw_int(w, "axis", t->axis);
        oq_jw_uint(w, "block_size", t->block);
    } else if (t->axis >= 0) {
        oq_jw_begin_array(w, "y_scale");
        for (uint64_t i = 0; i < t->n; i++)
            oq_jw_float(w, NULL, t->scale[i]);
        oq_jw_end_array(w);
        oq_jw_begin_array(w, "y_zero_point");
        for (uint64_t i = 0; i < t->n; i++)
            oq_jw_int(w, NULL, t->zero[i]);
        oq_jw_end_array(w);
        oq_jw_int(w, "axis", t->axis);
    } else {
        oq_jw_float(w, "y_scale", t->scale[0]);
        oq_jw_int(w, "y_zero_point", t->zero[0]);
    }
    oq_jw_end_object(w);
}

static void write_group(oq_jw *w, const oq_plan *p, oq_encodings_format format, bool weights,
                        void (*write)(oq_jw *w, const oq_plan_tensor *t)) {
    for (size_t i = 0; i < p->tensors.n; i++)
        if (fits(&p->tensors.v[i], format) &&
            (p->tensors.v[i].role != OQ_ROLE_ACTIVATION) == weights)
            write(w, &p->tensors.v[i]);
}

static void write_aimet(oq_jw *w, const oq_plan *p, oq_encodings_format format) {
    static const char *const versions[] = {"0.6.1", "1.0.0", "2.0.0"};
    const bool lists = format == OQ_ENCODINGS_1_0_0;
    oq_jw_begin_object(w, NULL);
    oq_jw_cstr(w, "version", versions[format]);
    if (format == OQ_ENCODINGS_2_0_0) {
        oq_jw_begin_array(w, "encodings");
        write_group(w, p, format, false, write_plain);
        write_group(w, p, format, true, write_plain);
        oq_jw_end_array(w);
        oq_jw_end_object(w);
        return;
    }
    for (int weights = 0; weights < 2; weights++) {
        const char *key = weights ? "param_encodings" : "activation_encodings";
        if (lists)
            oq_jw_begin_array(w, key);
        else
            oq_jw_begin_object(w, key);
        write_group(w, p, format, weights, lists ? write_lists : write_channels);
        if (lists)
            oq_jw_end_array(w);
        else
            oq_jw_end_object(w);
    }
    oq_jw_end_object(w);
}

/* ---- others ---- */

/* Symmetric scales, for which 127 stands for the larger end of the range. */
static void write_tensorrt(oq_buf *out, const oq_plan *p, size_t *skipped) {
    oq_buf_adds(out, "TRT-100000-EntropyCalibration2\n");
    for (size_t i = 0; i < p->tensors.n; i++) {
        const oq_plan_tensor *t = &p->tensors.v[i];
        if (!is_whole(t) || t->role != OQ_ROLE_ACTIVATION || t->n != 1) {
            *skipped += t->role == OQ_ROLE_ACTIVATION;
            continue;
        }
        const oq_qrange q = oq_qtype_range(t->type, false, false);
        const double low = (double)(t->zero[0] - q.min), high = (double)(q.max - t->zero[0]);
        const double reach = is_symmetric(t) && bits_of(t) == 8 ? 127.0 : low > high ? low : high;
        oq_buf_add_str(out, t->name);
        oq_buf_addf(out, ": %08x\n", oq_f32_bits((float)((double)t->scale[0] * reach / 127.0)));
    }
}

static void write_override(oq_jw *w, const oq_plan_tensor *t) {
    oq_jw_key(w, t->name);
    oq_jw_begin_array(w, NULL);
    for (uint64_t i = 0; i < t->n; i++) {
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "quant_type", oq_qtype_name(t->type));
        oq_jw_float(w, "scale", t->scale[i]);
        oq_jw_int(w, "zero_point", t->zero[i]);
        if (t->axis >= 0 && i == 0)
            oq_jw_int(w, "axis", t->axis);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

/* Biases are left out: their parameters follow from the others. */
static void write_overrides(oq_jw *w, const oq_plan *p) {
    oq_jw_begin_object(w, NULL);
    for (size_t i = 0; i < p->tensors.n; i++)
        if (is_whole(&p->tensors.v[i]) && p->tensors.v[i].role != OQ_ROLE_BIAS)
            write_override(w, &p->tensors.v[i]);
    oq_jw_end_object(w);
}

onq_code oq_encodings_write(const oq_plan *p, oq_encodings_format format, oq_buf *out,
                            size_t *skipped, onq_error *err) {
    oq_jw w;
    *skipped = 0;
    oq_jw_init(&w, out, true);
    if (format == OQ_ENCODINGS_TENSORRT)
        write_tensorrt(out, p, skipped);
    else if (format == OQ_ENCODINGS_OVERRIDES)
        write_overrides(&w, p);
    else
        write_aimet(&w, p, format);
    for (size_t i = 0; format != OQ_ENCODINGS_TENSORRT && i < p->tensors.n; i++)
        *skipped += !fits(&p->tensors.v[i], format);
    if (format != OQ_ENCODINGS_TENSORRT)
        oq_buf_adds(out, "\n");
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}
