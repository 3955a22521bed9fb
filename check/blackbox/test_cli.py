"""The command line: what is wrong is said in one line, with status 2, and nothing is touched."""

import json
import subprocess

import pytest

from servers import PATIENCE_S, Flowstone, free_port

pytestmark = pytest.mark.flowstone


def run(*arguments, cwd):
    return subprocess.run(
        [Flowstone.binary(), *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def one_line(done):
    """Asserts the form of a refusal and returns its line."""
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert "panicked" not in lines[0]
    return lines[0]


WRONG = {
    "unknown option": (["serve", "--nonsense"], "--nonsense"),
    "misspelt option": (["serve", "--memroy", "64MiB"], "--memroy"),
    "unknown command": (["sreve"], "sreve"),
    "stray word": (["serve", "now"], "now"),
    "missing value": (["serve", "--memory"], "--memory"),
    "memory is no size": (["serve", "--memory", "lots"], "lots"),
    "memory without digits": (["serve", "--memory", "MiB"], "MiB"),
    "memory negative": (["serve", "--memory=-1MiB"], "memory"),
    "memory zero": (["serve", "--memory", "0"], "memory"),
    "memory too small": (["serve", "--memory", "1KiB"], "memory"),
    "memory overflow": (["serve", "--memory", "99999999999999GiB"], "memory"),
    "unknown unit": (["serve", "--memory", "64MOB"], "64MOB"),
    "flash too small": (["serve", "--flash-size", "4KiB"], "flash-size"),
    "flash size is no size": (["serve", "--flash-size", "big"], "big"),
    "listen without port": (["serve", "--listen", "127.0.0.1"], "127.0.0.1"),
    "listen port too large": (["serve", "--listen", "127.0.0.1:70000"], "70000"),
    "listen nonsense": (["serve", "--listen", "999.1.2.3:1"], "999.1.2.3"),
    "unknown preset": (["serve", "--preset", "nonsense"], "nonsense"),
    "no threads": (["serve", "--threads", "0"], "threads"),
    "threads is no number": (["serve", "--threads", "many"], "many"),
    "max connections zero": (["serve", "--max-connections", "0"], "max-connections"),
    "max item size too large": (["serve", "--max-item-size", "1TiB"], "max-item-size"),
    "set without value": (["serve", "--set", "engine"], "engine"),
    "set of an unknown key": (["serve", "--set", "nonsense.key=1"], "nonsense"),
    "config is not there": (["serve", "--config", "absent.toml"], "absent.toml"),
    "config is a directory": (["serve", "--config", "."], "."),
    "config without end": (["serve", "--config", "/dev/zero"], "a regular file of at most 1 MiB"),
    "a limit on writes without its years": (["serve", "--flash-write-limit", "600TB"], "did you mean 600TB/5y"),
    "one file twice": (["serve", "--flash", "f", "--index-flash", "./f"], "another file than the flash"),
    "idle timeout without a meaning": (["serve", "--idle-timeout", "5 minutes"], "90s, 5m, 2h or 7d"),
    "memcached's -d": (["serve", "-d", "-m", "64"], "service manager"),
    "memcached's UDP": (["serve", "-U", "11211"], "-U 0"),
    "bench without server": (["bench"], "--server"),
    "bench of an unknown workload": (["bench", "--server", "127.0.0.1:1", "--workload", "nonsense"], "nonsense"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, tmp_path):
    arguments, word = WRONG[name]
    line = one_line(run(*arguments, cwd=tmp_path))
    assert word in line
    assert list(tmp_path.iterdir()) == [], "nothing may be created"


SMALL = ["serve", "--memory", "64MiB", "--flash", "a.flash", "--flash-size", "64MiB", "--listen", "127.0.0.1:0"]
NAND = ["serve", "--memory", "64MiB", "--flash", "nand:mlc,size=64MiB,file=nand", "--listen", "127.0.0.1:0"]
REFUSED = {
    "journal in no directory": ([*SMALL, "--set", "cache.journal=absent/journal"], "absent/journal"),
    "journal is a text": ([*SMALL, "--set", "cache.journal=notes"], "notes: it holds something that is not"),
    "journal is a long text": ([*SMALL, "--set", "cache.journal=book"], "book: it holds something that is not"),
    "journal too small": ([*SMALL, "--set", "cache.journal_size=4KiB"], "must be at least 1028KiB"),
    "emulated, journal is a text": ([*NAND, "--set", "cache.journal=notes"], "notes: it holds something that is not"),
    "emulated, too small": (["serve", "--flash", "nand:didacache,size=1MiB"], "it needs 96 MiB"),
    "too many buffers": ([*SMALL, "--set", "cache.segment_buffers=200"], "cache.segment_buffers: 200 buffers"),
    "a file system": (["serve", "--memory", "64MiB", "--flash", "disk", "--force"], "--overwrite-filesystem"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_start_leaves_everything_as_it_was(name, tmp_path):
    arguments, words = REFUSED[name]
    contents = {"notes": b"notes\n", "book": b"notes\n" * 500_000, "disk": bytearray(64 << 20)}
    contents["disk"][0x438:0x43A] = b"\x53\xef"
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)
    assert words in one_line(run(*arguments, cwd=tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == contents


CONFIGS = {
    "misspelt key": ('[cache]\nmemroy = "64MiB"\n', "memroy"),
    "misspelt section": ('[sevrer]\nlisten = "127.0.0.1:1"\n', "sevrer"),
    "wrong type": ("[cache]\nmemory = [1, 2]\n", "memory"),
    "wrong value": ('[cache]\nmemory = "plenty"\n', "plenty"),
    "not toml": ("memory = = 1\n", "line 1"),
    "not text": ("\x00\x01\n", "bad.toml"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_wrong_config(name, tmp_path):
    text, word = CONFIGS[name]
    config = tmp_path / "bad.toml"
    config.write_text(text)
    line = one_line(run("serve", "--config", str(config), cwd=tmp_path))
    assert word in line and "bad.toml" in line
    assert list(tmp_path.iterdir()) == [config]


def test_config_is_read_and_options_win(make_server, tmp_path):
    config = tmp_path / "good.toml"
    config.write_text(f'[cache]\nmemory = "96MiB"\n[server]\nlisten = ["127.0.0.1:{free_port()}"]\n')
    server = make_server(options=["--config", str(config)]).start()
    settings = server.stats(b"settings")
    assert int(settings["tcpport"]) == server.port
    assert int(settings["maxbytes"]) <= 64 << 20


@pytest.mark.parametrize("arguments", [[], ["check"], ["slice"]])
def test_a_command_without_a_command_shows_its_usage(arguments, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and "Usage:" in done.stderr and "Commands:" in done.stderr


def test_a_command_line_of_memcached_serves(make_server):
    server = make_server()
    port, flash = str(server.port), str(server.flash)
    server.command = lambda: [
        *[server.binary(), "serve", "-m", "64", "-p", port, "-I", "2m", "-c", "100", "-t", "2", "-U", "0"],
        *["--flash", flash, "--flash-size", "64MiB", "--idle-timeout", "5m"],
    ]
    server.start()
    settings = server.stats(b"settings")
    told = ["maxbytes", "maxconns", "item_size_max", "num_threads", "idle_timeout"]
    assert [int(settings[name]) for name in told] == [64 << 20, 100, 2 << 20, 2, 300]


def test_version(tmp_path):
    done = run("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("flowstone ") and done.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["bench", "--help"]])
def test_help(arguments, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "Usage" in done.stdout and done.stderr == ""


def test_serve_help_names_the_options(tmp_path):
    text = run("serve", "--help", cwd=tmp_path).stdout
    for option in (
        "--config --listen --memory --flash --flash-size --preset --threads --set --max-connections --max-item-size "
        "--idle-timeout --force"
    ).split():
        assert option in text, option


def test_stalls_are_measured_in_each_situation(tmp_path):
    """Issue: "a probe connection (one GET in 10 ms) measures the longest second"."""
    done = run(
        *["check", "stalls", "--scale", "0.01", "--situations", "idle,expiry,stop,silent"],
        *["--memory", "40MiB", "--flash-size", "64MiB", "--dir", tmp_path / "stalls", "--json"],
        cwd=tmp_path,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["situation"] for row in rows] == ["idle", "expiry", "stop", "silent"]
    for row in rows:
        assert row["answers"] > 10
        assert 0 < row["median_us"] <= row["longest_second_us"]
