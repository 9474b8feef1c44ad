/*
 * fuzz_partial.c — any bytes as a calibration part: reading, joining with itself, finishing.
 *
 * The checksum is made right first, or nothing after it would be reached. Beyond "no crash": a
 * part that can be read is written again to the same bytes, and a refusal says why.
 */
#include "calibrate/method/method.h"
#include "calibrate/partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_again(const oq_collector *c, const oq_partial_meta *m, const uint8_t *p,
                        size_t n) {
    onq_error err = ONQ_ERROR_INIT;
    oq_buf b;
    oq_buf_init(&b, oq_alloc_default());
    if (oq_partial_encode(c, m, &b, &err) != ONQ_OK || b.n != n || memcmp(b.p, p, n) != 0) {
        fprintf(stderr, "not the bytes that were read: %s\n", err.text);
        abort();
    }
    oq_buf_release(&b);
}

static void finish(oq_collector *c, const oq_partial_meta *m) {
    onq_error err = ONQ_ERROR_INIT;
    oq_ranges r;
    if (oq_cal_class_of(c->options.method)->histogram) {
        for (size_t i = 0; i < c->n; i++)
            if (c->v[i].next.n_bins > 600 || c->v[i].hist.n_bins > 600)
                return; /* the search of Entropy takes the square of it */
        if (m->stage != OQ_STAGE_DONE && m->stage != OQ_STAGE_COUNT)
            return;
        if (oq_collect_end_chunk(c, &err) != ONQ_OK)
            abort();
    }
    if (oq_collect_finish(c, &r, &err) == ONQ_OK)
        oq_ranges_release(&r);
    else if (err.text[0] == '\0')
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 12)
        return 0;
    uint8_t *p = malloc(size);
    if (p == NULL)
        return 0;
    memcpy(p, data, size);
    memcpy(p, "ONQPART2", 8);
    const uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), p + 12, size - 12);
    memcpy(p + 8, &crc, sizeof crc);
    onq_env *env = onq_env_new(NULL);
    onq_env_set_threads(env, 1);
    onq_error err = ONQ_ERROR_INIT;
    oq_collector c, other;
    oq_partial_meta m, n;
    if (oq_partial_parse(&c, &m, env, p, size, &err) == ONQ_OK) {
        write_again(&c, &m, p, size);
        if (oq_partial_parse(&other, &n, env, p, size, &err) != ONQ_OK)
            abort();
        (void)oq_collect_merge(&c, &other, &err);
        oq_collect_release(&other);
        finish(&c, &m);
        oq_collect_release(&c);
    } else if (err.text[0] == '\0') {
        abort();
    }
    onq_env_free(env);
    free(p);
    return 0;
}
