"""What a differential case is, and how one runs on a server.

A case is bytes to send. In them

    @a .. @z     a key of the case's own, the same on both servers
    @a:250       the same, padded to 250 bytes
    @@a          the same in base64
    $cas  $old   the last CAS value, and the first, that this connection's answers showed
    $less $more  the last one less one, and plus a million

`given` is sent first on a connection of its own (in the flash pass everything it stored is then
pushed to flash), `when` after it. A `when` of several steps is sent step by step, each after the
answer to the one before, and `$cas` looks at those. Behind the last step comes a meta no-op, whose
answer proves that the connection is still usable; `tail=b""` leaves it away.
"""

import base64
import re
from dataclasses import dataclass

from wire import Closed, Mask, last_cas

TAIL = b"mn\r\n"
FORMAT = b"CLIENT_ERROR bad command line format\r\n"

# What Flowstone answers otherwise on purpose: rows of the table in docs/guide/compatibility.md.
BAD_LINE = "a storage command with a wrong key, number or CAS value"
RANGE = "client flags or a length beyond the field"
FAR_EXPIRY = "an expiry beyond the field"
LONG_LINE = "a line that is too long"
NUL_IN_KEY = "a NUL byte in a key"
BINARY_KEY = "`mg` with `b N k` that creates the item"
KEY_AS_ASKED = "`k` for an item stored under a base64 key, asked without `b`"
EXPIRED_TTL = "`t` of an item that has expired already"
LONG_OPAQUE = "`O` with more than 31 bytes, in `ma`, or in `mg` with `T`"

# memcached rewrote its parsers after this version, and answers many mistakes otherwise since.
REWORDED_AFTER = (1, 6, 38)

# Mistakes that Flowstone answers as memcached does since: an older one is not asked.
TODAY = {
    "touch_beyond_32_bits": (
        b"CLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR invalid exptime argument\r\n"
        b"CLIENT_ERROR bad token in command line format\r\nHD t-1\r\nMN\r\n"
    ),
    "flush_all_beyond_32_bits": b"CLIENT_ERROR invalid exptime argument\r\nVALUE @a 0 5\r\nvalue\r\nEND\r\nMN\r\n",
    "cas_with_word_behind": b"NOT_FOUND\r\nMN\r\n",
    "cas_without_unique": FORMAT + b"MN\r\n",
    "get_no_key": FORMAT + b"MN\r\n",
    "get_no_key_but_space": FORMAT + b"MN\r\n",
    "gets_no_key": FORMAT + b"MN\r\n",
    "delete_no_key": FORMAT + b"MN\r\n",
    "incr_no_delta": FORMAT + b"VALUE @a 7 2\r\n10\r\nEND\r\nMN\r\n",
    "incr_no_key": FORMAT + b"MN\r\n",
    "touch_no_time": FORMAT + b"MN\r\n",
    "touch_no_key": FORMAT + b"MN\r\n",
    "gat_no_key": FORMAT + b"MN\r\n",
    "gats_no_key": FORMAT + b"MN\r\n",
    "gat_nothing": FORMAT * 2 + b"MN\r\n",
    "empty_line": FORMAT + b"MN\r\n",
    "empty_line_feed": FORMAT + b"MN\r\n",
    "many_empty_lines": FORMAT * 4 + b"MN\r\n",
    "nul_line": FORMAT + b"MN\r\n",
    "set_nothing_else": FORMAT + b"MN\r\n",
    "set_key_alone": FORMAT + b"MN\r\n",
    "set_no_length": FORMAT + b"MN\r\n",
    "set_too_many_words": b"STORED\r\nMN\r\n",
    "set_length_word": FORMAT * 2 + b"VALUE @a 0 5\r\nvalue\r\nEND\r\nMN\r\n",
    "set_data_too_long": (
        b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE @a 0 5\r\n"
        b"value\r\nEND\r\nMN\r\n"
    ),
    "set_data_too_long_by_one": (
        b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE @a 0 5\r\n"
        b"value\r\nEND\r\nMN\r\n"
    ),
    "bad_chunk_leaves_the_old_value": (
        b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE @a 0 5\r\n"
        b"value\r\nEND\r\nMN\r\n"
    ),
    "add_bad_chunk": b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nEND\r\nMN\r\n",
    "append_bad_chunk": (
        b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVALUE @a 0 5\r\n"
        b"value\r\nEND\r\nMN\r\n"
    ),
    "verbosity_nothing": FORMAT + b"MN\r\n",
    "verbosity_many": b"OK\r\nMN\r\n",
    "pipeline_of_everything": (
        b"STORED\r\n42\r\nVALUE @a 0 2\r\n42\r\nEND\r\nSTORED\r\nVALUE @a 0 4\r\n42!!\r\nEND\r\n"
        b"DELETED\r\nEND\r\nERROR\r\nSTORED\r\nCLIENT_ERROR bad command line format\r\nTOUCHED\r\n"
        b"VALUE @a 3 2\r\nok\r\nEND\r\nNOT_STORED\r\nOK\r\nVA 2 t100 f3\r\nok\r\nMN\r\n"
    ),
    "mg_no_key": FORMAT * 2 + b"MN\r\n",
    "ms_no_key": FORMAT + b"MN\r\n",
    "ms_bad_chunk": b"CLIENT_ERROR bad data chunk\r\nCLIENT_ERROR bad command line format\r\nVA 5\r\nvalue\r\nMN\r\n",
    "md_no_key": FORMAT + b"MN\r\n",
    "ma_no_key": FORMAT + b"MN\r\n",
    "mg_unknown_flag": FORMAT + b"MN\r\n",
    "md_unknown_flag": FORMAT + b"VA 5\r\nvalue\r\nMN\r\n",
    "md_unknown_letter": (
        b"CLIENT_ERROR invalid flag\r\nCLIENT_ERROR duplicate flag\r\n"
        b"CLIENT_ERROR bad token in command line format\r\nVA 5\r\nvalue\r\nMN\r\n"
    ),
    "ma_unknown_flag": FORMAT + b"MN\r\n",
    "ma_long_key": b"CLIENT_ERROR invalid or duplicate flag\r\nMN\r\n",
    "ma_mode_unknown": b"CLIENT_ERROR invalid mode for ma M token\r\n" * 2 + b"MN\r\n",
    "ms_mode_empty": b"CLIENT_ERROR invalid mode for ms M token\r\nVA 5\r\nvalue\r\nMN\r\n",
    "b64_malformed_delete": b"CLIENT_ERROR error decoding key\r\nMN\r\n",
    "quiet_pipeline_with_errors": FORMAT * 2 + b"NF\r\nNF\r\nMN\r\nMN\r\n",
    # The words alone: later ones run the block as commands, and are in `AS_BEFORE` for that.
    "ms_unknown_flag": FORMAT + b"EN\r\nMN\r\n",
    "shutdown_disabled": b"SERVER_ERROR: shutdown not enabled\r\nMN\r\n",
}

# Mistakes that Flowstone answers as every release from 1.6.18 to 1.6.38 does: a newer one is not asked.
# docs/guide/compatibility.md tells both answers.
AS_BEFORE = frozenset(
    """
    b64_debug delete_many_words delete_with_time delete_with_word gat_long_key get_key_of_251_bytes get_key_with_nul
    get_leading_space get_long_key_after_good_one get_with_1500_byte_key incr_delta_plus ma_mode_long ma_vivify_quiet
    ma_vivify_quiet_value ms_mode_long ms_unknown_flag
    """.split()
)


@dataclass(frozen=True)
class Differs:
    """A deliberate difference: both answers, behind the whole case and with its keys as `@a`.

    `why` is the row of the table in docs/guide/compatibility.md that gives the reason. A memcached later than
    `until` answers as Flowstone does.
    """

    why: str
    memcached: bytes
    flowstone: bytes
    until: tuple = (9, 9, 9)

    def lines(self, server, prefix):
        """What `server` answers."""
        answer = self.flowstone if server.is_flowstone else self.memcached
        return Mask().lines(with_keys(answer, prefix))


def swallowed(rest=b""):
    """A refused storage line, a data block that memcached runs as an unknown command, then `rest`."""
    theirs, ours = FORMAT + b"ERROR\r\n" + rest + TAIL.upper(), FORMAT + rest + TAIL.upper()
    return Differs(BAD_LINE, memcached=theirs, flowstone=ours, until=REWORDED_AFTER)


@dataclass(frozen=True)
class Case:
    name: str
    when: object
    given: bytes = b""
    tail: bytes = TAIL
    # CAS values that the case itself chose are compared as they are.
    keep_cas: bool = False
    # memcached before this version answers differently: then `expect` is compared instead.
    since: tuple = (0, 0, 0)
    expect: bytes = None
    # Flowstone answers otherwise on purpose: each server is held to its own answer.
    differs: Differs = None
    # How the bytes are cut changes what memcached answers: sent whole only.
    whole: bool = False
    # The case changes the whole cache: it gets servers of its own.
    alone: bool = False

    def steps(self):
        return (self.when,) if isinstance(self.when, bytes) else self.when


@dataclass
class Outcome:
    """The answers of one server to one case."""

    raw: list
    lines: list
    times: list


def with_keys(text, prefix):
    """`text` with its key tokens replaced."""

    def plain(letter):
        return prefix + b"." + letter

    def replace(match):
        if match[1]:
            return base64.b64encode(plain(match[2]) + b"\x00\xff")
        key = plain(match[2])
        return key.ljust(int(match[3]), b"k") if match[3] else key

    return re.sub(rb"(@)?@([a-z])(?::(\d+))?(?![a-z])", replace, text)


def with_cas(text, answers):
    """`text` with its CAS tokens replaced from the answers so far."""
    if b"$" not in text:
        return text
    seen = [cas for cas in (last_cas(answer) for answer in answers) if cas is not None]
    if not seen:
        return text
    last = int(seen[-1])
    for token, value in ((b"$cas", last), (b"$old", int(seen[0])), (b"$less", last - 1), (b"$more", last + 1_000_000)):
        text = text.replace(token, b"%d" % value)
    return text


def run_given(server, case, prefix):
    """Sends what must be there before. Returns the answer."""
    return server.ask(with_keys(case.given, prefix)) if case.given else b""


def run_when(server, case, prefix, piece=None):
    """Sends the case itself and returns the outcome."""
    answers = []
    steps = case.steps()
    with server.connect() as connection:
        for step in steps[:-1]:
            try:
                answers.append(connection.roundtrip(with_cas(with_keys(step, prefix), answers)))
            except Closed as closed:
                raise AssertionError(f"closed within {step!r} after {closed.args[0]!r}") from None
        last = with_cas(with_keys(steps[-1], prefix), answers) + case.tail
        answers.append(connection.exchange(last, piece))
    mask = Mask(case.keep_cas)
    lines = [line for answer in answers for line in mask.lines(answer)]
    return Outcome(answers, lines, mask.times)


def check_same(subject, oracle, tolerance_s=3):
    """Fails unless both outcomes say the same."""
    assert subject.lines == oracle.lines
    assert len(subject.times) == len(oracle.times)
    for ours, theirs in zip(subject.times, oracle.times):
        assert abs(ours - theirs) <= tolerance_s, f"times {subject.times} and {oracle.times}"
