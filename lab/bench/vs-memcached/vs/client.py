"""A very small memcached client: statistics, and one key asked for by many at once."""

import socket

PATIENCE_S = 30


def connect(port, patience_s=PATIENCE_S):
    """A connection to the server on this machine's `port`."""
    return socket.create_connection(("127.0.0.1", port), timeout=patience_s)


def is_taken(port):
    """Whether something listens on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def answers(port, request, begin, end):
    """Whether a server is ready there: it answers `request` from `begin` to `end`."""
    try:
        with connect(port, 1) as stream:
            stream.sendall(request)
            return read_answer(stream, end).startswith(begin)
    except OSError:
        return False


def stats(port, *arguments):
    """The answer to `stats [argument]`, all arguments' answers together; numbers as numbers."""
    result = {}
    with connect(port) as stream, stream.makefile("rb") as lines:
        for argument in arguments or ("",):
            stream.sendall(b"stats " + argument.encode() + b"\r\n" if argument else b"stats\r\n")
            for line in lines:
                words = line.decode(errors="replace").split(None, 2)
                if not words or words[0] != "STAT":
                    break
                result[words[1]] = _number(words[2].strip() if len(words) > 2 else "")
    return result


def _number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def store(port, key, value):
    """Stores one value."""
    with connect(port) as stream:
        stream.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        if stream.recv(64) != b"STORED\r\n":
            raise OSError("the server did not store a value")


def read_answer(stream, terminator=b"END\r\n"):
    """Reads one answer to a `get`."""
    answer = b""
    while not answer.endswith(terminator):
        part = stream.recv(65536)
        if not part:
            raise OSError("the server closed a connection")
        answer += part
    return answer
