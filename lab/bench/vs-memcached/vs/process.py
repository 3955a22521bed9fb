"""Processes that end with this program, whichever way it ends."""

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProcessError(Exception):
    """A process did not start, or ended when it should not."""


def _die_with_parent():
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def command(words, timeout_s=None):
    """Runs `words` to the end and returns its standard output; fails with its last words."""
    # stdin is closed and the group is this program's own, so an interrupt reaches both.
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout_s, preexec_fn=_die_with_parent)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing was said").splitlines()[-1]
        raise ProcessError(f"{' '.join(words)}: exit code {done.returncode}: {said}")
    return done.stdout


class Process:
    """A long-running process in a memory cgroup, its output in a file."""

    def __init__(self, words, cgroup, log):
        self.words = words
        self.cgroup = cgroup
        self.log = Path(log)
        with open(self.log, "ab") as out:
            # The shell joins the group and becomes the program, so that no byte is charged elsewhere.
            self.child = subprocess.Popen(
                ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup.procs), *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                preexec_fn=_die_with_parent)
        self.pid = self.child.pid
        self.stopped = False

    def check(self):
        """Raises if it has ended."""
        code = self.child.poll()
        if code is not None:
            killed = " (killed for its memory limit)" if self.cgroup.usage()["killed"] else ""
            raise ProcessError(f"{self.words[0]} ended with {code}{killed}: {self.last_words()}")

    def last_words(self):
        """The end of its output."""
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-3:])

    def pause(self):
        """Takes the processor from it: an idle server must not disturb the one measured."""
        if not self.stopped and self.child.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)
            self.stopped = True

    def resume(self):
        """Undoes `pause`."""
        if self.stopped:
            os.kill(self.pid, signal.SIGCONT)
            self.stopped = False
        self.check()

    def end(self, patience_s=90):
        """Asks it to stop and waits; kills it if it does not. Returns its exit code."""
        if self.child.poll() is None:
            if self.stopped:
                os.kill(self.pid, signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(patience_s)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.child.wait()

    def kill(self):
        """Ends it at once; what it holds is not wanted any more."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    def cpu_s(self):
        """Processor time used so far, user and system, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_bytes(self):
        """(now, most ever)."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return tuple(int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


def wait_until(condition, patience_s, what, every_s=0.05):
    """Polls `condition` until it is true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise ProcessError(f"waited {patience_s} s in vain: {what}")
        time.sleep(every_s)
