/*
 * source_images.c — samples from JPEG and PNG files for a model's one image input.
 *
 * Each image is decoded, resized as Pillow does it by default (image.h), brought to the colours
 * wanted, and each value becomes (pixel x scale - mean) / std, computed in double. The defaults are
 * the customary ones: RGB, stretched to the input's size, scale 1/255, ImageNet's mean and
 * deviation (for grey their averages). An input of type UINT8 takes the pixels as they are. A batch
 * of fixed size takes that many images a sample.
 */
#include "samples/source_private.h"

#include "base/text/real.h"
#include "samples/files/image.h"

#include <inttypes.h>

#define MAX_SIDE 16384

typedef struct image_reader {
    oq_reader base;
    onq_env *env;
    oq_io input;
    const char *const *paths;
    uint64_t most_bytes;
    uint64_t batch;
    bool nhwc;
    uint32_t width, height;
    unsigned channels;
    oq_image_color color;
    oq_image_resize resize;
    bool raw; /* UINT8: pixels as they are */
    double scale, mean[3], std[3];
} image_reader;

/* ---- one image ---- */

static uint32_t scaled(uint32_t side, double by, uint32_t least) {
    const double v = side * by + 0.5;
    return v < least ? least : v > MAX_SIDE ? MAX_SIDE : (uint32_t)v;
}

static onq_code blank(oq_arena *a, oq_image *im, uint32_t width, uint32_t height, onq_error *err) {
    im->width = width;
    im->height = height;
    im->p = oq_arena_array(a, (size_t)width * height, oq_image_channels(im));
    return im->p != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* Copies the middle of one image to the middle of another (zeroed) one. */
static void copy_middle(const oq_image *in, oq_image *out) {
    const uint32_t w = in->width < out->width ? in->width : out->width;
    const uint32_t h = in->height < out->height ? in->height : out->height;
    const unsigned c = oq_image_channels(in);
    for (uint32_t y = 0; y < h; y++) {
        const size_t from = ((in->height - h) / 2 + (size_t)y) * in->width + (in->width - w) / 2;
        const size_t to = ((out->height - h) / 2 + (size_t)y) * out->width + (out->width - w) / 2;
        memcpy(out->p + to * c, in->p + from * c, (size_t)w * c);
    }
}

static onq_code fit(const image_reader *r, oq_arena *a, const oq_image *in, oq_image *out,
                    onq_error *err) {
    if (r->resize == OQ_IMAGE_STRETCH)
        return oq_image_scale(a, in, r->width, r->height, out, err);
    const double x = (double)r->width / in->width, y = (double)r->height / in->height;
    const bool crop = r->resize == OQ_IMAGE_CROP;
    const double by = crop ? (x > y ? x : y) : (x < y ? x : y);
    oq_image middle;
    OQ_TRY(oq_image_scale(a, in, scaled(in->width, by, crop ? r->width : 1),
                          scaled(in->height, by, crop ? r->height : 1), &middle, err));
    *out = middle;
    /* The bars of a padded image are black in its own colours. */
    if (middle.mode == OQ_MODE_CMYK)
        OQ_TRY(oq_image_to_rgb(a, &middle, err));
    out->mode = middle.mode;
    OQ_TRY(blank(a, out, r->width, r->height, err));
    copy_middle(&middle, out);
    return ONQ_OK;
}

static void store(oq_dtype dt, void *data, size_t at, double v) {
    const float f = (float)v;
    const uint16_t half = dt == OQ_FLOAT16 ? oq_f64_to_f16(v) : oq_f32_to_bf16(f);
    if (dt == OQ_FLOAT)
        ((float *)data)[at] = f;
    else if (dt == OQ_DOUBLE)
        ((double *)data)[at] = v;
    else
        ((uint16_t *)data)[at] = half;
}

/* Pixels to values at image number `slot` of the batch. */
static void write_values(const image_reader *r, const oq_image *im, uint64_t slot, void *data) {
    const size_t n = (size_t)r->width * r->height;
    const unsigned c = r->channels;
    const size_t base = slot * n * c;
    for (unsigned k = 0; k < c; k++) {
        const unsigned from = r->color == OQ_IMAGE_BGR ? c - 1 - k : k;
        double value[256];
        for (unsigned v = 0; v < 256; v++)
            value[v] = (v * r->scale - r->mean[k]) / r->std[k];
        for (size_t i = 0; i < n; i++) {
            const uint8_t v = im->p[i * c + from];
            const size_t at = base + (r->nhwc ? i * c + k : k * n + i);
            if (r->raw)
                ((uint8_t *)data)[at] = v;
            else
                store(r->input.dtype, data, at, value[v]);
        }
    }
}

static onq_code read_image(const image_reader *r, const char *path, oq_arena *a, uint64_t slot,
                           void *data, onq_error *err) {
    oq_str bytes;
    oq_image im, fitted;
    OQ_TRY(oq_file_read_all(a, path, r->most_bytes, &bytes, err));
    OQ_TRY(oq_image_decode(a, (const uint8_t *)bytes.p, bytes.n, OQ_IMAGE_PIXELS, &im, err));
    OQ_TRY(fit(r, a, &im, &fitted, err));
    if (r->channels == 3 || fitted.mode != OQ_MODE_L)
        OQ_TRY(oq_image_to_rgb(a, &fitted, err));
    if (r->channels == 1)
        oq_image_to_gray(&fitted);
    write_values(r, &fitted, slot, data);
    return ONQ_OK;
}

static onq_code read_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    image_reader *r = (image_reader *)base;
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 4);
    *name = oq_path_last(r->paths[number * r->batch]);
    OQ_TRY_ALLOC(dims != NULL, err);
    const int64_t c = r->channels, h = r->height, w = r->width;
    const int64_t chw[4] = {(int64_t)r->batch, c, h, w}, hwc[4] = {(int64_t)r->batch, h, w, c};
    memcpy(dims, r->nhwc ? hwc : chw, sizeof chw);
    oq_datum *d = &inputs[0];
    *d = (oq_datum){
        .kind = OQ_DATUM_TENSOR, .dtype = r->input.dtype, .rank = 4, .dims = dims, .count = 1};
    for (size_t i = 0; i < 4; i++)
        if (!oq_mul(d->count, (uint64_t)dims[i], &d->count))
            return oq_fail(err, ONQ_E_LIMIT, "the sample's size does not fit");
    if (!oq_dtype_bytes(d->dtype, d->count, &d->size_bytes) || d->size_bytes > r->most_bytes)
        return oq_fail(err, ONQ_E_LIMIT, "a sample is larger than %" PRIu64 " bytes",
                       r->most_bytes);
    void *data = oq_arena_alloc(a, d->size_bytes + 1);
    OQ_TRY_ALLOC(data != NULL, err);
    d->data = data;
    oq_arena scratch;
    for (uint64_t i = 0; i < r->batch; i++) {
        const char *path = r->paths[number * r->batch + i];
        *name = oq_path_last(path);
        oq_arena_init(&scratch, &r->env->alloc);
        onq_code rc = read_image(r, path, &scratch, i, data, err);
        oq_arena_release(&scratch);
        if (rc != ONQ_OK)
            return rc;
    }
    return ONQ_OK;
}

/* ---- what the model and the options say ---- */

static bool is_channels(const oq_io_dim *d) {
    return d->value == 1 || d->value == 3;
}

static onq_code find_input(const oq_reader_setup *s, image_reader *r, onq_error *err) {
    if (s->inputs.n != 1)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "images feed a model with one input, this one has %zu (use test_data_set "
                       "folders or .npz files)",
                       s->inputs.n);
    const oq_io *io = &s->inputs.v[0];
    const bool type_ok = oq_dtype_is_float(io->dtype) || io->dtype == OQ_UINT8;
    if (io->kind != OQ_DATUM_TENSOR || !io->has_shape || io->rank != 4 || !type_ok) {
        oq_buf text;
        oq_buf_init(&text, &s->env->alloc);
        oq_io_describe(io, &text);
        onq_code rc = oq_fail(err, ONQ_E_UNSUPPORTED,
                              "input '%.*s' is %s, images need four axes of FLOAT or UINT8",
                              OQ_STR(io->name), text.p != NULL ? text.p : "?");
        oq_buf_release(&text);
        return rc;
    }
    r->input = *io;
    r->raw = io->dtype == OQ_UINT8;
    return ONQ_OK;
}

static onq_code choose_side(int64_t given, const oq_io_dim *d, const char *what, uint32_t *out,
                            onq_error *err) {
    const int64_t v = given > 0 ? given : d->value;
    if (v < 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the model does not fix the image's %s (give --image-size HxW)", what);
    if (given > 0 && d->value >= 0 && given != d->value)
        return oq_fail(err, ONQ_E_OPTION,
                       "--image-size: %s %" PRId64 ", the model's input has %" PRId64, what, given,
                       d->value);
    if (v < 1 || v > MAX_SIDE)
        return oq_fail(err, ONQ_E_LIMIT, "images of %s %" PRId64 " (1 to %d are made)", what, v,
                       MAX_SIDE);
    *out = (uint32_t)v;
    return ONQ_OK;
}

static onq_code choose_layout(const oq_image_options *o, image_reader *r, onq_error *err) {
    const oq_io_dim *d = r->input.dims;
    if (o->layout == OQ_IMAGE_AUTO)
        r->nhwc = is_channels(&d[3]) && !is_channels(&d[1]);
    else
        r->nhwc = o->layout == OQ_IMAGE_NHWC;
    const oq_io_dim *channels = &d[r->nhwc ? 3 : 1];
    r->color = o->color;
    r->channels = o->color == OQ_IMAGE_GRAY ? 1 : 3;
    if (channels->value == 1 && o->color == OQ_IMAGE_RGB)
        r->channels = 1; /* the model says grey; rgb is only the default */
    if (channels->value >= 0 && channels->value != (int64_t)r->channels)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the model's input has %" PRId64 " channels, the images %u (see "
                       "--image-color, --image-layout)",
                       channels->value, r->channels);
    OQ_TRY(choose_side(o->height, &d[r->nhwc ? 1 : 2], "height", &r->height, err));
    OQ_TRY(choose_side(o->width, &d[r->nhwc ? 2 : 3], "width", &r->width, err));
    r->batch = d[0].value > 0 ? (uint64_t)d[0].value : 1;
    return ONQ_OK;
}

static onq_code choose_values(const oq_image_options *o, image_reader *r, onq_error *err) {
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    if (r->raw && (o->n_mean > 0 || o->n_std > 0 || o->has_scale))
        return oq_fail(err, ONQ_E_OPTION,
                       "the model's input is UINT8 and takes pixels as they are: no --image-mean, "
                       "--image-std or --image-scale");
    r->scale = o->has_scale ? o->scale : 1.0 / 255.0;
    for (unsigned k = 0; k < 3; k++) {
        /* BGR channels still use the mean and deviation of their own colour. */
        const unsigned rgb = r->color == OQ_IMAGE_BGR ? 2 - k : k;
        r->mean[k] = r->channels == 1 ? (mean[0] + mean[1] + mean[2]) / 3 : mean[rgb];
        r->std[k] = r->channels == 1 ? (std[0] + std[1] + std[2]) / 3 : std[rgb];
        /* What the user gives is in the order of the channels. */
        if (o->n_mean > 0)
            r->mean[k] = o->mean[o->n_mean == 1 ? 0 : k];
        if (o->n_std > 0)
            r->std[k] = o->std[o->n_std == 1 ? 0 : k];
        if (!(r->std[k] != 0))
            return oq_fail(err, ONQ_E_OPTION, "--image-std: a deviation cannot be 0");
    }
    return ONQ_OK;
}

/* "mean 127, deviation 128", one number where all channels have it. */
static void add_numbers(oq_buf *b, const char *what, const double *v, unsigned n) {
    const bool one = n == 1 || (v[0] == v[1] && v[1] == v[2]);
    oq_buf_addf(b, ", %s %.4g", what, v[0]);
    for (unsigned k = 1; k < n && !one; k++)
        oq_buf_addf(b, " %.4g", v[k]);
}

/* What becomes of an image, for the user to check. */
static onq_code describe(const oq_reader_setup *s, image_reader *r, onq_error *err) {
    static const char *const resize[] = {
        [OQ_IMAGE_STRETCH] = "stretch", [OQ_IMAGE_CROP] = "crop", [OQ_IMAGE_PAD] = "pad"};
    const oq_image_options *o = &s->o->image;
    oq_buf b;
    oq_buf_init(&b, &s->env->alloc);
    oq_buf_addf(&b, "%ux%u%s%s, %s", r->height, r->width, r->channels == 1 ? ", gray" : "",
                r->color == OQ_IMAGE_BGR ? ", BGR" : "", resize[r->resize]);
    if (r->raw) {
        oq_buf_adds(&b, ", pixels as they are");
    } else {
        if (!o->has_scale || r->scale == 1.0 / 255)
            oq_buf_adds(&b, ", 1/255");
        else
            oq_buf_addf(&b, ", times %.4g", r->scale);
        if (o->n_mean == 0 && o->n_std == 0) {
            oq_buf_adds(&b, ", ImageNet mean and deviation (default)");
        } else {
            add_numbers(&b, o->n_mean > 0 ? "mean" : "ImageNet mean", r->mean, r->channels);
            add_numbers(&b, o->n_std > 0 ? "deviation" : "ImageNet deviation", r->std, r->channels);
        }
    }
    r->base.about = b.failed ? NULL : oq_arena_strdup(s->arena, b.p, b.n);
    oq_buf_release(&b);
    return r->base.about != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_reader_open_images(const oq_reader_setup *s, const char *const *paths, size_t n,
                               oq_reader **out, onq_error *err) {
    image_reader *r = OQ_NEW(s->arena, image_reader);
    OQ_TRY_ALLOC(r != NULL, err);
    *r = (image_reader){.base = {.read = read_sample, .images = true},
                        .env = s->env,
                        .paths = paths,
                        .resize = s->o->image.resize,
                        .most_bytes = s->most_bytes};
    OQ_TRY(find_input(s, r, err));
    OQ_TRY(choose_layout(&s->o->image, r, err));
    OQ_TRY(choose_values(&s->o->image, r, err));
    OQ_TRY(describe(s, r, err));
    r->base.count = n / r->batch;
    if (r->base.count == 0)
        return oq_fail(err, ONQ_E_INVALID,
                       "the model needs %" PRIu64 " images for each sample, but there are only %zu",
                       r->batch, n);
    if (n % r->batch != 0)
        oq_warn(s->env, "the last %zu of %zu images are not used: a sample takes %" PRIu64,
                (size_t)(n % r->batch), n, r->batch);
    r->base.text = oq_str_format(s->arena, "%zu images", n).p;
    OQ_TRY_ALLOC(r->base.text != NULL, err);
    *out = &r->base;
    return ONQ_OK;
}
