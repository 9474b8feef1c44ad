/*
 * image_jpeg.c — JPEG through libjpeg-turbo.
 *
 * The library reports errors by a call that must not return, so each decode runs between setjmp and
 * longjmp; nothing that must be freed is made in between but the library's own memory. Data that
 * ends too early is an error (the library would fill up with grey); other damage that it can live
 * with is accepted, as Pillow accepts it.
 */
#include "samples/files/image.h"

#include <setjmp.h>

#include <jpeglib.h>

enum { MAX_SCANS = 100 };

typedef struct decoder {
    struct jpeg_decompress_struct j; /* first: the library hands it back */
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
    onq_code code;
    unsigned orientation;
} decoder;

static void on_error(j_common_ptr j) {
    decoder *d = (decoder *)j;
    d->code = ONQ_E_MALFORMED;
    d->errors.format_message(j, d->text);
    longjmp(d->back, 1);
}

static void on_message(j_common_ptr j OQ_UNUSED, int level OQ_UNUSED) {
}

static void no_output(j_common_ptr j OQ_UNUSED) {
}

static void init_source(j_decompress_ptr j OQ_UNUSED) {
}

static boolean fill_buffer(j_decompress_ptr j) {
    decoder *d = (decoder *)j;
    d->code = ONQ_E_MALFORMED;
    snprintf(d->text, sizeof d->text, "the image is cut off");
    longjmp(d->back, 1);
}

static void skip_data(j_decompress_ptr j, long n) {
    decoder *d = (decoder *)j;
    if (n <= 0)
        return;
    if ((size_t)n > d->source.bytes_in_buffer)
        (void)fill_buffer(j);
    d->source.next_input_byte += n;
    d->source.bytes_in_buffer -= (size_t)n;
}

static unsigned find_orientation(const struct jpeg_decompress_struct *j) {
    for (jpeg_saved_marker_ptr m = j->marker_list; m != NULL; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && memcmp(m->data, "Exif\0", 6) == 0)
            return oq_exif_orientation(m->data + 6, m->data_length - 6);
    return 1;
}

static void fail(decoder *d, onq_code code, const char *text) {
    d->code = code;
    snprintf(d->text, sizeof d->text, "%s", text);
    longjmp(d->back, 1);
}

/* What the pixels will be. */
static oq_image_mode choose_mode(decoder *d) {
    switch (d->j.jpeg_color_space) {
    case JCS_GRAYSCALE:
        d->j.out_color_space = JCS_GRAYSCALE;
        return OQ_MODE_L;
    case JCS_RGB:
    case JCS_YCbCr:
        d->j.out_color_space = JCS_RGB;
        return OQ_MODE_RGB;
    case JCS_CMYK:
    case JCS_YCCK:
        d->j.out_color_space = JCS_CMYK;
        return OQ_MODE_CMYK;
    default:
        fail(d, ONQ_E_UNSUPPORTED, "the colour space of the JPEG is not supported");
        return OQ_MODE_L;
    }
}

/* A progressive image is gone over once for each scan. Programs write about ten of them; a small
 * file can have thousands. */
static void check_scans(j_common_ptr j) {
    decoder *d = (decoder *)j;
    if (d->j.input_scan_number > MAX_SCANS)
        fail(d, ONQ_E_LIMIT, "the image comes in too many scans");
}

static void decode(decoder *d, oq_arena *a, uint64_t most_pixels, oq_image *out) {
    struct jpeg_decompress_struct *j = &d->j;
    jpeg_save_markers(j, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(j, TRUE);
    if ((uint64_t)j->image_width * j->image_height > most_pixels) {
        d->code = ONQ_E_LIMIT;
        snprintf(d->text, sizeof d->text,
                 "the image has %u x %u pixels, more than the limit of %" PRIu64, j->image_width,
                 j->image_height, most_pixels);
        longjmp(d->back, 1);
    }
    d->orientation = find_orientation(j);
    out->mode = choose_mode(d);
    out->width = j->image_width;
    out->height = j->image_height;
    const size_t row = (size_t)out->width * oq_image_channels(out);
    out->p = oq_arena_array(a, out->height, row);
    if (out->p == NULL)
        fail(d, ONQ_E_NOMEM, "out of memory");
    jpeg_start_decompress(j);
    if (j->output_width != out->width || j->output_height != out->height ||
        (unsigned)j->output_components != oq_image_channels(out))
        fail(d, ONQ_E_MALFORMED, "the JPEG contradicts its own size");
    while (j->output_scanline < j->output_height) {
        JSAMPROW line = out->p + row * j->output_scanline;
        jpeg_read_scanlines(j, &line, 1);
    }
}

onq_code oq_image_decode_jpeg(oq_arena *a, const uint8_t *p, size_t n, uint64_t most_pixels,
                              oq_image *out, onq_error *err) {
    decoder d;
    memset(&d, 0, sizeof d);
    *out = (oq_image){0};
    d.orientation = 1;
    d.j.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.errors.output_message = no_output;
    if (setjmp(d.back) == 0) {
        jpeg_create_decompress(&d.j);
        d.source = (struct jpeg_source_mgr){.next_input_byte = p,
                                            .bytes_in_buffer = n,
                                            .init_source = init_source,
                                            .fill_input_buffer = fill_buffer,
                                            .skip_input_data = skip_data,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = init_source};
        d.j.src = &d.source;
        d.progress.progress_monitor = check_scans;
        d.j.progress = &d.progress;
        decode(&d, a, most_pixels, out);
    }
    jpeg_destroy_decompress(&d.j);
    if (d.code != ONQ_OK)
        return oq_fail(err, d.code, "JPEG: %s", d.text);
    /* Adobe's programs store ink upside down; Pillow takes all CMYK files to be theirs. */
    for (size_t i = 0; out->mode == OQ_MODE_CMYK && i < 4 * (size_t)out->width * out->height; i++)
        out->p[i] = (uint8_t)(255 - out->p[i]);
    return oq_image_orient(a, out, d.orientation, err);
}
