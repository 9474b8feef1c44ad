/*
 * os_program_guard.h — what os_program_guard.c needs from each system.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The path of the file that is mapped at an address, fit for a terminal; false: none is. A signal
 * handler calls it, so it may do little else than read. */
bool oq_program_file_at(uintptr_t address, char *out, size_t cap);
