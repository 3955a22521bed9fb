//! The commands of the product: the server, and the inspection of an image. A program is one call of [`parse`] and a
//! match over its commands. `flowstone-server`, the program of this package, has these two and the default preset.
//!
//! A wrong option is answered with one line on standard error and exit code 2.

#![forbid(unsafe_code)]

use std::hash::RandomState;
use std::panic;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, Parser};
use device::{NamedDevices, NoDevices};
use engine::preset::Presets;

pub mod exit;
pub mod inspect;
mod log;
mod memcached;
pub mod progress;
pub mod serve;

/// Presets and named devices that a program is built with.
#[derive(Clone, Copy)]
pub struct Offer {
    /// The presets that `--preset` may name.
    pub presets: Presets,
    /// The devices that `--flash` and `--index-flash` may name.
    pub devices: &'static dyn NamedDevices,
}

impl Offer {
    /// The default preset, and files and block devices alone.
    pub const PRODUCT: Self = Self {
        presets: Presets::PRODUCT,
        devices: &NoDevices,
    };

    /// Returns the end of a command's help.
    fn list(&self) -> String {
        let (presets, devices) = (self.presets.list(), self.devices.usage());
        match devices {
            "" => presets,
            devices => format!("{presets}\n\n{devices}"),
        }
    }
}

/// Parses the command line of a program. The help of each command in `with_offer` ends with its presets and devices.
///
/// # Errors
/// The exit code of the program if it has nothing to run. The help or the reason has been printed then.
pub fn parse<C: Parser>(offer: Offer, with_offer: &[&str]) -> Result<C, ExitCode> {
    if !has_random_numbers() {
        return Err(exit::refuse(
            "the system has no random numbers for hash tables: let the container's seccomp profile allow getrandom, or give the \
             container /dev/urandom",
        ));
    }
    let list = |command: Command| command.after_help(offer.list());
    let command = with_offer.iter().fold(C::command(), |command, &name| {
        command.mut_subcommand(name, list)
    });
    command
        .try_get_matches()
        .and_then(|matches| C::from_arg_matches(&matches))
        .map_err(|error| usage_error(&error))
}

/// Returns whether hash tables can be made: the standard library panics without random numbers.
fn has_random_numbers() -> bool {
    let print = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let made = panic::catch_unwind(RandomState::new);
    panic::set_hook(print);
    made.is_ok()
}

/// Prints help as it is, and an error as one line.
fn usage_error(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        // A reader that closes its end early has seen enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(exit::USAGE);
    }
    let text = error.to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let line = lines.join(" ");
    exit::refuse(line.strip_prefix("error: ").unwrap_or(&line))
}
