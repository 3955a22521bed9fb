//! Whole runs against a small server that behaves, or misbehaves, as told.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use clap::Parser;

use super::options::Plan;
use super::phase::Measured;
use super::stats::Failure;
use super::{BenchArgs, loading, phase, report, running};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Good,
    /// Every value has one byte changed.
    Corrupt,
    /// Every set is refused.
    Full,
    /// Closes each connection after this many requests.
    Closes(u32),
    /// Closes each connection with its first answer, in one packet.
    ClosesAtOnce,
    /// Answers with lines that are no responses.
    Babbles,
}

type Store = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

/// Starts a server on its own port, for as long as the test runs.
pub(super) fn server(manner: Manner) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&connections);
    let store = Store::default();
    thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::Relaxed);
            let store = Arc::clone(&store);
            // An error means that the client has gone.
            thread::spawn(move || drop(serve(stream.unwrap(), &store, manner)));
        }
    });
    (address, connections)
}

fn serve(stream: TcpStream, store: &Store, manner: Manner) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    let mut line = String::new();
    let mut served = 0;
    while input.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let mut answer = Vec::new();
        match words[0] {
            "get" => {
                for key in &words[1..] {
                    if let Some(value) = store.lock().unwrap().get(key.as_bytes()) {
                        write!(answer, "VALUE {key} 0 {}\r\n", value.len())?;
                        answer.extend_from_slice(value);
                        if manner == Manner::Corrupt {
                            *answer.last_mut().unwrap() ^= 1;
                        }
                        answer.extend_from_slice(b"\r\n");
                    }
                }
                answer.extend_from_slice(b"END\r\n");
            }
            "set" => {
                let mut value = vec![0; words[4].parse::<usize>().unwrap() + 2];
                input.read_exact(&mut value)?;
                assert_eq!(value.split_off(value.len() - 2), b"\r\n");
                if manner == Manner::Full {
                    answer.extend_from_slice(b"SERVER_ERROR out of memory storing object\r\n");
                } else {
                    store
                        .lock()
                        .unwrap()
                        .insert(words[1].as_bytes().to_vec(), value);
                    answer.extend_from_slice(b"STORED\r\n");
                }
            }
            "delete" => {
                let removed = store.lock().unwrap().remove(words[1].as_bytes());
                answer.extend_from_slice(match removed {
                    Some(_) => b"DELETED\r\n",
                    None => b"NOT_FOUND\r\n",
                });
            }
            other => panic!("an unexpected request: {other}"),
        }
        if manner == Manner::Babbles {
            answer = b"220 ready\r\n".to_vec();
        }
        if manner == Manner::ClosesAtOnce {
            rustix::net::sockopt::set_tcp_cork(&output, true)?;
        }
        output.write_all(&answer)?;
        served += 1;
        if manner == Manner::Closes(served) || manner == Manner::ClosesAtOnce {
            return Ok(());
        }
        line.clear();
    }
    Ok(())
}

/// Returns the plan of `flowstone bench` with `options`.
pub(super) fn plan(options: &str) -> Plan {
    let line = format!("bench {options}");
    let args = BenchArgs::parse_from(line.split_ascii_whitespace());
    args.plan().unwrap()
}

/// Runs both phases of `flowstone bench` with `options`. Returns the results and the report.
fn bench(address: &str, options: &str) -> (Option<Measured>, Option<Measured>, String) {
    let keys = match options.contains("--keys") {
        true => "",
        false => "--keys 200",
    };
    let plan = plan(&format!("--server {address} {keys} {options}"));
    let load = plan
        .load
        .then(|| phase::run(&plan, &loading(&plan)).unwrap());
    let run = plan
        .run
        .then(|| phase::run(&plan, &running(&plan)).unwrap());
    let report = report(&plan, load.as_ref(), run.as_ref(), None);
    let json = report.row.json();
    assert!(!report.text.is_empty() && !json.contains('\n'));
    (load, run, json)
}

#[test]
fn everything_that_was_loaded_is_read_back_and_verified() {
    let (address, _) = server(Manner::Good);
    for options in [
        "",
        "--pipeline 8 --threads 2",
        "--multiget 7",
        "--key-size etc --value-size etc",
        "--value-size 1",
        "--workload zipfian --ratio 5:5",
    ] {
        let options = format!("{options} --load --verify --clients 5 --requests 1003");
        let (load, run, json) = bench(&address, &options);
        let (load, run) = (load.unwrap().stats, run.unwrap().stats);
        assert_eq!(
            (load.requests, load.failures.total()),
            ([0, 200, 0], 0),
            "{options}"
        );
        assert_eq!(
            (run.total(), run.failures.total()),
            (1003, 0),
            "{options}: {json}"
        );
        assert_eq!(run.hits, run.requests[0], "{options}");
        assert!(json.contains("\"hit_ratio\":1.0"), "{json}");
    }
}

#[test]
fn a_scan_asks_for_every_key_once() {
    let (address, _) = server(Manner::Good);
    let (_, run, _) = bench(&address, "--load --ratio 1:0 --clients 3 --requests 1");
    assert_eq!(run.unwrap().stats.total(), 1);
    for options in ["", "--clients 1", "--clients 7 --pipeline 4 --verify"] {
        // Twice as many keys as were stored: the first half exists.
        let plan = plan(&format!("--server {address} --keys 400 --scan {options}"));
        let stats = phase::run(&plan, &running(&plan)).unwrap().stats;
        assert_eq!(
            (stats.requests, stats.hits),
            ([400, 0, 0], 200),
            "{options}"
        );
        assert_eq!(stats.failures.total(), 0, "{options}");
    }
}

#[test]
fn values_longer_than_all_buffers_pass_through() {
    let (address, _) = server(Manner::Good);
    let line = "--keys 6 --value-size 3MiB --load --verify --clients 3 --load-pipeline 2 \
                --pipeline 2 --requests 40 --ratio 2:1";
    let (load, run, json) = bench(&address, line);
    let (load, run) = (load.unwrap().stats, run.unwrap().stats);
    assert_eq!((load.total(), load.failures.total()), (6, 0), "{json}");
    assert_eq!((run.total(), run.hits), (40, run.requests[0]), "{json}");
    assert_eq!(run.failures.total(), 0, "{json}");
}

#[test]
fn one_seed_makes_one_sequence_of_requests() {
    let (address, _) = server(Manner::Good);
    let counts = |seed| {
        let options = format!("--requests 500 --ratio 5:3:2 --clients 3 --seed {seed}");
        bench(&address, &options).1.unwrap().stats.requests
    };
    assert_eq!(counts(1), counts(1));
    assert_ne!(counts(1), counts(2));
}

#[test]
fn wrong_bytes_are_counted_and_only_with_verification() {
    let (address, _) = server(Manner::Corrupt);
    let (_, run, json) = bench(&address, "--load --requests 50 --clients 2 --verify");
    assert_eq!(run.unwrap().stats.failures[Failure::Corrupt], 50);
    assert!(json.contains("\"corrupt_values\":50"), "{json}");
    let (_, run, _) = bench(&address, "--requests 50 --clients 2");
    assert_eq!(run.unwrap().stats.failures.total(), 0);
}

#[test]
fn errors_of_the_server_are_reported_in_its_words() {
    let (address, _) = server(Manner::Full);
    let (load, _, json) = bench(&address, "--load-only --clients 4");
    let load = load.unwrap().stats;
    assert_eq!((load.total(), load.failures[Failure::Server]), (0, 200));
    assert!(json.contains("out of memory storing object"), "{json}");
}

#[test]
fn closed_connections_are_counted_and_opened_again() {
    let (address, connections) = server(Manner::Closes(10));
    let (_, run, _) = bench(&address, "--requests 45 --clients 1");
    let stats = run.unwrap().stats;
    assert_eq!(
        (
            stats.total() + stats.failures[Failure::Lost],
            stats.failures[Failure::Closed]
        ),
        (45, 4)
    );
    assert_eq!(connections.load(Ordering::Relaxed), 5);
}

#[test]
fn a_connection_that_ends_with_an_answer_holds_nobody_up() {
    let trace = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    // The third request waits for the second, which is never answered.
    let rows = "0,a,1,11,1,get,0\n0,b,1,11,1,get,0\n0,b,1,11,1,get,0\n";
    std::fs::write(trace.path(), rows).unwrap();
    let (address, _) = server(Manner::ClosesAtOnce);
    let options = format!(
        "--workload trace:{} --clients 1 --pipeline 2 --set-on-miss=false",
        trace.path().display()
    );
    let (_, run, json) = bench(&address, &options);
    let failures = run.unwrap().stats.failures;
    assert_eq!(failures[Failure::Timeout], 0, "{json}");
    assert_eq!(
        (failures[Failure::Closed], failures[Failure::Lost]),
        (2, 1),
        "{json}"
    );
}

#[test]
fn what_does_not_speak_memcached_is_found_out() {
    let (address, _) = server(Manner::Babbles);
    let (_, run, json) = bench(&address, "--requests 2 --clients 2");
    let stats = run.unwrap().stats;
    assert_eq!((stats.total(), stats.failures[Failure::Protocol]), (0, 2));
    assert!(json.contains("220 ready"), "{json}");
}

#[test]
fn a_server_that_is_not_there_ends_the_run_at_once() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (_, run, json) = bench(&unused.to_string(), "--duration 60 --clients 3");
    assert_eq!(run.unwrap().stats.failures[Failure::Refused], 3);
    assert!(json.contains("cannot connect"), "{json}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_waiting_as_latency() {
    let (address, _) = server(Manner::Good);
    let options = "--rate 2000 --pace constant --duration 0.5 --clients 4 --timeline";
    let (_, run, json) = bench(&address, options);
    let run = run.unwrap();
    assert_eq!(run.stats.total() + run.stats.unsent, 1000, "{json}");
    assert!(run.seconds > 0.4, "{json}");
    assert!(json.contains("\"timeline\":[{\"second\":0"), "{json}");
    // One connection cannot reach this rate: late requests have waited.
    let options = "--rate 10000000 --duration 0.3 --clients 1 --requests 100000";
    let stats = bench(&address, options).1.unwrap().stats;
    let late_ns = stats.all_latencies().max();
    assert!(late_ns > 10_000_000, "{late_ns} ns at most");
}

#[test]
fn what_is_not_found_is_stored_by_look_aside_clients() {
    let (address, _) = server(Manner::Good);
    let options = "--workload etc --requests 4000 --clients 4 --verify";
    let (_, run, json) = bench(&address, options);
    let stats = run.unwrap().stats;
    let [gets, sets, _] = stats.requests;
    assert!(stats.hits > gets * 9 / 10 && sets > 50, "{json}");
    assert_eq!(stats.failures.total(), 0, "{json}");
    let (_, run, json) = bench(&address, "--requests 1000 --set-on-miss=false");
    assert_eq!(run.unwrap().stats.requests, [1000, 0, 0], "{json}");
}

#[test]
fn a_trace_is_replayed_once_with_the_requests_of_each_key_in_its_order() {
    let trace = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    let rows: String = (0..300)
        .map(|row| format!("0,some-key-{},11,{},1,get,0\n", row % 10, row % 7))
        .collect();
    std::fs::write(trace.path(), &rows).unwrap();
    let options = |file: &tempfile::NamedTempFile| {
        format!(
            "--workload trace:{} --duration 60 --verify",
            file.path().display()
        )
    };
    for clients in [
        "--clients 1",
        "--clients 3 --pipeline 8",
        "--clients 32 --threads 2",
    ] {
        let (address, _) = server(Manner::Good);
        let (_, run, json) = bench(&address, &format!("{} {clients}", options(&trace)));
        let stats = run.unwrap().stats;
        assert_eq!(stats.requests, [300, 10, 0], "{clients}: {json}");
        assert_eq!(
            stats.hits, 290,
            "each key is missed once, {clients}: {json}"
        );
        assert_eq!(stats.failures.total(), 0, "{json}");
    }
    // A client that loses its connection delays no other client.
    let (address, _) = server(Manner::Closes(7));
    let options_of_three = format!("{} --clients 3 --pipeline 4", options(&trace));
    let (_, run, json) = bench(&address, &options_of_three);
    let stats = run.unwrap().stats;
    let gets = stats.requests[0] + stats.failures[Failure::Lost];
    assert!(gets >= 300, "{json}");
    assert_eq!(stats.unsent, 0, "{json}");

    let (address, _) = server(Manner::Good);
    std::fs::write(trace.path(), rows + "0,some-key,11,5,1\n").unwrap();
    let (_, run, json) = bench(&address, &options(&trace));
    assert_eq!(run.unwrap().stats.failures[Failure::Workload], 1, "{json}");
    assert!(json.contains("line 301: 5 columns"), "{json}");
}

#[test]
fn the_warm_up_is_not_counted() {
    let (address, _) = server(Manner::Good);
    let options = "--rate 1000 --pace constant --warmup 0.2 --requests 100 --clients 2";
    let stats = bench(&address, options).1.unwrap().stats;
    assert_eq!(stats.total(), 100);
}
