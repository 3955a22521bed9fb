//! The emulated devices, as a program offers them to the server.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use device::{
    Disk, Geometry, Journal, MemoryJournal, NamedDevices, NamedDisk, NamedError, NamedFlash,
    OpenError, OpenedFlash, OpenedMedium,
};

use crate::{DeviceSpec, DiskSpec, Emulated, NandError, NandFileProblem, SpecError, is_nand_file};

/// Seeds of the bad blocks of a device for items, and for an index: the same for every start in memory.
const FLASH_SEED: u64 = 1;
const DISK_SEED: u64 = 2;

/// `nand:PRESET` and `ftl:PRESET` for items, `nvm:optane` and `ftl:PRESET` for an index.
pub const DEVICES: &dyn NamedDevices = &EmulatedDevices;

struct EmulatedDevices;

/// Parses `text` if it names an emulated device of any kind.
fn parse<T: FromStr<Err: fmt::Display>>(text: &str) -> Option<Result<T, NamedError>> {
    let parsed = DiskSpec::is_one(text).then(|| text.parse::<T>())?;
    Some(parsed.map_err(|error| NamedError {
        reason: error.to_string(),
        is_in_use: false,
    }))
}

impl NamedDevices for EmulatedDevices {
    fn flash(&self, text: &str) -> Option<Result<Arc<dyn NamedFlash>, NamedError>> {
        Some(parse::<DeviceSpec>(text)?.map(|spec| Arc::new(spec) as _))
    }

    fn disk(&self, text: &str) -> Option<Result<Arc<dyn NamedDisk>, NamedError>> {
        Some(parse::<DiskSpec>(text)?.map(|spec| Arc::new(spec) as _))
    }

    fn kept_in(&self, path: &Path) -> Option<&'static str> {
        is_nand_file(path).then_some("an emulated NAND device")
    }

    fn usage(&self) -> &'static str {
        "Emulated devices, in place of a PATH:
  --flash        nand:PRESET or ftl:PRESET, with ,size=S ,block=S ,channels=N ,luns=N ,bad=P% ,cycles=N ,erase_us=T
                 ,read_us=T ,program_us=T; nand: ,file=PATH; ftl: ,cache=S
  --index-flash  where --flash is in memory: nvm:optane, with ,size=S ,channels=N ,read_us=T ,write_us=T, or ftl:PRESET"
    }
}

impl NamedFlash for DeviceSpec {
    fn file(&self) -> Option<&Path> {
        self.file()
    }

    fn blocks(&self) -> Option<Result<Geometry, NamedError>> {
        (!self.is_ftl()).then(|| self.geometry().map_err(named))
    }

    fn journal(&self, words: usize) -> Arc<dyn Journal> {
        Arc::new(MemoryJournal::new(words))
    }

    fn open(&self) -> Result<OpenedFlash, NamedError> {
        let device = self.open(FLASH_SEED).map_err(named)?;
        Ok(OpenedFlash {
            memory_bytes: device.memory_bytes(),
            description: device.describe(),
            medium: match device {
                Emulated::Ftl(disk) => OpenedMedium::Disk(disk),
                Emulated::Nand(flash) => OpenedMedium::Flash {
                    is_new: flash.nand().is_new(),
                    flash,
                },
            },
        })
    }
}

fn named(error: SpecError) -> NamedError {
    let is_in_use = match &error {
        SpecError::Device(NandError::File(error)) => {
            matches!(error.problem, NandFileProblem::InUse)
        }
        _ => false,
    };
    NamedError {
        reason: error.to_string(),
        is_in_use,
    }
}

impl NamedDisk for DiskSpec {
    fn open(&self, usual_bytes: u64) -> Result<(Arc<dyn Disk>, String), OpenError> {
        let disk = self.open(DISK_SEED, usual_bytes)?;
        let description = self.describe(disk.len_bytes());
        Ok((disk, description))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_devices_or_are_paths() {
        let text = "nand:mlc,file=a/b";
        let device = DEVICES.flash(text).unwrap().unwrap();
        assert_eq!(device.to_string(), text);
        assert_eq!(
            (device.file(), device.blocks().is_some()),
            (Some(Path::new("a/b")), true)
        );
        let drive = DEVICES.flash("ftl:qlc,size=1024").unwrap().unwrap();
        assert_eq!((drive.file(), drive.blocks().is_some()), (None, false));
        assert!(DEVICES.flash("./nand:mlc").is_none() && DEVICES.disk("./nvm:optane").is_none());
        for wrong in ["nand:slc", "nvm:optane"] {
            assert!(DEVICES.flash(wrong).unwrap().is_err(), "{wrong}");
        }
        for wrong in ["nvm:x", "nand:mlc"] {
            let error = DEVICES.disk(wrong).unwrap().err().unwrap();
            assert!(
                error.reason.contains("nvm:optane") || wrong == "nvm:x",
                "{error}"
            );
        }
    }

    #[test]
    fn a_device_for_an_index_is_as_large_as_it_has_to_be() {
        for (text, expected) in [("nvm:optane", 2 << 20), ("nvm:optane,size=4MiB", 4 << 20)] {
            let device = DEVICES.disk(text).unwrap().unwrap();
            let (disk, description) = device.open(2 << 20).unwrap();
            assert_eq!(disk.len_bytes(), expected);
            assert!(!description.is_empty());
        }
    }

    #[test]
    fn a_device_that_another_process_has_open_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "nand:mlc,size=64MiB,file={}",
            dir.path().join("flash").display()
        );
        let device = DEVICES.flash(&text).unwrap().unwrap();
        let opened = device.open().unwrap();
        assert!(matches!(
            opened.medium,
            OpenedMedium::Flash { is_new: true, .. }
        ));
        assert!(device.open().err().unwrap().is_in_use);
        drop(opened);
        assert!(device.open().is_ok());
    }
}
