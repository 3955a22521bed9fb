//! Signals, alone in their process.

#![allow(clippy::unwrap_used)]

use flowstone_runtime as runtime;
use std::time::Duration;

use flowstone_runtime::live::{IoChoice, Signal, block_on_with, signals};

fn raise(signal: &str) {
    let pid = std::process::id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", signal, &pid])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn signals_arrive_one_by_one() {
    for io in [IoChoice::IoUring, IoChoice::Fallback] {
        block_on_with(io, async {
            let mut arrived = signals().unwrap();
            let second = signals().unwrap_err();
            assert_eq!(second.kind(), std::io::ErrorKind::AlreadyExists);
            let early = runtime::timeout(Duration::from_millis(20), arrived.next()).await;
            assert!(early.is_err(), "nothing has been sent yet");
            raise("TERM");
            assert_eq!(arrived.next().await.unwrap(), Signal::Terminate);
            raise("INT");
            assert_eq!(arrived.next().await.unwrap(), Signal::Interrupt);
        });
    }
}
