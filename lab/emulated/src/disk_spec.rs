//! Emulated devices that are overwritten in place, by name: `nvm:PRESET` with options, and `ftl:PRESET` as in [`DeviceSpec`]. An
//! index can lie on such a device.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::nvm::{NvmConfig, NvmDisk};
use crate::{DeviceSpec, Emulated, SpecError};
use device::{Bytes, Disk, OpenError, OpenProblem, parse_bytes};

/// Syntax of the text.
const USAGE: &str = "write nvm:optane, then any of ,size=S ,channels=N ,read_us=T ,write_us=T, or ftl:PRESET with its \
                     options";
/// Longest duration of an access, in microseconds.
const MOST_MICROS: f64 = 1e6;
/// Largest number of channels of an emulated device without flash.
const MOST_CHANNELS: u32 = 1024;

/// Description of an emulated device that is overwritten in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskSpec {
    /// A conventional drive.
    Ftl(DeviceSpec),
    /// Memory without flash.
    Nvm(NvmSpec),
}

/// Description of a device of the kind `nvm:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmSpec {
    size: Option<u64>,
    channels: Option<u32>,
    read_ns: Option<u32>,
    write_ns: Option<u32>,
}

/// Error that says in one line why a device cannot be understood or made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum DiskSpecError {
    #[error("`{0}` is no emulated device that can be overwritten in place; {USAGE}")]
    NoDevice(String),
    #[error("`{0}` is no preset of nvm:; use optane")]
    NoPreset(String),
    #[error("`{0}` is no option of this device; {USAGE}")]
    NoOption(String),
    #[error("`{0}` is given twice; leave one out")]
    Twice(String),
    #[error("`{0}` cannot be; write for example size=4GiB, channels=7 or read_us=8.4")]
    Value(String),
    #[error(transparent)]
    Ftl(#[from] SpecError),
}

impl DiskSpec {
    /// Returns whether `text` names an emulated device rather than a file.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("nvm:") || DeviceSpec::is_one(text)
    }

    /// Makes the device. A device of the kind `nvm:` without a size gets `usual_bytes`. `seed` chooses the bad blocks.
    ///
    /// # Errors
    /// When such a device is impossible; the error has the device's name in place of a path.
    pub fn open(&self, seed: u64, usual_bytes: u64) -> Result<Arc<dyn Disk>, OpenError> {
        let opened = match self {
            Self::Ftl(spec) => spec.open(seed).map_err(io::Error::other),
            Self::Nvm(spec) => {
                let bytes = spec.size.unwrap_or(usual_bytes);
                return Ok(Arc::new(NvmDisk::new(bytes, spec.config())));
            }
        };
        let opened = opened.and_then(|device| match device {
            Emulated::Ftl(disk) => Ok(disk),
            Emulated::Nand(_) => Err(io::Error::other(DiskSpecError::NoDevice(self.to_string()))),
        });
        let name = self.to_string();
        let refused = |source| OpenError::at(Path::new(&name))(OpenProblem::Io { source });
        Ok(opened.map_err(refused)?)
    }

    /// Returns one line for the log that describes the device.
    pub fn describe(&self, len_bytes: u64) -> String {
        match self {
            Self::Ftl(_) => format!("emulated SSD, {:.0} usable", Bytes(len_bytes)),
            Self::Nvm(spec) => {
                let config = spec.config();
                let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
                format!(
                    "emulated non-volatile memory, {} channels, {} us to read a page, {} us to write one, {:.1} GB/s: \
                     {:.0}",
                    config.channels,
                    micros(config.read),
                    micros(config.write),
                    config.link_bytes_per_s as f64 / 1e9,
                    Bytes(len_bytes)
                )
            }
        }
    }
}

impl NvmSpec {
    fn config(&self) -> NvmConfig {
        let usual = NvmConfig::OPTANE;
        let time = |ns: Option<u32>, usual| ns.map_or(usual, |ns| Duration::from_nanos(ns.into()));
        NvmConfig {
            channels: self.channels.unwrap_or(usual.channels),
            read: time(self.read_ns, usual.read),
            write: time(self.write_ns, usual.write),
            ..usual
        }
    }

    fn set(&mut self, option: &str) -> Result<(), DiskSpecError> {
        let (name, text) = option
            .split_once('=')
            .ok_or_else(|| DiskSpecError::NoOption(option.to_owned()))?;
        let wrong = || DiskSpecError::Value(option.to_owned());
        let size = || parse_bytes(text).filter(|&bytes| bytes > 0);
        let count = || {
            let count = text.parse().ok();
            count.filter(|count| (1..=MOST_CHANNELS).contains(count))
        };
        let time = || {
            let micros = text.parse().ok();
            let micros = micros.filter(|micros: &f64| (1e-3..=MOST_MICROS).contains(micros));
            micros.map(|micros| (micros * 1e3).round() as u32)
        };
        let is_twice = match name {
            "size" => self.size.replace(size().ok_or_else(wrong)?).is_some(),
            "channels" => self.channels.replace(count().ok_or_else(wrong)?).is_some(),
            "read_us" => self.read_ns.replace(time().ok_or_else(wrong)?).is_some(),
            "write_us" => self.write_ns.replace(time().ok_or_else(wrong)?).is_some(),
            _ => return Err(DiskSpecError::NoOption(option.to_owned())),
        };
        if is_twice {
            return Err(DiskSpecError::Twice(name.to_owned()));
        }
        Ok(())
    }
}

impl FromStr for DiskSpec {
    type Err = DiskSpecError;

    fn from_str(text: &str) -> Result<Self, DiskSpecError> {
        if text.starts_with("ftl:") {
            return Ok(Self::Ftl(text.parse()?));
        }
        let rest = text
            .strip_prefix("nvm:")
            .ok_or_else(|| DiskSpecError::NoDevice(text.to_owned()))?;
        let mut parts = rest.split(',');
        let name = parts.next().unwrap_or_default();
        if name != "optane" {
            return Err(DiskSpecError::NoPreset(name.to_owned()));
        }
        let mut spec = NvmSpec::default();
        parts.try_for_each(|option| spec.set(option))?;
        Ok(Self::Nvm(spec))
    }
}

impl fmt::Display for DiskSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ftl(spec) => spec.fmt(f),
            Self::Nvm(spec) => spec.fmt(f),
        }
    }
}

impl fmt::Display for NvmSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nvm:optane")?;
        if let Some(size) = self.size {
            write!(f, ",size={size}")?;
        }
        if let Some(channels) = self.channels {
            write!(f, ",channels={channels}")?;
        }
        for (name, ns) in [("read_us", self.read_ns), ("write_us", self.write_ns)] {
            if let Some(ns) = ns {
                write!(f, ",{name}={}", f64::from(ns) / 1e3)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DiskSpec, DiskSpecError> {
        text.parse()
    }

    #[test]
    fn what_is_understood_is_written_the_same() {
        for text in [
            "nvm:optane",
            "nvm:optane,size=4194304,channels=1,read_us=5.5,write_us=20",
            "ftl:mlc,size=1073741824",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
            assert!(DiskSpec::is_one(text));
        }
        assert!(!DiskSpec::is_one("./nvm:optane"));
    }

    #[test]
    fn what_is_not_understood_is_said_in_one_line() {
        for (text, says) in [
            ("disk:x", "no emulated device"),
            ("nand:mlc", "no emulated device"),
            ("nvm:", "no preset"),
            ("nvm:dcpmm", "no preset"),
            ("nvm:optane,", "no option"),
            ("nvm:optane,block=1MiB", "no option"),
            ("nvm:optane,size=0", "cannot be"),
            ("nvm:optane,channels=0", "cannot be"),
            ("nvm:optane,channels=1025", "cannot be"),
            ("nvm:optane,read_us=-1", "cannot be"),
            ("nvm:optane,write_us=NaN", "cannot be"),
            ("nvm:optane,read_us=1,read_us=1", "twice"),
            ("ftl:slc", "no device preset"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.contains(says) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_size_that_is_not_asked_for_is_the_usual_one() {
        let bytes = |text: &str| {
            let disk = parse(text).unwrap().open(1, 1 << 20).unwrap();
            disk.len_bytes()
        };
        assert_eq!(bytes("nvm:optane"), 1 << 20);
        assert_eq!(bytes("nvm:optane,size=2MiB"), 2 << 20);
    }
}
