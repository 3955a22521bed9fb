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

#[test]
fn signals_arrive_one_by_one_and_none_ends_the_process() {
    let mut arrived = signals().unwrap();
    let again = signals().unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    for signal in [
        Signal::Terminate,
        Signal::Interrupt,
        Signal::HangUp,
        Signal::User1,
        Signal::User2,
        Signal::Terminate,
    ] {
        raise(signal);
        assert_eq!(arrived.wait().unwrap(), signal);
    }
}
