/*
 * report.h — the page that report.html becomes, as bytes; the build makes them (cmake/embed.cmake).
 */
#ifndef OQ_DEBUG_REPORT_H
#define OQ_DEBUG_REPORT_H

#include "base/err.h"
#include "base/str.h"

extern const unsigned char oq_report_page[];
extern const size_t oq_report_page_size;

/* A page with JSON in its place for data. `html` ends in a NUL, which size does not count. */
onq_code oq_report_fill(const unsigned char *html, size_t size, const oq_buf *json, oq_buf *out,
                        onq_error *err);

#endif
