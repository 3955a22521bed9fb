"""Runs a Python example against a server started for it, as a newcomer would: run_example.py PROGRAM."""

import subprocess
import sys
import tempfile

from servers import HOST, PATIENCE_S, subject_class


def main():
    with tempfile.TemporaryDirectory() as directory:
        server = subject_class()(directory)
        try:
            server.start()
            return subprocess.run(
                [sys.executable, sys.argv[1], "--server", f"{HOST}:{server.port}", *sys.argv[2:]],
                timeout=PATIENCE_S * 5,
                check=False,
            ).returncode
        finally:
            server.close()


if __name__ == "__main__":
    sys.exit(main())
