"""The system calls of a server with the errors that their manual pages list.

`strace` shows the calls over the whole life of a server: start, load onto flash, checkpoint, stop and restart, with and without
io_uring. Each call can fail with EPERM and ENOSYS as well, the errors of filters.
"""

import os

ERRORS = {
    "accept4": "EAGAIN EBADF ECONNABORTED EFAULT EINTR EINVAL EMFILE ENFILE ENOBUFS ENOMEM ENOTSOCK EOPNOTSUPP EPROTO",
    "access": "EACCES EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EROFS",
    "bind": "EACCES EADDRINUSE EADDRNOTAVAIL EBADF EFAULT EINVAL ENOTSOCK",
    "brk": "ENOMEM",
    "clone3": "EACCES EAGAIN EBUSY EEXIST EINVAL ENOMEM ENOSPC EOPNOTSUPP EUSERS",
    "close": "EBADF EINTR EIO ENOSPC",
    "epoll_create1": "EINVAL EMFILE ENFILE ENOMEM",
    "epoll_ctl": "EBADF EEXIST EINVAL ELOOP ENOENT ENOMEM ENOSPC",
    "epoll_pwait": "EBADF EFAULT EINTR EINVAL",
    "eventfd2": "EINVAL EMFILE ENFILE ENODEV ENOMEM",
    "fallocate": "EBADF EFBIG EINTR EINVAL EIO ENODEV ENOSPC EOPNOTSUPP ESPIPE ETXTBSY",
    "fchmod": "EBADF EIO ENOMEM EROFS",
    "fcntl": "EACCES EAGAIN EBADF EBUSY EDEADLK EFAULT EINTR EINVAL EMFILE ENOLCK",
    "fdatasync": "EBADF EDQUOT EINTR EINVAL EIO ENOSPC EROFS",
    "fstat": "EBADF EFAULT ENOMEM EOVERFLOW",
    "fstatfs": "EBADF EFAULT EINTR EIO ENOMEM EOVERFLOW",
    "ftruncate": "EBADF EFBIG EINTR EINVAL EIO ETXTBSY",
    "futex": "EACCES EAGAIN EFAULT EINTR EINVAL ENFILE ENOMEM ESRCH ETIMEDOUT",
    "getrandom": "EAGAIN EFAULT EINTR EINVAL",
    "getrusage": "EFAULT EINVAL",
    "getsockname": "EBADF EFAULT EINVAL ENOBUFS ENOTSOCK",
    "gettid": "",
    "io_uring_enter": "EAGAIN EBADF EBADFD EBADR EBUSY EFAULT EINTR EINVAL ENXIO EOPNOTSUPP",
    "io_uring_register": "EBADF EBADFD EBUSY EFAULT EINVAL EMFILE ENOMEM ENXIO EOPNOTSUPP",
    "io_uring_setup": "EFAULT EINVAL EMFILE ENFILE ENOMEM",
    "ioctl": "EBADF EFAULT EINVAL ENOTTY",
    "listen": "EADDRINUSE EBADF ENOTSOCK EOPNOTSUPP",
    "lseek": "EBADF EINVAL ENXIO EOVERFLOW ESPIPE",
    "madvise": "EACCES EAGAIN EBADF EBUSY EINVAL EIO ENOMEM",
    "memfd_create": "EFAULT EINVAL EMFILE ENFILE ENOMEM",
    "mmap": "EACCES EAGAIN EBADF EINVAL ENFILE ENODEV ENOMEM EOVERFLOW",
    "mprotect": "EACCES EINVAL ENOMEM",
    "munmap": "EINVAL ENOMEM",
    "openat": "EACCES EBUSY EDQUOT EEXIST EINTR EINVAL EISDIR ELOOP EMFILE ENAMETOOLONG ENFILE ENODEV ENOENT ENOMEM ENOSPC ENXIO EROFS ETXTBSY",
    "pipe2": "EFAULT EINVAL EMFILE ENFILE ENOPKG",
    "prctl": "EACCES EBADF EBUSY EFAULT EINVAL ENODEV ENXIO EOPNOTSUPP ERANGE",
    "pread64": "EAGAIN EBADF EFAULT EINTR EINVAL EIO EISDIR ENXIO EOVERFLOW ESPIPE",
    "prlimit64": "EFAULT EINVAL ESRCH",
    "pwrite64": "EAGAIN EBADF EDQUOT EFAULT EFBIG EINTR EINVAL EIO ENOSPC ENXIO EOVERFLOW ESPIPE",
    "read": "EAGAIN EBADF EFAULT EINTR EINVAL EIO",
    "readlink": "EACCES EFAULT EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR",
    "recvfrom": "EAGAIN EBADF ECONNREFUSED ECONNRESET EFAULT EINTR EINVAL ENOMEM ENOTCONN ENOTSOCK",
    "rseq": "EBUSY EFAULT EINVAL",
    "rt_sigprocmask": "EFAULT EINVAL",
    "sched_getaffinity": "EFAULT EINVAL ESRCH",
    "sched_yield": "",
    "sendto": "EACCES EAGAIN EBADF ECONNRESET EFAULT EINTR EINVAL EMSGSIZE ENOBUFS ENOMEM ENOTCONN ENOTSOCK EOPNOTSUPP EPIPE",
    "set_robust_list": "EFAULT EINVAL ESRCH",
    "setsockopt": "EBADF EFAULT EINVAL ENOPROTOOPT ENOTSOCK",
    "shutdown": "EBADF EINVAL ENOTCONN ENOTSOCK",
    "sigaltstack": "EFAULT EINVAL ENOMEM",
    "socket": "EACCES EAFNOSUPPORT EINVAL EMFILE ENFILE ENOBUFS ENOMEM EPROTONOSUPPORT",
    "socketpair": "EAFNOSUPPORT EFAULT EMFILE ENFILE EOPNOTSUPP EPROTONOSUPPORT",
    "statx": "EACCES EBADF EFAULT EINVAL ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR",
    "sysinfo": "EFAULT",
    "timerfd_create": "EINVAL EMFILE ENFILE ENODEV ENOMEM",
    "timerfd_settime": "EBADF ECANCELED EFAULT EINVAL",
    "uname": "EFAULT",
    "unlink": "EACCES EBUSY EFAULT EIO EISDIR ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR EROFS",
    "write": "EAGAIN EBADF EDQUOT EFAULT EFBIG EINTR EINVAL EIO ENOSPC EPIPE",
}

# Made with io_uring alone, and without it alone.
OF_RING = {"io_uring_enter", "io_uring_register", "io_uring_setup", "memfd_create", "socketpair"}
OF_FALLBACK = {"epoll_ctl", "epoll_pwait", "fdatasync", "timerfd_create", "timerfd_settime"}

# Calls of a server under load, with a ring (`False`) and without (`True`).
OF_LOAD = {
    False: """accept4 brk close fstat io_uring_enter ioctl lseek madvise mmap mprotect pwrite64 read sched_yield sendto setsockopt
write""".split(),
    True: """accept4 brk clone3 close epoll_ctl epoll_pwait fdatasync fstat gettid lseek madvise mmap mprotect munmap openat prctl
pread64 pwrite64 read recvfrom rseq rt_sigprocmask sched_getaffinity sched_yield sendto set_robust_list setsockopt sigaltstack
timerfd_settime write""".split(),
}

# Made seldom in one of the two ways: when a client is slow to read, and when the allocator counts the cores. Programs with
# debug assertions check descriptors before they close them.
# With a ring, files are written by threads of the pool, which are started once. Their start is tried without a ring.
OF_THREADS = set("clone3 gettid munmap prctl rseq rt_sigprocmask sched_getaffinity set_robust_list sigaltstack".split())
RARE = {"fcntl", "ioctl", "openat"} | OF_THREADS

# Locks take the errors of a wait from a wait alone, and `strace` cannot tell a wait from a wake. The kernel makes the other one of
# a wait that the start of `strace` has interrupted.
NOT_TRIED = {"futex", "restart_syscall"}

# Without these calls the loader, the C library or the runtime of Rust does not come as far as the program, or no line can be
# written. `rt_sigaction` is one of them: the runtime of Rust aborts before `main`.
OF_LOADER = {"brk", "close", "futex", "mmap", "mprotect", "munmap", "openat", "pread64", "read", "write"}

# A client is served by these calls alone. They are tried under load.
OF_CLIENTS = {"accept4", "recvfrom", "sendto"}

# One out of so many cases is tried.
SHARE = int(os.environ.get("REFUSED_CALLS_SHARE", "1"))


def share(calls, left_out=frozenset()):
    """The share that is tried of `calls`, each of which is without a ring or not, with each error."""
    all_cases = [
        (call, error, has_no_ring)
        for call, has_no_ring in calls
        for error in sorted({*ERRORS[call].split(), "EPERM", "ENOSYS"} - left_out)
    ]
    return all_cases[::SHARE]


# A call that is interrupted for ever is tried for ever.
AT_START = share(
    [
        (call, has_no_ring)
        for call in sorted(set(ERRORS) - OF_LOADER - OF_CLIENTS)
        for has_no_ring in (False, True)
        if call not in (OF_RING if has_no_ring else OF_FALLBACK)
    ],
    {"EINTR"},
)
UNDER_LOAD = share([(call, has_no_ring) for has_no_ring, calls in OF_LOAD.items() for call in calls])
