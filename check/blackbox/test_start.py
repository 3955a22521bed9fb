"""What a start says, and what it makes of little."""

import contextlib
import os
import re
import resource
import socket
import subprocess

import pytest

from servers import MIB, Flowstone, free_port, wait_until
from test_restart import fails_to_start

pytestmark = pytest.mark.flowstone


def test_few_file_descriptors_bound_the_connections_and_the_log(make_server):
    server = make_server(limits={resource.RLIMIT_NOFILE: 128}, options=["--threads", "1"]).start()
    most = int(server.stats()["max_connections"])
    assert most < 128 and f"{most} connections at most instead of 4096" in server.log()
    clients = [server.connect() for _ in range(most)]
    wait_until(lambda: clients[-1].roundtrip(b"version\r\n"), "the last one to be served")
    for _ in range(200):
        with server.connect() as refused:
            assert b"Too many open connections" in refused.exchange(b"")
    assert server.log().count("could not be accepted") <= 1, server.log()


@pytest.mark.parametrize(
    "memory_mib, threads, limits, told",
    [
        (1 << 30, 1, {}, ["is more than the", "that this machine has"]),
        (256, 64, {}, ["64 workers of 4MiB each", "needs 288MiB", "lower --threads"]),
        (128, 1, {resource.RLIMIT_AS: 128 * MIB}, ["address space (ulimit -v)", "lower --memory"]),
        (128, 1, {resource.RLIMIT_DATA: 128 * MIB}, ["private memory (ulimit -d)", "lower --memory"]),
        (64, 1, {resource.RLIMIT_FSIZE: 64 * MIB}, ["512 MiB are more than a file may have", "ulimit -f"]),
        (64, 1, {resource.RLIMIT_NOFILE: 80}, ["80 open files are allowed and at least 88", "ulimit -Hn"]),
    ],
)
def test_figures_that_the_machine_cannot_have_are_refused(make_server, memory_mib, threads, limits, told):
    server = make_server(memory_mib=memory_mib, options=["--threads", str(threads)], limits=limits)
    line = fails_to_start(server)
    assert all(words in line for words in told), line


def test_too_little_memory_is_told_with_the_figure_given_and_one_that_is_enough(make_server):
    line = fails_to_start(make_server(memory_mib=40, flash_size="500GiB"))
    told = re.search(r"--memory: 40MiB is too little for a cache of these sizes, which needs (\d+)MiB", line)
    assert told and "--flash-size" in line, line
    enough = make_server(memory_mib=int(told[1]), flash_size="500GiB", flash="/no/such/directory/flash")
    assert "its directory does not exist" in fails_to_start(enough)


def test_flash_that_is_too_small_is_told_with_the_figures_given_and_needed(make_server):
    for size, told in [("0", "0 B"), ("1", "1 B"), ("64KiB", "64 KiB")]:
        line = fails_to_start(make_server(flash_size=size))
        assert f"--flash-size, cache.segment_size: {told} of flash are too few: " in line, line


def test_the_start_line_has_the_limit_on_writes(make_server):
    server = make_server(options=["--flash-write-limit", "20MiB"]).start()
    assert 'flash_write_limit="20 MiB a second"' in server.log()


@pytest.mark.parametrize("limit", [1024, 4096, 8192, 1 << 20, 511 * MIB])
def test_an_image_over_a_limit_on_files_is_refused_and_left_alone(make_server, limit):
    server = make_server().start()
    server.ask(b"set a 0 0 1\r\nx\r\n")
    assert server.terminate() == 0
    files = (server.flash, server.flash.with_name(server.flash.name + ".journal"))
    before = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    server.limits = {resource.RLIMIT_FSIZE: limit}
    line = fails_to_start(server)
    assert f"{server.flash}: 512 MiB are more than a file may have" in line and "ulimit -f" in line
    assert [(file.stat().st_mtime_ns, file.stat().st_size) for file in files] == before
    server.limits = {}
    server.start()
    assert server.ask(b"get a\r\n") == b"VALUE a 0 1\r\nx\r\nEND\r\n"


def test_a_limit_on_address_space_that_the_memory_fits_is_enough(make_server):
    limits = {resource.RLIMIT_AS: 256 * MIB, resource.RLIMIT_DATA: 128 * MIB}
    server = make_server(memory_mib=64, limits=limits, options=["--threads", "2"]).start()
    server.spill()
    assert server.terminate() == 0


def test_a_refusal_ends_though_nobody_reads_it(make_server):
    server = make_server(flash="/no/such/directory/flash")
    reader, writer = os.pipe()
    with contextlib.suppress(BlockingIOError):
        os.set_blocking(writer, False)
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    refused = subprocess.run(server.command(), stderr=writer, check=False, timeout=20)
    os.close(reader)
    os.close(writer)
    assert refused.returncode == 2


def test_a_link_to_nothing_is_told_as_such(make_server, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    line = fails_to_start(make_server(flash=link))
    assert "is a symbolic link to nowhere, which does not exist" in line


@pytest.mark.parametrize(
    "address, told",
    [
        ("unix:/no/such/directory/socket", "create the directory"),
        ("unix:/" + "x" * 120, "at most 107 bytes"),
        ("unix:/dev/null", "no socket"),
        ("192.0.2.1:11211", "of this machine"),
        ("IN USE", "stop the process"),
    ],
)
def test_an_address_that_cannot_be_listened_on_comes_with_the_remedy(make_server, address, told):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = make_server()
        address = address.replace("IN USE", f"127.0.0.1:{taken.getsockname()[1]}")
        server.options = ["--listen", address]
        line = fails_to_start(server)
    assert "cannot listen on" in line and told in line, line


def test_the_largest_value_that_memory_and_flash_allow_is_told(make_server):
    server = make_server(memory_mib=128, flash_size="256MiB", options=["-I", "64m"])
    line = fails_to_start(server)
    assert "values of 64MiB are too large" in line and "is the largest with 128MiB of memory" in line, line


def test_more_memory_than_flash_is_one_warning(make_server):
    server = make_server(memory_mib=64, flash_size="48MiB", max_connections=None).start()
    assert server.log().count("WARN") == 1 and "--memory 64MiB is more than the flash" in server.log()


def test_a_name_to_listen_on(make_server):
    server = make_server()
    server.options = ["--set", f'server.listen=["localhost:{server.port}"]']
    plain = server.command
    server.command = lambda: [word for word in plain() if word not in ("--listen", f"127.0.0.1:{server.port}")]
    server.start()
    assert server.ask(b"mn\r\n") == b"MN\r\n"


def test_sizes_in_errors_have_units(make_server):
    server = make_server(flash_size="1MiB")
    line = fails_to_start(server)
    assert "MiB of flash are too few" in line and "--flash-size" in line and "--memory" not in line


@pytest.mark.parametrize("buffers", ["1", "200"])
def test_wrong_segment_buffers_are_blamed_on_their_setting(make_server, buffers):
    server = make_server(options=["--set", f"cache.segment_buffers={buffers}"])
    assert "cache.segment_buffers" in fails_to_start(server)


@pytest.mark.parametrize("options", [[], ["--backend", "sqlite"]])
def test_bench_of_a_server_that_is_not_there_is_one_line(options):
    command = [Flowstone.binary(), "bench", "--server", f"127.0.0.1:{free_port()}", *options]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
    assert done.returncode == 1 and done.stdout == "", done
    assert "cannot connect to 127.0.0.1" in done.stderr and "--server" in done.stderr, done.stderr


def test_bench_fails_on_a_damaged_trace(make_server, tmp_path):
    server = make_server().start()
    trace = tmp_path / "trace.csv"
    rows = "".join(f"0,some-key-{n},11,5,1,get,0\n" for n in range(50))
    for text, status in ((rows, 0), (rows + "0,some-key,11,5,1\n", 1)):
        trace.write_text(text)
        command = [Flowstone.binary(), "bench", "--server", f"127.0.0.1:{server.port}", "--workload", f"trace:{trace}"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
        assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.parametrize(
    "settings, told",
    [
        (["cache.admission=most"], ["cache.admission", "`most`", "random:PERCENT"]),
        (["cache.admission=random:101"], ["cache.admission", "`random:101`"]),
        (["cache.admission=learned:0"], ["cache.admission", "reads must be 1 or more"]),
        (["cache.admission=learned", "cache.admission_window=0"], ["cache.admission_window", "longer than nothing"]),
        (["cache.admission_window=60"], ["cache.admission_window", "`learned`"]),
        (["cache.admission_remembers=false"], ["cache.admission_remembers", "`learned`"]),
        (
            ["cache.admission=learned", "cache.admission_hits_per_100_writes=1001"],
            ["cache.admission_hits_per_100_writes", "0 to 1000"],
        ),
        (["cache.admission=learned", "cache.application_delimiter=::"], ["cache.application_delimiter", "one character"]),
    ],
)
def test_what_admission_cannot_be(make_server, settings, told):
    options = [word for setting in settings for word in ("--set", setting)]
    line = fails_to_start(make_server(options=options))
    assert all(words in line for words in told), line
