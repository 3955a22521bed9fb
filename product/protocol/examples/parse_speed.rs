//! Prints the time that the parser and the writers take per command, in nanoseconds:
//! `cargo run --release --manifest-path product/Cargo.toml -p flowstone-protocol --example parse_speed`.
//!
//! Every line parses a pipeline of 16 commands repeatedly, from one buffer, as a connection
//! would.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use flowstone_protocol::{Command, Limits, Parsed, parse, write};

const PIPELINE: usize = 16;
const MEASURE: Duration = Duration::from_millis(500);

fn main() {
    let value = "v".repeat(300);
    let key = "user:0123456789:0123456789:abc";
    for (name, request) in [
        ("get, 30-byte key", format!("get {key}\r\n")),
        (
            "get, 10 keys",
            format!("get{}\r\n", format!(" {key}").repeat(10)),
        ),
        (
            "set, 300-byte value",
            format!("set {key} 0 0 300\r\n{value}\r\n"),
        ),
        (
            "set noreply, exptime",
            format!("set {key} 5 1700000000 300 noreply\r\n{value}\r\n"),
        ),
        ("delete", format!("delete {key}\r\n")),
        ("incr", format!("incr {key} 12\r\n")),
        ("mg, value", format!("mg {key} v\r\n")),
        ("mg, seven flags", format!("mg {key} s v t f c k O123\r\n")),
        ("ms", format!("ms {key} 300 T60\r\n{value}\r\n")),
    ] {
        let input = request.repeat(PIPELINE).into_bytes();
        report(name, || pipeline(&input));
    }
    let mut out = Vec::new();
    report("write a value of 300 bytes", || {
        out.clear();
        for _ in 0..PIPELINE {
            write::value(
                &mut out,
                black_box(key.as_bytes()),
                0,
                None,
                value.as_bytes(),
            );
        }
        black_box(&out);
    });
}

/// Parses all commands in `input`.
fn pipeline(input: &[u8]) {
    let limits = Limits::default();
    let mut rest = black_box(input);
    let mut commands = 0;
    while let Parsed::Command { command, consumed } = parse(rest, &limits) {
        match command {
            Command::Get { keys, .. } => keys.for_each(|key| {
                black_box(key);
            }),
            other => {
                black_box(&other);
            }
        }
        rest = &rest[consumed..];
        commands += 1;
    }
    assert_eq!(commands, PIPELINE);
}

fn report(name: &str, mut sixteen: impl FnMut()) {
    let mut best = f64::INFINITY;
    let end = Instant::now() + MEASURE;
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..100 {
            sixteen();
        }
        let commands = (100 * PIPELINE) as f64;
        best = best.min(start.elapsed().as_nanos() as f64 / commands);
    }
    println!("{name:<28} {best:7.1} ns");
}
