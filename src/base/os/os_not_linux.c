/*
 * os_not_linux.c — what Linux alone has, as the other systems answer for it. Of what --isolate needs
 * oq_os_can_isolate says that it is missing, and nothing else of it is reached.
 */
#include "base/os.h"
#include "base/system/confine.h"

/* ---- outputs ---- */

oq_handle oq_os_make_unnamed(oq_handle folder, char *path, size_t cap) {
    (void)folder;
    (void)path;
    (void)cap;
    errno = ENOTSUP;
    return OQ_NO_HANDLE;
}

bool oq_os_link_in(oq_handle h, oq_handle folder, const char *name) {
    (void)h;
    (void)folder;
    (void)name;
    errno = ENOTSUP;
    return false;
}

int64_t oq_os_copy(unsigned way, oq_handle out, oq_handle in, uint64_t at, size_t n) {
    (void)way;
    (void)out;
    (void)in;
    (void)at;
    (void)n;
    errno = ENOSYS;
    return -1;
}

void oq_os_start_disk(oq_handle h, uint64_t from, uint64_t n) {
    (void)h;
    (void)from;
    (void)n;
}

void oq_os_want_large_pages(void *p, size_t n) {
    (void)p;
    (void)n;
}

/* ---- isolation ---- */

bool oq_os_can_isolate(void) {
    return false;
}

static bool no_such_thing(void) {
    errno = ENOSYS;
    return false;
}

char **oq_os_variables(void) {
    static char *none[] = {NULL};
    return none;
}

bool oq_os_socket_pair(oq_handle ends[2]) {
    ends[0] = ends[1] = OQ_NO_HANDLE;
    return no_such_thing();
}

int64_t oq_os_send(oq_handle h, const void *p, size_t n) {
    (void)h;
    (void)p;
    (void)n;
    return (int64_t)no_such_thing() - 1;
}

int64_t oq_os_receive(oq_handle h, void *p, size_t n) {
    (void)h;
    (void)p;
    (void)n;
    return (int64_t)no_such_thing() - 1;
}

bool oq_os_wait_socket(oq_handle h, bool to_write, int milliseconds) {
    (void)h;
    (void)to_write;
    (void)milliseconds;
    return no_such_thing();
}

void oq_os_ask_to_end(const oq_process *p) {
    (void)p;
}

bool oq_os_has_ended(const oq_process *p, int milliseconds) {
    (void)p;
    (void)milliseconds;
    return no_such_thing();
}

const char *oq_os_signal_name(int number) {
    (void)number;
    return "";
}

void oq_os_end_with_parent(void) {
}

uint64_t oq_os_parent_id(void) {
    return 0;
}

void oq_os_close_from(int first) {
    (void)first;
}

onq_code oq_confine_self(const oq_confine *c, bool *files, onq_error *err) {
    (void)c;
    *files = false;
    return oq_fail(err, ONQ_E_UNSUPPORTED, "this system cannot limit a process as Linux can");
}
