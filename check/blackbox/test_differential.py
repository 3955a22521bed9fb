"""The same bytes to memcached and to the server under test: the same answers back.

Each case runs whole; cut into single bytes; and once more with what was there before pushed from
DRAM to flash first, where nothing may be different.
"""

from pathlib import Path

import pytest

import cases_meta
import cases_text
from cases import AS_BEFORE, REWORDED_AFTER, TODAY, check_same, run_given, run_when, with_keys
from servers import Memcached, subject_class
from wire import Mask

ROOT = Path(__file__).resolve().parents[2]
CASES = cases_text.CASES + cases_meta.CASES
SHARED = [case for case in CASES if not case.alone]
ALONE = [case for case in CASES if case.alone]

# Beyond this many bytes, single bytes would only be slow: pieces of a prime length instead.
BYTEWISE_UP_TO = 4096
LONG_PIECE = 1009


def ids(cases):
    return [case.name for case in cases]


def prefix(kind, case):
    return b"%s%d" % (kind, CASES.index(case))


def compare(case, subject, oracle, kind, piece=None):
    """Both servers hear what was there before, then the case."""
    ask_reference = reference_knows(case, subject, oracle)
    key_prefix = prefix(kind, case)
    given = masked(run_given(subject, case, key_prefix))
    if ask_reference:
        assert given == masked(run_given(oracle, case, key_prefix))
    compare_when(case, subject, oracle, key_prefix, ask_reference, piece)


def reference_knows(case, subject, oracle):
    """Whether this memcached is asked about the case. Skips what nobody here can answer for."""
    version = oracle.version()
    if version > REWORDED_AFTER and case.name in AS_BEFORE:
        pytest.skip("memcached after 1.6.38 answers this mistake otherwise")
    if version <= REWORDED_AFTER and case.name in TODAY:
        return False
    if version < case.since and not subject.is_flowstone:
        pytest.skip("the memcached under test is older than what this case is about")
    return version >= case.since


def compare_when(case, subject, oracle, key_prefix, ask_reference, piece=None):
    ours = run_when(subject, case, key_prefix, piece)
    if case.differs and not (ask_reference and oracle.version() > case.differs.until):
        assert ours.lines == case.differs.lines(subject, key_prefix)
        if ask_reference:
            theirs = run_when(oracle, case, key_prefix, piece)
            assert theirs.lines == case.differs.lines(oracle, key_prefix)
    elif ask_reference:
        check_same(ours, run_when(oracle, case, key_prefix, piece))
    else:
        expect = with_keys(case.expect or TODAY[case.name], key_prefix)
        assert ours.lines == Mask(case.keep_cas).lines(expect)


def masked(answer):
    return Mask().lines(answer)


def test_case_names_are_unique():
    names = ids(CASES)
    assert sorted(set(names)) == sorted(names)


def test_differences_are_documented():
    table = (ROOT / "docs" / "guide" / "compatibility.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")}
    for case in CASES:
        if case.differs:
            assert case.differs.why in rows, f"docs/guide/compatibility.md does not say why {case.name} differs"
            assert case.differs.memcached != case.differs.flowstone, case.name


@pytest.mark.parametrize("case", SHARED, ids=ids(SHARED))
def test_whole(case, subject, oracle):
    compare(case, subject, oracle, b"w")


BYTEWISE = [case for case in SHARED if not case.whole]


@pytest.mark.parametrize("case", BYTEWISE, ids=ids(BYTEWISE))
def test_bytewise(case, subject, oracle):
    long = sum(map(len, case.steps())) > BYTEWISE_UP_TO
    compare(case, subject, oracle, b"b", piece=LONG_PIECE if long else 1)


@pytest.mark.parametrize("case", ALONE, ids=ids(ALONE))
def test_alone(case, make_server):
    compare(case, make_server().start(), make_server(Memcached).start(), b"w")


FROM_FLASH = [case for case in SHARED if case.given]


@pytest.fixture(scope="module")
def spilled(tmp_path_factory, oracle):
    """A server whose DRAM has forgotten what the cases said was there before, and the answers to that."""
    server = subject_class()(tmp_path_factory.mktemp("spilled"))
    try:
        server.start()
        ours = {case.name: masked(run_given(server, case, prefix(b"f", case))) for case in FROM_FLASH}
        server.spill()
        # The reference hears it now, and so has not yet forgotten any of it.
        theirs = {case.name: masked(run_given(oracle, case, prefix(b"f", case))) for case in FROM_FLASH}
        yield server, ours, theirs
        assert server.alive(), f"the server died during the tests:\n{server.log()}"
    finally:
        server.close()


@pytest.mark.parametrize("case", FROM_FLASH, ids=ids(FROM_FLASH))
def test_from_flash(case, spilled, oracle):
    subject, ours, theirs = spilled
    ask_reference = reference_knows(case, subject, oracle)
    if ask_reference:
        assert ours[case.name] == theirs[case.name]
    compare_when(case, subject, oracle, prefix(b"f", case), ask_reference)


@pytest.mark.parametrize("case", ALONE, ids=ids(ALONE))
def test_alone_from_flash(case, make_server):
    subject, oracle = make_server().start(), make_server(Memcached).start()
    ask_reference = reference_knows(case, subject, oracle)
    key_prefix = prefix(b"f", case)
    ours = masked(run_given(subject, case, key_prefix))
    subject.spill()
    if ask_reference:
        assert ours == masked(run_given(oracle, case, key_prefix))
    compare_when(case, subject, oracle, key_prefix, ask_reference)
