//! Runs the inputs in the files named on the command line: `cargo run -p flowstone-sessions --example run_stream FILE`.

use std::io::Write;

fn main() -> std::process::ExitCode {
    let mut out = std::io::stdout().lock();
    let mut code = std::process::ExitCode::SUCCESS;
    for file in std::env::args().skip(1) {
        let told = match std::fs::read(&file) {
            Ok(input) => flowstone_sessions::run(&input),
            Err(error) => Err(error.to_string()),
        };
        if told.is_err() {
            code = std::process::ExitCode::FAILURE;
        }
        if writeln!(out, "{file}: {told:?}").is_err() {
            return std::process::ExitCode::FAILURE;
        }
    }
    code
}
