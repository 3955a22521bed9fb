//! How a command ends when something is wrong: one line on standard error, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

/// Exit code of a wrong option or configuration.
pub const USAGE: u8 = 2;

/// The exit code of a command that has found that all is right, or that something is not.
pub fn of(is_right: bool) -> ExitCode {
    if is_right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Says in one line what is wrong with the command line or its input.
pub fn refuse(what: impl Display) -> ExitCode {
    say_wrong(what, ExitCode::from(USAGE))
}

/// Says in one line what went wrong though nothing was wrong with the command line.
pub fn fail(what: impl Display) -> ExitCode {
    say_wrong(what, ExitCode::FAILURE)
}

fn say_wrong(what: impl Display, code: ExitCode) -> ExitCode {
    eprintln!("flowstone: {what}");
    code
}
