//! How a command ends when something is wrong: one line on standard error, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

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
    eprintln!("flowstone: {what}");
    code
}
