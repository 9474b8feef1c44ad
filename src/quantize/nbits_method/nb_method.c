/*
 * nb_method.c — the methods. A new one is a row here and a function that quantizes one weight
 * (nb_task.h).
 */
#include "quantize/nbits/nb_panel.h"

#define BITS(n) (1u << (n))

const oq_nb_method oq_nb_methods[OQ_NB_METHODS] = {
    [OQ_NB_DEFAULT] = {.name = "default",
                       .bits = BITS(2) | BITS(3) | BITS(4) | BITS(8),
                       .keeps_odd = true,
                       .has_gather = true,
                       .quantize = oq_nb_default},
    [OQ_NB_RTN] = {.name = "rtn",
                   .bits = BITS(4) | BITS(8),
                   .pads = true,
                   .as_intel = true,
                   .quantize = oq_nb_rtn},
    [OQ_NB_K_QUANT] = {.name = "k_quant",
                       .bits = BITS(4) | BITS(8),
                       .pads = true,
                       .as_intel = true,
                       .always_zero = true,
                       .quantize = oq_nb_k_quant},
    [OQ_NB_HQQ] = {.name = "hqq",
                   .bits = BITS(2) | BITS(4) | BITS(8),
                   .pads = true,
                   .real_zero = true,
                   .quantize = oq_nb_hqq},
    [OQ_NB_GPTQ] = {.name = "gptq",
                    .bits = BITS(2) | BITS(3) | BITS(4) | BITS(8),
                    .needs_samples = true,
                    .by_hessian = true,
                    .quantize = oq_nb_gptq},
    [OQ_NB_GPTQ_HQQ] = {.name = "gptq_hqq",
                        .bits = BITS(2) | BITS(4) | BITS(8),
                        .real_zero = true,
                        .needs_samples = true,
                        .by_hessian = true,
                        .quantize = oq_nb_gptq},
    [OQ_NB_AWQ] = {.name = "awq",
                   .bits = BITS(2) | BITS(3) | BITS(4) | BITS(8),
                   .needs_samples = true,
                   .quantize = oq_nb_range},
    [OQ_NB_RANGE] = {.name = "range",
                     .bits = BITS(2) | BITS(3) | BITS(4) | BITS(8),
                     .has_gather = true,
                     .quantize = oq_nb_range},
    [OQ_NB_RANGE_REAL] = {.name = "range_real",
                          .bits = BITS(4) | BITS(8),
                          .real_zero = true,
                          .quantize = oq_nb_range},
};

const oq_nb_method oq_nb_bnb4_methods[OQ_NB_BNB4_METHODS] = {
    [OQ_NB_FP4] = {.name = "fp4", .bits = BITS(4), .quantize = oq_nb_fp4},
    [OQ_NB_NF4] = {.name = "nf4", .bits = BITS(4), .quantize = oq_nb_nf4},
};

const oq_nb_method *oq_nb_without_samples(const oq_nb_method *m) {
    return !m->needs_samples ? m : &oq_nb_methods[m->real_zero ? OQ_NB_RANGE_REAL : OQ_NB_RANGE];
}
