/*
 * testing.h — cmocka with the headers it wants before it.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

/* An onq_code that must be ONQ_OK; shows the message of `err` (an onq_error) when it is not. */
#define assert_ok(expr, err)                                                                       \
    do {                                                                                           \
        const int assert_ok_rc = (int)(expr);                                                      \
        if (assert_ok_rc != 0)                                                                     \
            fail_msg("%s: %d: %s", #expr, assert_ok_rc, (err).text);                               \
    } while (0)

/* An onq_code that must be `code` with a message that holds `part`. */
#define assert_fails(expr, wanted, err, part)                                                      \
    do {                                                                                           \
        const int assert_fails_rc = (int)(expr);                                                   \
        if (assert_fails_rc != (int)(wanted) || (int)(err).code != (int)(wanted))                  \
            fail_msg("%s: %d, wanted %s: %s", #expr, assert_fails_rc, #wanted, (err).text);        \
        if (strstr((err).text, (part)) == NULL)                                                    \
            fail_msg("%s: '%s' does not say '%s'", #expr, (err).text, (part));                     \
    } while (0)

/* No more than `most` seconds of CPU time since `start` (of clock()); a limit so wide that only work
 * that grows faster than its input breaks it. ONQ_TEST_LOOSE is set where a tool multiplies time and
 * memory. */
#define assert_cpu_seconds(start, most)                                                            \
    assert_true(getenv("ONQ_TEST_LOOSE") != NULL ||                                                \
                (double)(clock() - (start)) / CLOCKS_PER_SEC < (most))
