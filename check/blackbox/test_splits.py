"""Commands cut in two at every byte, the server having read the first half before the second comes."""

import pytest

from cases import REWORDED_AFTER, with_keys
from servers import wait_until
from wire import Mask

SCRIPTS = {
    "set_and_get": b"set @a 5 0 11\r\nhello\r\nyou!\r\nget @a\r\ngets @a @b\r\n",
    "noreply": b"set @a 0 0 2 noreply\r\nhi\r\ndelete @b noreply\r\nget @a\r\n",
    "meta": b"ms @a 4 F7 T90 c\r\ndata\r\nmg @a v f t k O9\r\nmd @a q\r\nmn\r\n",
    "arithmetic": b"set @a 0 0 2\r\n41\r\nincr @a 1\r\nma @a v\r\ndecr @a 5\r\n",
    "errors": b"nonsense\r\nset @a 0 0 x\r\nget\r\n\r\nms @a x\r\nget @a\r\n",
    "bad_chunk": b"set @a 0 0 3\r\nabcdef\r\nget @a\r\nversion\r\n",
    "line_feeds": b"get @a\nmn\nget @b\n",
    "too_large": b"set @a 0 0 99999999\r\n",
}

# Which memcached answers these otherwise: True for those after REWORDED_AFTER, False for those before.
OTHERWISE = {"errors": False, "bad_chunk": False, "line_feeds": True}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_split(name, subject, oracle):
    script = SCRIPTS[name]
    want = Mask().lines(subject.ask(with_keys(script, b"split0")))
    is_today = oracle.version() > REWORDED_AFTER
    if OTHERWISE.get(name) != is_today:
        assert want == Mask().lines(oracle.ask(with_keys(script, b"split0")))
    for at in range(1, len(script)):
        keys = b"split%d" % at
        text = with_keys(script, keys)
        # Keys make the text longer than the script; the cut runs over all of it.
        for cut in {at, len(text) - at}:
            answer = Mask().lines(split(subject, text, cut))
            got = [line.replace(keys, b"split0") for line in answer]
            assert got == want, f"cut before byte {cut} of {text!r}"


def split(server, text, cut):
    with server.connect() as connection:
        connection.send(text[:cut])
        wait_until(lambda: not server.unread_bytes(connection.local_port()), "the server to read the first half")
        return connection.exchange(text[cut:])
