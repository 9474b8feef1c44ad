/*
 * report.h — the page that report.html becomes, as bytes; the build makes them (cmake/embed.cmake).
 */
#ifndef OQ_DEBUG_REPORT_H
#define OQ_DEBUG_REPORT_H

#include <stddef.h>

extern const unsigned char oq_report_page[];
extern const size_t oq_report_page_size;

#endif
