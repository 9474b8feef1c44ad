/*
 * test_temp.c — memory that a temporary file holds: zeros, nobody sees the file, and where none can
 * be made an error says so.
 */
#include "base/system/temp.h"

#include "scratch.h"
#include "testing.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 3 << 20 };

static size_t names_in(const char *folder) {
    size_t n = 0;
    oq_listing *list = oq_os_list(folder);
    assert_non_null(list);
    while (oq_os_list_next(list) != NULL)
        n++;
    oq_os_list_close(list);
    return n;
}

static void zeros_without_a_name(void **state) {
    const char *folder = scratch_dir(*state, "t");
    onq_error err = ONQ_ERROR_INIT;
    oq_temp_memory a, b;
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    assert_ok(oq_temp_memory_make(&a, SIZE, &err), err);
    assert_ok(oq_temp_memory_make(&b, 1, &err), err);
#ifndef _WIN32
    assert_int_equal(names_in(folder), 0);
#endif
    const uint8_t *p = a.p;
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(p[i], 0);
    memset(a.p, 7, SIZE);
    assert_int_equal(((const uint8_t *)b.p)[0], 0);
    assert_int_equal(p[SIZE - 1], 7);
    oq_temp_memory_release(&a);
    oq_temp_memory_release(&b);
    assert_null(a.p);
    oq_temp_memory_release(&a); /* nothing */
    assert_int_equal(names_in(folder), 0);
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

static void no_place(void **state) {
    onq_error err = ONQ_ERROR_INIT;
    oq_temp_memory a;
    assert_int_equal(setenv("TMPDIR", scratch_path(*state, "none"), 1), 0);
    assert_fails(oq_temp_memory_make(&a, SIZE, &err), ONQ_E_WRITE, err, "TMPDIR");
    assert_null(a.p);
    assert_int_equal(setenv("TMPDIR", scratch_path(*state, "."), 1), 0);
    err = (onq_error)ONQ_ERROR_INIT; /* more than any disk has */
    assert_fails(oq_temp_memory_make(&a, (uint64_t)1 << 60, &err), ONQ_E_WRITE, err, "TMPDIR");
    assert_null(a.p);
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(zeros_without_a_name, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(no_place, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
