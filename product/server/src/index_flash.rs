//! The device of the index, as `--index-flash` names it, and its opening.
//!
//! | `--index-flash` | |
//! |---|---|
//! | `PATH` | a file, made for a new cache alone, or a block device |
//! | a device of the program | in memory; the flash must be in memory, too |

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use device::{Disk, FileDisk, FileOptions, NamedDevices, NamedDisk, NamedError, OpenError};
use engine::IndexDeviceNeed;
use serde::Deserialize;

use crate::flash::check_path;

/// The device of the index. A deserialized one is a path until [`name`](Self::name) has looked for a device.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PathBuf")]
pub enum IndexFlashSetting {
    /// A file or a block device.
    Path(PathBuf),
    /// A device of the program, in memory.
    Named(Arc<dyn NamedDisk>),
}

impl IndexFlashSetting {
    /// Takes the device of `devices` that the path names, if it names one.
    pub(crate) fn name(&mut self, devices: &dyn NamedDevices) -> Result<(), NamedError> {
        if let Self::Path(path) = self {
            match path.to_str().and_then(|text| devices.disk(text)) {
                Some(named) => *self = Self::Named(named?),
                None => check_path(path)?,
            }
        }
        Ok(())
    }

    /// Returns the path if the file or device outlives the process.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Named(_) => None,
        }
    }
}

impl fmt::Display for IndexFlashSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Named(device) => device.fmt(f),
        }
    }
}

impl From<PathBuf> for IndexFlashSetting {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
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
            IndexFlashSetting::Named(device) => device.open(bytes)?,
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
    use crate::flash::tests::Texts;

    fn setting(text: &str) -> IndexFlashSetting {
        let mut setting = IndexFlashSetting::Path(text.into());
        setting.name(&Texts).unwrap();
        setting
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
        assert_eq!(setting("./index").path(), Some(Path::new("./index")));
        assert_eq!(setting("index").path(), None);
        assert_eq!(setting("disk").to_string(), "disk");
        let mut wrong = IndexFlashSetting::Path("blocks".into());
        assert!(wrong.name(&Texts).is_err());
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
        assert!(
            matches!(refused.problem, OpenProblem::InUse { here: true }),
            "{refused}"
        );
    }

    #[test]
    fn a_device_of_the_program_has_the_needed_bytes() {
        let need = IndexDeviceNeed {
            may_be_new: true,
            bytes: 2 << 20,
        };
        assert_eq!(bytes(open("index", need).unwrap()), Some(2 << 20));
    }
}
