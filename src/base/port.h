/*
 * port.h — what differs between compilers and machines, in one place, and the headers of the C
 * library that every file may use. Those of POSIX are included where they are needed.
 *
 * ONNX files are little-endian and so are all machines onq is built for; the assert below keeps a
 * big-endian port from silently reading tensors the wrong way round.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define OQ_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define OQ_UNUSED            __attribute__((unused))
#define OQ_LIKELY(x)         __builtin_expect(!!(x), 1)
#define OQ_UNLIKELY(x)       __builtin_expect(!!(x), 0)
#else
#define OQ_PRINTF(fmt, args)
#define OQ_UNUSED
#define OQ_LIKELY(x)   (x)
#define OQ_UNLIKELY(x) (x)
#endif

/* A local variable that `release` gets a pointer to when its block is left; gcc and clang have
 * it. */
#define OQ_CLEANUP(release) __attribute__((cleanup(release)))

/* Functions for one kind of x86 processor; each has a portable twin. gcc 12's address sanitizer
 * does not align a frame to 64 bytes, so that vectors spilled to it fault: it watches the twins
 * instead. */
#if defined(__x86_64__)
#define OQ_AVX2   __attribute__((target("avx2")))
#define OQ_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"), no_sanitize_address))
#endif

#define OQ_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "onq reads tensors in place: little-endian");
#endif
static_assert(sizeof(float) == 4 && sizeof(double) == 8, "IEEE floats");
static_assert(sizeof(size_t) == 8, "models pass 4 GiB: 64-bit only");
