//! Who may read the files that are made. Alone in its process, for the umask is the process's.

#![allow(clippy::unwrap_used)]

use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flowstone_device::{DeviceSpec, FileDisk, FileJournal, FileOptions};
use rustix::fs::Mode;
use rustix::process::umask;

fn mode(path: &Path) -> u32 {
    metadata(path).unwrap().permissions().mode() & 0o777
}

/// The name of a file, and what makes it.
type Make<'a> = (&'static str, &'a dyn Fn(&Path));

#[test]
fn files_are_made_for_their_owner_alone_whatever_the_umask_and_keep_the_mode_they_have() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let make: [Make<'_>; 4] = [
        ("flash", &|path| {
            FileDisk::open_image(path, Some(1 << 20), FileOptions::default()).unwrap();
        }),
        ("cached", &|path| {
            let cached = FileOptions {
                direct: false,
                ..FileOptions::default()
            };
            FileDisk::open_image(path, Some(1 << 20), cached).unwrap();
        }),
        ("journal", &|path| {
            FileJournal::open(path, 1 << 20).unwrap();
        }),
        ("nand", &|path| {
            let spec = format!("nand:mlc,size=64MiB,file={}", path.display());
            spec.parse::<DeviceSpec>().unwrap().open(1).unwrap();
        }),
    ];
    for mask in [0o000, 0o022, 0o777] {
        for (name, make) in make {
            let path = path(&format!("{name}.{mask:o}"));
            let before = umask(Mode::from_raw_mode(mask));
            make(&path);
            umask(before);
            assert_eq!(mode(&path), 0o600, "{name} under the umask {mask:03o}");
            set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            make(&path);
            assert_eq!(mode(&path), 0o640, "{name} keeps its mode");
        }
    }
}
