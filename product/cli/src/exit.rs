//! How a command ends when something is wrong: one line on standard error, and an exit code. The command ends without the line if
//! standard error does not take it in [`PATIENCE`].

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

/// Longest wait for a terminal or a pipe.
const PATIENCE: Duration = Duration::from_secs(1);

/// Exit code of a wrong option or configuration.
pub const USAGE: u8 = 2;

/// Returns the exit code of a command whose check passed or failed.
pub fn of(is_right: bool) -> ExitCode {
    if is_right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints an error in the command line or its input as one line.
pub fn refuse(what: impl Display) -> ExitCode {
    say_wrong(what, ExitCode::from(USAGE))
}

/// Prints the failure of a command whose command line was right as one line.
pub fn fail(what: impl Display) -> ExitCode {
    say_wrong(what, ExitCode::FAILURE)
}

fn say_wrong(what: impl Display, code: ExitCode) -> ExitCode {
    let line = format!("flowstone: {what}\n");
    let (done, written) = mpsc::channel();
    let write = {
        let line = line.clone();
        move || {
            let _ = io::stderr().write_all(line.as_bytes());
            let _ = done.send(());
        }
    };
    match Builder::new().spawn(write) {
        Ok(_) => drop(written.recv_timeout(PATIENCE)),
        Err(_) => drop(io::stderr().write_all(line.as_bytes())),
    }
    code
}
