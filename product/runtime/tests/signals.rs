//! Signals, alone in their process.

#![allow(clippy::unwrap_used)]

use flowstone_runtime::live::{Signal, signals};

fn raise(signal: Signal) {
    let pid = std::process::id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-s", &signal.name()["SIG".len()..], &pid])
        .status();
    assert!(sent.unwrap().success());
}

/// Returns whether the parent process had the signal ignored, as `nohup` does; it then stays ignored.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask >> (number - 1) & 1 == 1
}

#[test]
fn signals_arrive_one_by_one_and_none_ends_the_process() {
    let is_deaf = is_ignored(1);
    let mut arrived = signals().unwrap();
    let again = signals().unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(is_ignored(25), "SIGXFSZ");
    for signal in [
        Signal::Terminate,
        Signal::Interrupt,
        Signal::HangUp,
        Signal::User1,
        Signal::User2,
        Signal::Terminate,
    ] {
        raise(signal);
        if signal == Signal::HangUp && is_deaf {
            continue;
        }
        assert_eq!(arrived.wait().unwrap(), signal);
    }
}
