"""System calls that a process must do without, as a container's filter, gVisor, an old kernel or a file system refuses them.

The filter is inherited by every thread of the process, and needs no privilege.
"""

import ctypes
import errno
import platform
import struct

import pytest

# Numbers of the system calls, x86_64.
CALLS = {
    "chmod": 90,
    "clone3": 435,
    "eventfd2": 290,
    "fallocate": 285,
    "fchmod": 91,
    "fstatfs": 138,
    "getsockname": 51,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "io_uring_setup": 425,
    "setsockopt": 54,
    "statfs": 137,
}

needs_filter = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86_64")

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
