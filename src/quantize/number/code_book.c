/*
 * code_book.c — see code_book.h.
 */
#include "quantize/number/code_book.h"

const float *oq_code_book(bool nf4) {
    static const float normal[16] = {-1.0f,
                                     -0.6961928009986877f,
                                     -0.5250730514526367f,
                                     -0.39491748809814453f,
                                     -0.28444138169288635f,
                                     -0.18477343022823334f,
                                     -0.09105003625154495f,
                                     0.0f,
                                     0.07958029955625534f,
                                     0.16093020141124725f,
                                     0.24611230194568634f,
                                     0.33791524171829224f,
                                     0.44070982933044434f,
                                     0.5626170039176941f,
                                     0.7229568362236023f,
                                     1.0f};
    /* A sign, and eight sizes in the order of their codes. */
    static const float plain[16] = {
        0.0f,  0.0052083333f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
        -0.0f, -0.0052083333f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
    return nf4 ? normal : plain;
}
