/*
 * number_text.h — numbers as text that reads back as the same number, and numbers from text.
 */
#ifndef OQ_BASE_NUMBER_TEXT_H
#define OQ_BASE_NUMBER_TEXT_H

#include "base/port.h"

/* The shortest text of a double (as Python's repr, without its ".0", save for "-0.0") into
 * b[32]. */
void oq_real_text(char *b, double v);
void oq_float_text(char *b, float v);

/* A finite decimal number, which is all of the text; with a point, whatever the locale. False if it
 * is something else. */
bool oq_real_read(const char *text, double *out);

#endif
