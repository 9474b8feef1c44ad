/*
 * window.h — the sliding window of convolutions and poolings: attributes read, sizes computed.
 */
#pragma once

#include "shape/infer.h"

#define OQ_WINDOW_AXES 16

typedef struct oq_window {
    size_t n; /* spatial axes */
    int64_t kernel[OQ_WINDOW_AXES];
    int64_t extent[OQ_WINDOW_AXES]; /* of the kernel with dilation */
    int64_t stride[OQ_WINDOW_AXES];
    int64_t head[OQ_WINDOW_AXES], tail[OQ_WINDOW_AXES]; /* padding */
    bool same;  /* auto_pad SAME_*: output = ceil(input / stride) */
    bool ceil;  /* ceil_mode */
    bool torch; /* ceil_mode drops a window that starts in the padding */
} oq_window;

/* Reads the attributes for n spatial axes. The kernel comes from kernel_shape or, when that is
 * absent, from `kernel` (n dims); *known is false when a kernel size is not a number. False after
 * oq_r_fail. */
bool oq_window_read(oq_rctx *c, oq_window *w, size_t n, const oq_sdim *kernel, bool *known);
/* Size of the output along axis i of an input of size d. */
oq_sdim oq_window_out(oq_rctx *c, const oq_window *w, size_t i, oq_sdim d);
/* The same for the transposed window. */
oq_sdim oq_window_out_transposed(oq_rctx *c, const oq_window *w, size_t i, oq_sdim d,
                                 int64_t output_padding);
