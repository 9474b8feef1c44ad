/*
 * kernels.c — loss that is not quantization but the runtime's integer kernels.
 *
 * x86 CPUs without VNNI add two products of a u8 and an s8 in 16 bits, which saturate. The model's
 * arithmetic (optimisation off: float between pairs) does not show it, the fused model does: a gap
 * between both on the same samples, on such a CPU, with weights that can reach it, is that.
 * reduce_range avoids it.
 */
#include "debug/debug.h"

#include "base/system/cpu.h"

#define GAP          3.0 /* dB between both runs that are worth a word */
#define LAYERS_SHOWN 20

bool oq_debug_sums_saturate_here(void) {
#if defined(__x86_64__)
    return !oq_cpu_has(OQ_CPU_AVX512_VNNI) && !oq_cpu_has(OQ_CPU_AVX_VNNI);
#else
    return false;
#endif
}

static size_t hot_layers(const oq_debug *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->weights.n; i++)
        n += d->weights.v[i].hot_pairs > 0;
    return n;
}

const oq_debug_output *oq_debug_kernel_gap(const oq_debug *d) {
    const oq_debug_output *worst = NULL;
    double most = GAP;
    for (size_t i = 0; d->has_kernel && i < d->outputs.n; i++) {
        const oq_debug_output *o = &d->outputs.v[i];
        if (o->plain.n == 0 || o->optimised.n == 0)
            continue;
        const double gap = oq_sums_sqnr(&o->plain) - oq_sums_sqnr(&o->optimised);
        if (gap > most) {
            most = gap;
            worst = o;
        }
    }
    return worst;
}

const oq_debug_output *oq_debug_kernel_loss(const oq_debug *d) {
    return d->cpu_saturates && hot_layers(d) > 0 ? oq_debug_kernel_gap(d) : NULL;
}

/* ---- words ---- */

static double hot_share(const oq_debug_weight *w) {
    assert(w->hot_pairs <= w->pairs);
    return w->hot_pairs > 0 ? (double)w->hot_pairs / (double)w->pairs : 0;
}

/* The weight with the largest share of such pairs after `last` (NULL: of all); of equals the one
 * that comes first. NULL: none is left. */
static const oq_debug_weight *next_hot(const oq_debug *d, const oq_debug_weight *last) {
    const oq_debug_weight *next = NULL;
    for (const oq_debug_weight *w = d->weights.v; w < d->weights.v + d->weights.n; w++) {
        const double share = hot_share(w);
        const bool after =
            last == NULL || share < hot_share(last) || (share <= hot_share(last) && w > last);
        if (share > 0 && after && (next == NULL || share > hot_share(next)))
            next = w;
    }
    return next;
}

/* Those with most such pairs first. */
static void layers_text(const oq_debug *d, size_t most, oq_buf *out) {
    const size_t n = hot_layers(d);
    const oq_debug_weight *w = NULL;
    for (size_t i = 0; i < most && (w = next_hot(d, w)) != NULL; i++) {
        oq_buf_adds(out, "  ");
        oq_buf_add_safe(out, w->node.n > 0 ? w->node : w->name);
        oq_buf_addf(out, "  %.2f %% of the pairs\n", 100 * hot_share(w));
    }
    if (n > most)
        oq_buf_addf(out, "  and %zu more (--json names them)\n", n - most);
}

void oq_debug_kernel_text(const oq_debug *d, oq_buf *out) {
    const oq_debug_output *gap = oq_debug_kernel_gap(d), *loss = oq_debug_kernel_loss(d);
    const size_t n = hot_layers(d);
    if (loss != NULL) {
        oq_buf_addf(
            out,
            "\nKernel saturation: with the runtime's optimisation the output SQNR is %.1f dB, in "
            "float %.1f dB.\nThe loss is not quantization but 16-bit sums of two u8 x s8 "
            "products, on x86 CPUs without VNNI like\nthis one (AVX2, AVX-512 before Cascade "
            "Lake; not ARM). --saturation_safe or --reduce_range avoids it. Layers\nthat can pass "
            "16 "
            "bits:\n",
            oq_sums_sqnr(&loss->optimised), oq_sums_sqnr(&loss->plain));
        layers_text(d, LAYERS_SHOWN, out);
        return;
    }
    if (gap != NULL)
        oq_buf_addf(out,
                    "\nWith the runtime's optimisation the output SQNR is %.1f dB, without it %.1f "
                    "dB; 16-bit sums are not the\ncause (%s).\n",
                    oq_sums_sqnr(&gap->optimised), oq_sums_sqnr(&gap->plain),
                    d->cpu_saturates ? "no weights reach them" : "this CPU has none");
    else
        oq_buf_adds(out, "\nThe runtime's optimised kernels lose nothing more on this machine.\n");
    if (n == 0)
        return;
    oq_buf_adds(out,
                "On x86 CPUs without VNNI (AVX2, AVX-512 before Cascade Lake) sums of two products "
                "can pass 16 bits in:\n");
    layers_text(d, 5, out);
    oq_buf_adds(
        out,
        "--saturation_safe avoids it there, and so does --reduce_range, which takes a bit from "
        "all weights.\n");
}

void oq_debug_kernel_json(const oq_debug *d, oq_jw *w) {
    oq_jw_bool(w, "kernel_saturation", oq_debug_kernel_loss(d) != NULL);
    oq_jw_begin_object(w, "kernels");
    oq_jw_bool(w, "cpu_saturates", d->cpu_saturates);
    oq_jw_uint(w, "samples", d->n_kernel);
    oq_jw_begin_array(w, "layers_past_16_bits");
    for (size_t i = 0; i < d->weights.n; i++)
        if (d->weights.v[i].hot_pairs > 0)
            oq_jw_str(w, NULL,
                      d->weights.v[i].node.n > 0 ? d->weights.v[i].node : d->weights.v[i].name);
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}
