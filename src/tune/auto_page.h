/*
 * auto_page.h — the page that auto_page.html becomes, as bytes; the build makes them
 * (cmake/embed.cmake).
 */
#pragma once

#include "base/port.h"

extern const unsigned char oq_auto_page[];
extern const size_t oq_auto_page_size;
