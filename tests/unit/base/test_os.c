/*
 * test_os.c — files that are removed while they are open or mapped: the name goes at the latest when
 * they are let go, and the folder with it. Only os.h is used, so that each system runs the same.
 */
#include "base/os.h"

#include "scratch.h"
#include "testing.h"

#include <sys/stat.h>

enum { SIZE = 5000 };

typedef struct held {
    oq_handle handle;
    const uint8_t *view;
} held;

static held hold(const char *path) {
    held h = {.handle = oq_os_open(path)};
    assert_true(h.handle != OQ_NO_HANDLE);
    h.view = oq_os_map(h.handle, SIZE);
    assert_non_null(h.view);
    return h;
}

static void let_go(held h) {
    oq_os_unmap(h.view, SIZE);
    oq_os_close(h.handle);
}

static bool is_there(const char *path) {
    return oq_os_may(path, OQ_IS_THERE);
}

static void folder_of_mapped_files(void **state) {
    scratch *s = *state;
    const char *folder = scratch_dir(s, "f");
    const char *a = scratch_file(s, "f/a", NULL, SIZE), *b = scratch_file(s, "f/b", NULL, SIZE);
    const held one = hold(a), two = hold(b);
    assert_true(oq_os_remove(a));
    assert_true(oq_os_remove(b));
    assert_true(oq_os_remove_folder(folder));
    assert_int_equal(one.view[SIZE - 1], 0); /* what is mapped stays readable */
    let_go(two);
    assert_false(is_there(b));
    assert_int_equal(one.view[0], 0);
    let_go(one);
    assert_false(is_there(a));
    assert_false(is_there(folder));
}

/* A view alone keeps the file; the handle was closed long before. */
static void folder_of_a_view(void **state) {
    scratch *s = *state;
    const char *folder = scratch_dir(s, "f"), *a = scratch_file(s, "f/a", NULL, SIZE);
    const held one = hold(a);
    oq_os_close(one.handle);
    assert_true(oq_os_remove(a));
    assert_true(oq_os_remove_folder(folder));
    oq_os_unmap(one.view, SIZE);
    assert_false(is_there(folder));
}

/* A folder with something else in it stays, also when that is removed later. */
static void folder_that_stays(void **state) {
    scratch *s = *state;
    const char *folder = scratch_dir(s, "f"), *a = scratch_file(s, "f/a", NULL, SIZE);
    const char *other = scratch_file(s, "f/other", NULL, 1);
    assert_false(oq_os_remove_folder(folder));
    const held one = hold(a);
    assert_true(oq_os_remove(a));
    (void)oq_os_remove_folder(folder); /* true where the system cannot know yet */
    let_go(one);
    assert_false(is_there(a));
    assert_true(is_there(other));
    assert_true(oq_os_remove(other));
    oq_os_close(oq_os_open(s->dir));
    assert_true(is_there(folder));
    assert_true(oq_os_remove_folder(folder));
}

/* A name that is used again belongs to the new file. */
static void name_used_again(void **state) {
    scratch *s = *state;
    const char *a = scratch_file(s, "a", NULL, SIZE), *b = scratch_file(s, "b", NULL, 7);
    const oq_handle folder = oq_os_open_out_folder(s->dir);
    assert_true(folder != OQ_NO_HANDLE);
    const held one = hold(a);
    oq_file_info info;
    assert_true(oq_os_remove(a));
    assert_true(oq_os_rename_in(folder, "b", "a", OQ_RENAME_REPLACE));
    let_go(one);
    oq_os_close(folder);
    assert_false(is_there(b));
    assert_true(oq_os_info_of(a, &info));
    assert_int_equal(info.size, 7);
}

/* "Removed" is said of no folder, of nothing that is not there, and of nothing that stays. */
static void what_cannot_be_removed(void **state) {
    scratch *s = *state;
    const char *folder = scratch_dir(s, "f"), *a = scratch_file(s, "a", NULL, SIZE);
    assert_false(oq_os_remove(folder));
    assert_false(oq_os_remove(scratch_path(s, "none")));
    assert_false(oq_os_remove_folder(scratch_path(s, "none")));
    assert_int_equal(chmod(a, 0444), 0); /* Windows alone keeps a file for that */
    const bool said = oq_os_remove(a);
    assert_int_equal(said, !is_there(a));
    (void)chmod(a, 0666);
    assert_true(is_there(folder));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    static const struct CMUnitTest tests[] = {
        TEST(folder_of_mapped_files), TEST(folder_of_a_view),       TEST(folder_that_stays),
        TEST(name_used_again),        TEST(what_cannot_be_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
