/*
 * nb_panel.h — for the methods: the values of a weight in pieces, and where their results go.
 *
 * Most methods look at one block at a time. They take *panels*: the rows of one block, up to
 * OQ_NB_TILE columns, as floats; oq_nb_panels goes through all of them in the order of the file and
 * gives back the pages that were read. A method that needs more than a block loads panels and puts
 * results itself (oq_nb_load, oq_nb_put).
 */
#pragma once

#include "base/system/cpu.h"
#include "quantize/nbits/nb_task.h"

#define OQ_NB_TILE 128

/* Block b of columns n0 to n0 + cols - 1 of one matrix. */
typedef struct oq_nb_panel {
    uint64_t batch, b, n0;
    size_t rows, cols; /* with the rows of zeros that pad it, where the method pads */
    const float *x;
    size_t stride; /* of a row of x */
    uint8_t *q;    /* rows of OQ_NB_TILE, to be filled */
    double scale[OQ_NB_TILE];
    float zero[OQ_NB_TILE];
    float *room; /* where x lies if it had to be made */
} oq_nb_panel;

/* Sums of squares: of weights, and of what quantization changes; times the mean squares of the
 * inputs where the task has them. */
typedef struct oq_nb_noise {
    double signal, noise;
} oq_nb_noise;

typedef struct oq_nb_sink {
    const oq_nb_task *task;
    /* Zeroed; of the sizes that the task says, but for integers that are packed: they come in `wide`
     * bits, oq_nb_wide_size bytes. */
    uint8_t *part[OQ_NB_PARTS];
    oq_nb_noise *noise; /* not NULL: nothing is stored, panels are measured */
} oq_nb_sink;

/* Room for panels of the task; release it. */
onq_code oq_nb_panel_init(oq_nb_panel *p, const oq_nb_task *t, onq_error *err);
void oq_nb_panel_release(oq_nb_panel *p, const oq_nb_task *t);
/* Reads block b from column n0 on. ONQ_E_INVALID when a value is not finite. */
onq_code oq_nb_load(const oq_nb_task *t, oq_nb_panel *p, uint64_t batch, uint64_t b, uint64_t n0,
                    onq_error *err);
/* Stores what the panel has in q, scale and zero. */
onq_code oq_nb_put(const oq_nb_sink *s, const oq_nb_panel *p, onq_error *err);

/* Number i of an array of a real type; false when it is not finite there. */
bool oq_nb_put_real(oq_dtype real, uint8_t *to, uint64_t i, double v);

typedef void (*oq_nb_panel_fn)(const oq_nb_task *t, oq_nb_panel *p, void *ctx);
/* Loads, quantizes by `fn` and stores all panels. With s == NULL nothing is stored. */
onq_code oq_nb_panels(const oq_nb_task *t, const oq_nb_sink *s, oq_nb_panel_fn fn, void *ctx,
                      onq_error *err);

/* A panel function from a body of inline functions, twice: for any machine, and for those with
 * AVX2. The bits are the same. OQ_NB_BEST(name) is the one for this machine. */
#define OQ_NB_INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__)
#define OQ_NB_PANEL(name, body)                                                                    \
    static void name##_plain(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {                     \
        body(t, p, ctx);                                                                           \
    }                                                                                              \
    OQ_AVX2 static void name##_avx2(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {              \
        body(t, p, ctx);                                                                           \
    }
#define OQ_NB_BEST(name) (oq_cpu_has(OQ_CPU_AVX2) ? name##_avx2 : name##_plain)
#else
#define OQ_NB_PANEL(name, body)                                                                    \
    static void name##_plain(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {                     \
        body(t, p, ctx);                                                                           \
    }
#define OQ_NB_BEST(name) name##_plain
#endif

/* The functions of the rows. */
onq_code oq_nb_default(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_rtn(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_fp4(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_nf4(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_hqq(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_k_quant(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_gptq(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);
onq_code oq_nb_range(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err);

/* ---- packed integers (nb_widen.c) ---- */

/* Bytes of the integers in `wide` bits. */
uint64_t oq_nb_wide_size(const oq_nb_task *t);
/* Packs integers of 4 bits, of which the first 2 or 3 count: n bytes to n * bits / 4. */
void oq_nb_pack(const uint8_t *wide, uint64_t n, unsigned bits, uint8_t *out);
