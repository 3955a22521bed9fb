//! Random command lines, judged by this parser and by a real memcached.
//!
//! Needs a memcached 1.6.18 at the address in `FLOWSTONE_ORACLE`, on which it may do as it likes:
//! `FLOWSTONE_ORACLE=127.0.0.1:22122 cargo test -p flowstone-protocol --test oracle -- --ignored`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flowstone_protocol::{Limits, Parsed, Refusal, Refused, parse};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Words that lines are made of. Numbers stay within their fields, where memcached wraps around
/// and this parser does not.
fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "replace",
        "append",
        "prepend",
        "cas",
        "incr",
        "decr",
        "delete",
        "touch",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "verbosity",
        "flush_all",
        "bget",
        "version",
        "lru",
        "slabs",
        "automove",
        "ratio",
        "tune",
        "mode",
        "flat",
        "noreply",
        "0",
        "1",
        "2",
        "-1",
        "10",
        "x",
        "key",
        "dXNlcg==",
        "a=b",
        "b",
        "c",
        "f",
        "h",
        "k",
        "l",
        "s",
        "t",
        "v",
        "q",
        "u",
        "I",
        "P",
        "L",
        "Oabc",
        "O",
        "T",
        "T5",
        "T-1",
        "Tx",
        "N5",
        "R5",
        "C5",
        "C0",
        "Cx",
        "F5",
        "Fx",
        "MA",
        "ME",
        "MI",
        "M+",
        "Mx",
        "MII",
        "M",
        "J5",
        "Jx",
        "D5",
        "Dx",
        "S5",
        "z",
        "\u{7f}",
    ]);
    prop_oneof![
        20 => known.prop_map(str::to_owned),
        1 => Just("k".repeat(251)),
        1 => Just("k".repeat(250)),
        1 => Just(format!("O{}", "p".repeat(31))),
        1 => Just(format!("O{}", "p".repeat(32))),
    ]
}

/// A command and mostly sensible arguments.
fn line() -> impl Strategy<Value = String> {
    let meta = prop::sample::select(vec![
        "mg key",
        "ms key 2",
        "md key",
        "ma key",
        "mg dXNlcg==",
    ]);
    prop_oneof![
        vec(word(), 0..7).prop_map(|words| words.join(" ")),
        (meta, vec(word(), 0..20)).prop_map(|(head, flags)| format!("{head} {}", flags.join(" "))),
    ]
}

/// The first line memcached answers to `request`; nothing if it answers nothing.
fn ask(stream: &mut TcpStream, request: &[u8]) -> String {
    // The first `mn` ends the answer, or is taken for a data block; then the second one ends it.
    stream.write_all(request).expect("memcached reads");
    stream.write_all(b"mn\r\nmn\r\n").expect("memcached reads");
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.ends_with(b"MN\r\n") {
        match stream.read(&mut buffer).expect("memcached answers in time") {
            0 => break,
            len => answer.extend_from_slice(&buffer[..len]),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer
        .split_inclusive('\n')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// A connection to the oracle.
fn connect() -> TcpStream {
    let address = std::env::var("FLOWSTONE_ORACLE").expect("FLOWSTONE_ORACLE names a memcached");
    let stream = TcpStream::connect(address).expect("memcached answers");
    stream.set_nodelay(true).expect("a socket option");
    let patience = Some(Duration::from_secs(2));
    stream.set_read_timeout(patience).expect("a socket option");
    stream
}

#[test]
#[ignore = "needs a memcached to compare with"]
fn memcached_agrees() {
    let mut runner = TestRunner::new(Config {
        cases: 10_000,
        failure_persistence: None,
        ..Config::default()
    });
    let compare = |line: String| {
        // The flags `E` and `x` are younger than the oracle.
        let young = |word: &str| word.starts_with(['E', 'x']);
        if line.starts_with('m') && line.split(' ').any(young) {
            return Ok(());
        }
        let limits = Limits::default();
        let request = format!("{line}\r\n");
        let parsed = parse(request.as_bytes(), &limits);
        // A line that announces a data block gets it.
        let block = match parsed {
            Parsed::Incomplete { need: Some(need) } => need - request.len(),
            Parsed::Refused(Refused { swallow, .. }) => swallow,
            _ => 0,
        };
        let block = match block {
            0 => String::new(),
            bytes => format!("{:x<1$}\r\n", "", bytes - 2),
        };
        let answer = ask(&mut connect(), format!("{request}{block}").as_bytes());
        match parsed {
            Parsed::Refused(Refused {
                reply,
                quiet: false,
                ..
            }) => {
                // memcached does the sum first, and looks at the opaque token after.
                let non_numeric = answer.as_bytes() == Refusal::NonNumeric.as_bytes();
                if !(reply == Refusal::OpaqueTooLong && non_numeric) {
                    let reply = std::str::from_utf8(reply.as_bytes()).expect("replies are text");
                    prop_assert_eq!(&answer, reply, "{:?}", line);
                }
            }
            Parsed::Refused(Refused { quiet: true, .. }) => {
                let said = answer.starts_with("CLIENT_ERROR") && !line.starts_with("m");
                prop_assert!(!said, "{:?} got {:?}", line, answer);
            }
            _ => {
                let non_numeric = std::str::from_utf8(Refusal::NonNumeric.as_bytes());
                let fine = !answer.contains("ERROR") || Ok(answer.as_str()) == non_numeric;
                prop_assert!(fine, "{:?} got {:?}", line, answer);
            }
        }
        Ok(())
    };
    if let Err(failure) = runner.run(&line(), compare) {
        panic!("{failure}");
    }
}
