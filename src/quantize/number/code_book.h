/*
 * code_book.h — the values of the 4-bit floats of bitsandbytes, between -1 and 1.
 */
#pragma once

#include "base/port.h"

/* The 16 values of NF4, or of FP4, by their number. */
const float *oq_code_book(bool nf4);
