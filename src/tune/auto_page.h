/*
 * auto_page.h — the page that auto_page.html becomes, as bytes; the build makes them
 * (cmake/embed.cmake).
 */
#ifndef OQ_TUNE_AUTO_PAGE_H
#define OQ_TUNE_AUTO_PAGE_H

#include <stddef.h>

extern const unsigned char oq_auto_page[];
extern const size_t oq_auto_page_size;

#endif
