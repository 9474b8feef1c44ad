/*
 * style.c — see style.h.
 */
#include "style.h"

#include "base/os_program.h"

#include <stdlib.h>
#include <string.h>

bool style_is_terminal(FILE *f) {
    const char *term = getenv("TERM");
    return oq_program_is_terminal(f) && (term == NULL || strcmp(term, "dumb") != 0);
}

static bool has_color(FILE *f) {
    const char *no = getenv("NO_COLOR");
    return (no == NULL || no[0] == '\0') && style_is_terminal(f);
}

void style_print(FILE *f, enum style style, const char *text) {
    static const char *const codes[] = {
        [STYLE_HEADING] = "\033[1m", [STYLE_ERROR] = "\033[1;31m", [STYLE_WARNING] = "\033[1;33m"};
    if (style == STYLE_NONE || !has_color(f))
        fputs(text, f);
    else
        fprintf(f, "%s%s\033[0m", codes[style], text);
}
