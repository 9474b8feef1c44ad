/*
 * guard.h — an input that shrinks while it is read is an error, not a crash.
 */
#pragma once

/* From now on a page that a mapped file has lost reads as zeros. */
void guard_install(void);
/* The path of the first file that lost a page, or NULL. Nothing computed from it can be trusted. */
const char *guard_shrunk(void);
