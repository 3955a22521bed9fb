//! The device of the items, as `--flash` names it.

use std::fmt;
use std::path::{Path, PathBuf};

use device::{DeviceSpec, DiskSpec, SpecError};
use serde::Deserialize;
use serde::de;

/// The device of the items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlashSetting {
    /// A file, made if absent, or a block device.
    Path(PathBuf),
    /// An emulated device.
    Emulated(DeviceSpec),
}

impl FlashSetting {
    /// Parses `text`: an emulated device, or else a path.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn new(text: PathBuf) -> Result<Self, SpecError> {
        match text.to_str() {
            Some(text) if DiskSpec::is_one(text) => text.parse().map(Self::Emulated),
            _ => Ok(Self::Path(text)),
        }
    }

    /// Returns the path if the file or device outlives the process.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Emulated(spec) => spec.file(),
        }
    }

    /// Returns the emulated device whose erase blocks are segments, if it is one.
    pub(crate) fn nand(&self) -> Option<&DeviceSpec> {
        match self {
            Self::Emulated(spec) if !spec.is_ftl() => Some(spec),
            Self::Emulated(_) | Self::Path(_) => None,
        }
    }

    /// Returns the path of the superblock, which errors about the image name.
    pub(crate) fn image(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Emulated(spec) => match spec.file() {
                Some(file) => meta_beside(file),
                None => PathBuf::from(spec.to_string()),
            },
        }
    }
}

impl fmt::Display for FlashSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Emulated(spec) => spec.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for FlashSetting {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(PathBuf::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Returns the path of the superblock's file, beside the one with the flash.
pub(crate) fn meta_beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".meta");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_paths_are_told_apart() {
        for (text, path, image) in [
            ("./x", Some("./x"), "./x"),
            ("./nand:mlc", Some("./nand:mlc"), "./nand:mlc"),
            ("nand:mlc", None, "nand:mlc"),
            ("nand:mlc,file=a/b", Some("a/b"), "a/b.meta"),
            ("ftl:qlc,size=1024", None, "ftl:qlc,size=1024"),
        ] {
            let setting = FlashSetting::new(text.into()).unwrap();
            assert_eq!(setting.path(), path.map(Path::new), "{text}");
            assert_eq!(setting.image(), Path::new(image));
            assert_eq!(setting.to_string(), text);
        }
        for wrong in ["nand:slc", "nvm:optane"] {
            assert!(FlashSetting::new(wrong.into()).is_err(), "{wrong}");
        }
    }
}
