//! The device of the items, as `--flash` names it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Geometry, NamedDevices, NamedError, NamedFlash};
use serde::Deserialize;

/// The device of the items. A deserialized one is a path until [`name`](Self::name) has looked for a device.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "PathBuf")]
pub enum FlashSetting {
    /// A file, made if absent, or a block device.
    Path(PathBuf),
    /// A device of the program.
    Named(Arc<dyn NamedFlash>),
}

impl FlashSetting {
    /// Takes the device of `devices` that the path names, if it names one.
    pub(crate) fn name(&mut self, devices: &dyn NamedDevices) -> Result<(), NamedError> {
        if let Self::Path(path) = self {
            match path.to_str().and_then(|text| devices.flash(text)) {
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
            Self::Named(device) => device.file(),
        }
    }

    /// Returns the shape of the device if its erase blocks are segments.
    pub(crate) fn blocks(&self) -> Result<Option<Geometry>, NamedError> {
        match self {
            Self::Named(device) => device.blocks().transpose(),
            Self::Path(_) => Ok(None),
        }
    }

    /// Returns the path of the superblock, which errors about the image name.
    pub(crate) fn image(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Named(device) => match device.file() {
                Some(file) => meta_beside(file),
                None => PathBuf::from(device.to_string()),
            },
        }
    }
}

impl fmt::Display for FlashSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Named(device) => device.fmt(f),
        }
    }
}

impl From<PathBuf> for FlashSetting {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

/// Refuses a path that reads as the text of a device which this program does not have.
pub(crate) fn check_path(path: &Path) -> Result<(), NamedError> {
    let text = path.to_string_lossy();
    match text.split_once(':') {
        Some((kind, _)) if !kind.is_empty() && !kind.contains('/') => Err(NamedError {
            reason: format!(
                "this program has no device `{kind}`: name another, or write ./{text} for a file of that name"
            ),
            is_in_use: false,
        }),
        _ => Ok(()),
    }
}

/// Returns the path of the superblock's file, beside the one with the flash.
pub(crate) fn meta_beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".meta");
    name.into()
}

#[cfg(test)]
pub(crate) mod tests {
    use device::{Journal, NamedDisk, OpenError, OpenedFlash};

    use super::*;

    /// Devices by the texts `blocks`, `disk` and `index`, in memory or with `,file=PATH`. They cannot be opened.
    pub(crate) struct Texts;

    #[derive(Debug)]
    struct Text {
        text: String,
        file: Option<PathBuf>,
    }

    impl fmt::Display for Text {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.text)
        }
    }

    fn refused(text: &str) -> NamedError {
        NamedError {
            reason: format!("`{text}` is no device of this kind"),
            is_in_use: false,
        }
    }

    fn named(text: &str, kinds: &[&str]) -> Option<Result<Arc<Text>, NamedError>> {
        let (kind, option) = text.split_once(',').unwrap_or((text, ""));
        ["blocks", "disk", "index"].contains(&kind).then(|| {
            let file = option.strip_prefix("file=").map(PathBuf::from);
            let text = text.to_owned();
            match kinds.contains(&kind) {
                true => Ok(Arc::new(Text { text, file })),
                false => Err(refused(&text)),
            }
        })
    }

    impl NamedDevices for Texts {
        fn flash(&self, text: &str) -> Option<Result<Arc<dyn NamedFlash>, NamedError>> {
            Some(named(text, &["blocks", "disk"])?.map(|device| device as _))
        }

        fn disk(&self, text: &str) -> Option<Result<Arc<dyn NamedDisk>, NamedError>> {
            Some(named(text, &["disk", "index"])?.map(|device| device as _))
        }

        fn kept_in(&self, _path: &Path) -> Option<&'static str> {
            None
        }

        fn usage(&self) -> &'static str {
            ""
        }
    }

    impl NamedFlash for Text {
        fn file(&self) -> Option<&Path> {
            self.file.as_deref()
        }

        fn blocks(&self) -> Option<Result<Geometry, NamedError>> {
            self.text.starts_with("blocks").then_some({
                Ok(Geometry {
                    channels: 1,
                    luns_per_channel: 1,
                    blocks_per_lun: 64,
                    pages_per_block: 64,
                    page_bytes: 16 << 10,
                })
            })
        }

        fn journal(&self, _words: usize) -> Arc<dyn Journal> {
            panic!("it has no journal")
        }

        fn open(&self) -> Result<OpenedFlash, NamedError> {
            Err(refused(&self.text))
        }
    }

    impl NamedDisk for Text {
        fn open(&self, usual_bytes: u64) -> Result<(Arc<dyn device::Disk>, String), OpenError> {
            Ok((
                Arc::new(device::MemoryDisk::new(usual_bytes)),
                self.text.clone(),
            ))
        }
    }

    #[test]
    fn devices_and_paths_are_told_apart() {
        for (text, path, image) in [
            ("./x", Some("./x"), "./x"),
            ("./blocks", Some("./blocks"), "./blocks"),
            ("blocks", None, "blocks"),
            ("blocks,file=a/b", Some("a/b"), "a/b.meta"),
            ("disk", None, "disk"),
        ] {
            let mut setting = FlashSetting::Path(text.into());
            setting.name(&Texts).unwrap();
            assert_eq!(setting.path(), path.map(Path::new), "{text}");
            assert_eq!(setting.image(), Path::new(image));
            assert_eq!(setting.to_string(), text);
            let has_blocks = setting.blocks().unwrap().is_some();
            assert_eq!(has_blocks, text.starts_with("blocks"));
        }
        let mut wrong = FlashSetting::Path("index".into());
        assert!(wrong.name(&Texts).is_err());
    }

    #[test]
    fn item_16_a_text_that_names_no_device_of_the_program_is_no_file() {
        for devices in [&Texts as &dyn NamedDevices, &device::NoDevices] {
            let refused = FlashSetting::Path("nand:mlc,size=1GiB".into()).name(devices);
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("no device `nand`"), "{error}");
            assert!(error.contains("./nand:mlc,size=1GiB"), "{error}");
            for path in ["./nand:mlc", "/dev/disk/by-path/pci-0000:00", "a/b:c", ":x"] {
                FlashSetting::Path(path.into()).name(devices).unwrap();
            }
        }
    }
}
