/* header_cxx11.cpp — onq.h stands alone in a C++11 program, and may be included twice. */
#include <onq/onq.h>
#include <onq/onq.h>

const char *header_cxx11();

const char *header_cxx11() {
    return onq_version();
}
