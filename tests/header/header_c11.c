/* header_c11.c — onq.h stands alone in a C11 program, and may be included twice. */
#include <onq/onq.h>

const char *header_c11(void);

const char *header_c11(void) {
    return onq_version();
}
