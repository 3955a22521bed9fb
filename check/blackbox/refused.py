"""System calls that a process must do without, as a container's filter, gVisor, an old kernel or a file system refuses them.

The filter is inherited by every thread of the process, and needs no privilege. `strace` makes calls fail for a while.
"""

import ctypes
import errno
import platform
import shutil
import struct
import subprocess

import pytest

# Numbers of the system calls, x86_64.
CALLS = {
    "accept4": 288,
    "access": 21,
    "bind": 49,
    "brk": 12,
    "chmod": 90,
    "clone3": 435,
    "close": 3,
    "epoll_create1": 291,
    "epoll_ctl": 233,
    "epoll_pwait": 281,
    "epoll_wait": 232,
    "eventfd2": 290,
    "fallocate": 285,
    "fchmod": 91,
    "fcntl": 72,
    "fdatasync": 75,
    "fstat": 5,
    "fstatfs": 138,
    "ftruncate": 77,
    "futex": 202,
    "getrandom": 318,
    "getrusage": 98,
    "getsockname": 51,
    "gettid": 186,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "io_uring_setup": 425,
    "ioctl": 16,
    "listen": 50,
    "lseek": 8,
    "madvise": 28,
    "memfd_create": 319,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "openat": 257,
    "pipe2": 293,
    "prctl": 157,
    "pread64": 17,
    "prlimit64": 302,
    "pwrite64": 18,
    "read": 0,
    "readlink": 89,
    "recvfrom": 45,
    "rseq": 334,
    "rt_sigprocmask": 14,
    "sched_getaffinity": 204,
    "sched_yield": 24,
    "sendto": 44,
    "set_robust_list": 273,
    "setsockopt": 54,
    "shutdown": 48,
    "sigaltstack": 131,
    "socket": 41,
    "socketpair": 53,
    "statfs": 137,
    "statx": 332,
    "sysinfo": 99,
    "timerfd_create": 283,
    "timerfd_settime": 286,
    "uname": 63,
    "unlink": 87,
    "write": 1,
}

needs_filter = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86_64")

needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace makes the calls fail")

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06

_libc = ctypes.CDLL(None)


class _Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def refuse(calls):
    """Makes this process's `calls`, a map from names to the names of errors, fail from now on."""
    steps = [(_LOAD, 0, 0, 0)]
    for call, error in calls.items():
        steps += [(_JUMP_IF_EQUAL, 0, 1, CALLS[call]), (_RETURN, 0, 0, _ERRNO | getattr(errno, error))]
    steps.append((_RETURN, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    assert _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0


class Traced:
    """A server whose calls `strace` sees, with these options, until `end`."""

    def __init__(self, server, *options):
        self.path = server.directory / "strace"
        self.process = subprocess.Popen(
            ["strace", "-f", "-o", self.path, *options, "-p", str(server.process.pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        if "attached" not in self.process.stderr.readline():
            pytest.skip("no process may be traced here")

    def end(self):
        """Ends it, or waits for the end of the server. Returns what it has written."""
        self.process.terminate()
        self.process.wait()
        return self.path.read_text()


class Failing(Traced):
    """A server one of whose calls fails."""

    def __init__(self, server, call, error):
        super().__init__(server, "-e", f"trace={call}", "-e", f"inject={call}:error={error}")
        self.has_hit = False

    def hits(self):
        """Whether the call has failed at all."""
        self.has_hit = self.has_hit or "(INJECTED)" in self.path.read_text()
        return self.has_hit
