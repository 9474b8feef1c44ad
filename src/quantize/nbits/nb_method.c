/*
 * nb_method.c — the methods. A new one is a row here and a function that quantizes one weight
 * (nb_task.h).
 */
#include "quantize/nbits/nb_task.h"

#define BITS(n) (1u << (n))

const oq_nb_method oq_nb_methods[] = {
    {.name = "default",
     .bits = BITS(2) | BITS(4) | BITS(8),
     .keeps_odd = true,
     .in_order = true,
     .has_gather = true,
     .quantize = oq_nb_default},
    {.name = "rtn", .bits = BITS(4) | BITS(8), .pads = true, .quantize = oq_nb_rtn},
    {.name = "k_quant",
     .bits = BITS(4) | BITS(8),
     .pads = true,
     .always_zero = true,
     .quantize = oq_nb_k_quant},
    {.name = "hqq",
     .bits = BITS(2) | BITS(4) | BITS(8),
     .pads = true,
     .in_order = true,
     .real_zero = true,
     .quantize = oq_nb_hqq},
    {.name = "gptq",
     .bits = BITS(2) | BITS(4) | BITS(8),
     .in_order = true,
     .needs_samples = true,
     .quantize = oq_nb_gptq},
    {.name = "awq",
     .bits = BITS(2) | BITS(4) | BITS(8),
     .in_order = true,
     .needs_samples = true,
     .quantize = oq_nb_awq},
    {.name = NULL},
};

const oq_nb_method oq_nb_bnb4_methods[2] = {
    {.name = "fp4", .bits = BITS(4), .in_order = true, .quantize = oq_nb_fp4},
    {.name = "nf4", .bits = BITS(4), .in_order = true, .quantize = oq_nb_nf4},
};
