/*
 * number_text.h — numbers as text that reads back as the same number, and numbers from text.
 */
#pragma once

#include "base/port.h"

#define OQ_NUMBER_TEXT 48 /* room for any of these, and for what is copied past its end */

/* The shortest text of a double (as Python's repr, without its ".0", save for "-0.0") into
 * b[OQ_NUMBER_TEXT]. Returns its length, as the others. */
size_t oq_real_text(char b[static OQ_NUMBER_TEXT], double v);
size_t oq_float_text(char b[static OQ_NUMBER_TEXT], float v);
/* As Python's repr. */
size_t oq_python_text(char b[static OQ_NUMBER_TEXT], double v);
size_t oq_int_text(char b[static OQ_NUMBER_TEXT], int64_t v);
size_t oq_uint_text(char b[static OQ_NUMBER_TEXT], uint64_t v);
/* "18.9 MB": powers of 1000. Returns b. */
const char *oq_size_text(char b[static 32], uint64_t bytes);

/* A finite decimal number, which is all of the text; with a point, whatever the locale. False if it
 * is something else. */
bool oq_real_read(const char *text, double *out);
