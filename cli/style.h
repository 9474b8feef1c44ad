/*
 * style.h — colour, on a terminal only: never in a file or a pipe, not with TERM=dumb, and not
 * where NO_COLOR is set (no-color.org).
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

enum style { STYLE_NONE, STYLE_HEADING, STYLE_ERROR, STYLE_WARNING };

/* True if the stream is a terminal that moves its cursor: more than TERM=dumb. */
bool style_is_terminal(FILE *f);
/* Prints the text in its style where the stream has colour, and as it is elsewhere. */
void style_print(FILE *f, enum style style, const char *text);
