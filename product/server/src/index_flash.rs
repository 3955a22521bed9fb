//! The device of the index, as `--index-flash` names it, and its opening.
//!
//! | `--index-flash` | |
//! |---|---|
//! | `PATH` | a file, made for a new cache alone, or a block device |
//! | `nvm:optane`, `ftl:PRESET` | in memory; the flash must be in memory, too |

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use device::{Disk, DiskSpec, DiskSpecError, FileDisk, FileOptions, OpenError};
use engine::IndexDeviceNeed;
use serde::Deserialize;
use serde::de;

/// Seed of an emulated device's bad blocks.
const DEVICE_SEED: u64 = 2;

/// The device of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexFlashSetting {
    /// A file or a block device.
    Path(PathBuf),
    /// An emulated device, in memory.
    Emulated(DiskSpec),
}

impl IndexFlashSetting {
    /// Parses `text`: an emulated device, or else a path.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn new(text: PathBuf) -> Result<Self, DiskSpecError> {
        match text.to_str() {
            Some(text) if DiskSpec::is_one(text) => text.parse().map(Self::Emulated),
            _ => Ok(Self::Path(text)),
        }
    }

    /// Returns the path if the file or device outlives the process.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Emulated(_) => None,
        }
    }
}

impl fmt::Display for IndexFlashSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Emulated(spec) => spec.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for IndexFlashSetting {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(PathBuf::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// Opens the file once.
type OpenFile<'a> = dyn Fn() -> Result<Option<FileDisk>, OpenError> + 'a;

/// A device of the index that is not open yet.
pub(crate) struct IndexPlace {
    pub(crate) setting: IndexFlashSetting,
    /// Bytes of a new device; by default as many as the index needs.
    pub(crate) bytes: Option<u64>,
    pub(crate) options: FileOptions,
    /// Description of the opened device.
    pub(crate) words: Arc<OnceLock<String>>,
}

impl IndexPlace {
    /// Opens the device. Returns `None` if it does not exist and may not be made. Blocks the thread.
    pub(crate) fn open(
        self,
        need: IndexDeviceNeed,
        open_file: impl Fn(&OpenFile<'_>) -> Result<Option<FileDisk>, OpenError>,
    ) -> Result<Option<Arc<dyn Disk>>, OpenError> {
        let bytes = self.bytes.unwrap_or(need.bytes);
        let (disk, words): (Arc<dyn Disk>, String) = match &self.setting {
            IndexFlashSetting::Emulated(spec) => {
                let disk = spec.open(DEVICE_SEED, bytes)?;
                let words = spec.describe(disk.len_bytes());
                (disk, words)
            }
            IndexFlashSetting::Path(path) => {
                let new = need.may_be_new.then_some(bytes);
                let open = || FileDisk::open_index(path, new, self.options);
                let Some(disk) = open_file(&open)? else {
                    return Ok(None);
                };
                let words = disk.describe();
                (Arc::new(disk), words)
            }
        };
        let _ = self.words.set(words);
        Ok(Some(disk))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use device::OpenProblem;

    use super::*;

    fn setting(text: &str) -> IndexFlashSetting {
        IndexFlashSetting::new(text.into()).unwrap()
    }

    fn open(text: &str, need: IndexDeviceNeed) -> Result<Option<Arc<dyn Disk>>, OpenError> {
        let place = IndexPlace {
            setting: setting(text),
            bytes: None,
            options: FileOptions::default(),
            words: Arc::default(),
        };
        let words = Arc::clone(&place.words);
        let opened = place.open(need, |open| open())?;
        assert_eq!(opened.is_some(), words.get().is_some());
        Ok(opened)
    }

    fn bytes(opened: Option<Arc<dyn Disk>>) -> Option<u64> {
        opened.map(|disk| disk.len_bytes())
    }

    #[test]
    fn devices_and_paths_are_told_apart() {
        assert_eq!(
            setting("./nvm:optane").path(),
            Some(Path::new("./nvm:optane"))
        );
        assert_eq!(setting("nvm:optane,channels=2").path(), None);
        assert_eq!(setting("ftl:mlc").to_string(), "ftl:mlc");
        for wrong in ["nvm:x", "nand:mlc"] {
            assert!(IndexFlashSetting::new(wrong.into()).is_err(), "{wrong}");
        }
    }

    /// A new file has the needed size, and only its owner may use it. A cache that has an index elsewhere gets no new
    /// one.
    #[test]
    fn a_file_is_made_for_a_new_cache_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let text = path.to_str().unwrap();
        let need = |may_be_new| IndexDeviceNeed {
            may_be_new,
            bytes: 2 << 20,
        };
        assert!(open(text, need(false)).unwrap().is_none());
        assert!(!path.exists(), "it is made");
        let made = open(text, need(true)).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(bytes(made), Some(2 << 20));
        assert!(!path.exists(), "nothing has been written to it");
        std::fs::write(&path, vec![1; 3 << 20]).unwrap();
        assert_eq!(bytes(open(text, need(true)).unwrap()), Some(2 << 20));
        assert_eq!(bytes(open(text, need(false)).unwrap()), Some(3 << 20));
    }

    #[test]
    fn a_file_that_is_in_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let text = path.to_str().unwrap();
        let options = FileOptions {
            size: Some(2 << 20),
            create: true,
            ..FileOptions::default()
        };
        let _held = FileDisk::open(&path, &options).unwrap();
        let need = IndexDeviceNeed {
            may_be_new: false,
            bytes: 2 << 20,
        };
        let refused = open(text, need).err().unwrap();
        assert!(matches!(refused.problem, OpenProblem::InUse), "{refused}");
    }

    #[test]
    fn an_emulated_device_is_as_large_as_it_has_to_be() {
        let need = IndexDeviceNeed {
            may_be_new: true,
            bytes: 2 << 20,
        };
        for (text, expected) in [("nvm:optane", 2 << 20), ("nvm:optane,size=4MiB", 4 << 20)] {
            assert_eq!(bytes(open(text, need).unwrap()), Some(expected));
        }
    }
}
