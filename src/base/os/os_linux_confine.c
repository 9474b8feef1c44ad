/*
 * os_linux_confine.c — see confine.h. System calls that the C library has no functions for.
 */
#include "base/system/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- memory ---- */

/* A sanitizer takes terabytes of address space, all of which counts. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITS_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LIMITS_MEMORY 0
#endif
#endif
#ifndef LIMITS_MEMORY
#define LIMITS_MEMORY 1
#endif

static onq_code limit_memory(uint64_t bytes, onq_error *err) {
    const struct rlimit none = {0, 0};
    struct rlimit now;
    if (setrlimit(RLIMIT_CORE, &none) != 0 || getrlimit(RLIMIT_DATA, &now) != 0)
        return oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "limits cannot be set");
    if (!LIMITS_MEMORY || bytes == 0 || (now.rlim_max != RLIM_INFINITY && now.rlim_max <= bytes))
        return ONQ_OK;
    const struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    return setrlimit(RLIMIT_DATA, &limit) == 0
               ? ONQ_OK
               : oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "memory cannot be limited");
}

/* ---- files ---- */

/* The numbers are the kernel's; its header may be older than the kernel, or missing. */
enum {
    FS_WRITE_FILE = 1 << 1,
    FS_REMOVE_DIR = 1 << 4,
    FS_REMOVE_FILE = 1 << 5,
    FS_MAKE_ALL = 0x7f << 6, /* char, dir, regular, socket, fifo, block, symbolic link */
    FS_REFER = 1 << 13,
    FS_TRUNCATE = 1 << 14,
    NET_TCP = 3,   /* bind, connect */
    SCOPE_ALL = 3, /* abstract sockets, signals */
    RULE_BENEATH = 1,
    CREATE_VERSION = 1,
};
#ifdef SYS_landlock_create_ruleset
#define LANDLOCK_CALLS 1
#else
#define LANDLOCK_CALLS 0
#endif

#if LANDLOCK_CALLS

typedef struct ruleset {
    uint64_t fs, net, scoped;
} ruleset;

typedef struct beneath {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed)) beneath;

static onq_code allow(int rules, const char *path, uint64_t rights, onq_error *err) {
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: cannot be opened", path);
    const beneath rule = {rights, fd};
    const long rc = syscall(SYS_landlock_add_rule, rules, RULE_BENEATH, &rule, 0);
    const int why = errno;
    close(fd);
    return rc == 0 ? ONQ_OK : oq_fail_errno(err, ONQ_E_UNSUPPORTED, why, "%s", path);
}

static onq_code allow_all(const oq_confine *c, int rules, uint64_t rights, onq_error *err) {
    for (size_t i = 0; i < c->n_folders; i++)
        OQ_TRY(allow(rules, c->folders[i], rights, err));
    OQ_TRY(allow(rules, "/dev/null", rights & (FS_WRITE_FILE | FS_TRUNCATE), err));
    return syscall(SYS_landlock_restrict_self, rules, 0) == 0
               ? ONQ_OK
               : oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "files cannot be limited");
}

static onq_code limit_files(const oq_confine *c, bool *done, onq_error *err) {
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, CREATE_VERSION);
    *done = version > 0;
    if (!*done)
        return ONQ_OK;
    ruleset all = {.fs = FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_ALL};
    all.fs |= version >= 2 ? FS_REFER : 0;
    all.fs |= version >= 3 ? FS_TRUNCATE : 0;
    all.net = version >= 4 ? NET_TCP : 0;
    all.scoped = version >= 6 ? SCOPE_ALL : 0;
    const size_t size = version >= 6 ? sizeof all : version >= 4 ? 16 : 8;
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
    if (rules < 0)
        return oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "files cannot be limited");
    const onq_code rc = allow_all(c, rules, all.fs, err);
    close(rules);
    return rc;
}

#else

static onq_code limit_files(const oq_confine *c OQ_UNUSED, bool *done, onq_error *err OQ_UNUSED) {
    *done = false;
    return ONQ_OK;
}

#endif

/* ---- network and other processes ---- */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE AUDIT_ARCH_RISCV64
#endif

#ifdef ARCHITECTURE

/* io_uring makes sockets and opens files past these checks. */
static const int denied[] = {
    SYS_socket,      SYS_io_uring_setup,   SYS_io_uring_enter,    SYS_io_uring_register,
    SYS_ptrace,      SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
    SYS_bpf,         SYS_perf_event_open,  SYS_userfaultfd,       SYS_add_key,
    SYS_keyctl,      SYS_request_key,      SYS_unshare,           SYS_setns,
    SYS_mount,       SYS_umount2,          SYS_pivot_root,        SYS_chroot,
#ifdef SYS_pidfd_getfd
    SYS_pidfd_getfd,
#endif
};

enum { COUNT = sizeof denied / sizeof denied[0], HEAD = 4 };

static onq_code limit_calls(onq_error *err) {
    struct sock_filter code[HEAD + COUNT + 2];
    const uint32_t refuse = SECCOMP_RET_ERRNO | EACCES;
    unsigned n = 0;
    /* Calls of another architecture, or of the one with short pointers, are refused. */
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 0, COUNT + 2);
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, COUNT + 1, 0);
    for (unsigned i = 0; i < COUNT; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denied[i],
                                                 (uint8_t)(COUNT - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refuse);
    const struct sock_fprog program = {(unsigned short)n, code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
               ? ONQ_OK
               : oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "the network cannot be turned off");
}

#else

static onq_code limit_calls(onq_error *err) {
    return oq_fail(err, ONQ_E_UNSUPPORTED, "the network cannot be turned off on this architecture");
}

#endif

onq_code oq_confine_self(const oq_confine *c, bool *files, onq_error *err) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "privileges cannot be given up");
    OQ_TRY(limit_memory(c->memory, err));
    OQ_TRY(limit_files(c, files, err));
    return limit_calls(err);
}
