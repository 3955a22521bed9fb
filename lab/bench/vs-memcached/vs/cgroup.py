"""Memory cgroups, version 1 or 2: a bound on a process and its page cache together.

A group is a child of the group this program runs in (v1), or of the root (v2, where a group that
holds processes cannot have children with a memory bound). Removing one needs its processes gone.
"""

import errno
import os
import time
from pathlib import Path

V2_ROOT = Path("/sys/fs/cgroup")
REMOVE_PATIENCE_S = 10
PREFIX = "flowstone-vs"


class CgroupError(Exception):
    """No group can be made here; the words say what to do."""


def parent():
    """(version, folder) under which groups are made."""
    controllers = V2_ROOT / "cgroup.controllers"
    if controllers.exists() and "memory" in controllers.read_text().split():
        return 2, V2_ROOT
    mount = _v1_mount()
    if mount is None:
        raise CgroupError("no memory cgroup is mounted: mount one (v1 or v2) to bound both servers alike")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            own = mount / path.lstrip("/")
            return 1, own if own.is_dir() else mount
    return 1, mount


def remove_abandoned():
    """Removes groups of earlier runs that were killed: their processes ended with them."""
    _, folder = parent()
    for group in folder.glob(f"{PREFIX}-*-*"):
        owner = group.name.removeprefix(f"{PREFIX}-").split("-")[0]
        if not Path("/proc", owner).exists():
            try:
                group.rmdir()
            except OSError:
                pass


def _v1_mount():
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            return Path(where)
    return None


class Cgroup:
    """A group with a limit in bytes, or none."""

    def __init__(self, name, limit_bytes=None):
        self.version, folder = parent()
        self.path = folder / f"{PREFIX}-{os.getpid()}-{name}"
        self.limit_bytes = limit_bytes
        try:
            if self.version == 2:
                control = folder / "cgroup.subtree_control"
                if "memory" not in control.read_text().split():
                    control.write_text("+memory")
            self.path.mkdir()
            if limit_bytes is not None:
                self._limit(limit_bytes)
        except OSError as error:
            self.remove()
            raise CgroupError(f"cannot make the memory cgroup {self.path}: {error.strerror}; run as root "
                              "on a machine whose cgroups may be written") from error

    def _limit(self, limit_bytes):
        if self.version == 2:
            (self.path / "memory.max").write_text(str(limit_bytes))
            self._try("memory.swap.max", "0")
        else:
            (self.path / "memory.limit_in_bytes").write_text(str(limit_bytes))
            # Absent where swap is not accounted for.
            self._try("memory.memsw.limit_in_bytes", str(limit_bytes))

    def _try(self, name, value):
        try:
            (self.path / name).write_text(value)
        except OSError:
            pass

    @property
    def procs(self):
        """The file a process writes its number to in order to join."""
        return self.path / "cgroup.procs"

    def usage(self):
        """Bytes held now, by kind, the most ever held, and how often the limit killed a process."""
        stat = _pairs(self.path / "memory.stat")
        if self.version == 2:
            return {"anonymous": stat["anon"], "page_cache": stat["file"], "kernel": stat.get("kernel"),
                    "all": self._number("memory.current"), "most": self._number("memory.peak"),
                    "killed": _pairs(self.path / "memory.events").get("oom_kill", 0)}
        return {"anonymous": stat["rss"], "page_cache": stat["cache"],
                "kernel": self._number("memory.kmem.usage_in_bytes"), "all": self._number("memory.usage_in_bytes"),
                "most": self._number("memory.max_usage_in_bytes"),
                "killed": _pairs(self.path / "memory.oom_control").get("oom_kill", 0)}

    def _number(self, name):
        """A file's number, or None where this kernel has no such file."""
        try:
            return int((self.path / name).read_text())
        except OSError:
            return None

    def remove(self):
        """Removes the group once its processes are gone."""
        deadline = time.monotonic() + REMOVE_PATIENCE_S
        while True:
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    return
                time.sleep(0.05)


def _pairs(path):
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines())}
