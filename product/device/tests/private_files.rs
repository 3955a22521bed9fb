//! Access rights of created files. Alone in its process, because the umask belongs to the process.

#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flowstone_device::{FileDisk, FileJournal, FileOptions, NewJournal};
use rustix::fs::Mode;
use rustix::process::umask;

fn mode(path: &Path) -> u32 {
    metadata(path).unwrap().permissions().mode() & 0o777
}

/// Name of a file, and the function that creates it.
type Make<'a> = (&'static str, &'a dyn Fn(&Path) -> Box<dyn Any>);

#[test]
fn files_are_made_for_their_owner_alone_whatever_the_umask_and_keep_the_mode_they_have() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let make: [Make<'_>; 3] = [
        ("flash", &|path| {
            Box::new(
                FileDisk::open_image(path, Some(1 << 20), |_| None, FileOptions::default())
                    .unwrap(),
            )
        }),
        ("cached", &|path| {
            let cached = FileOptions {
                direct: false,
                ..FileOptions::default()
            };
            Box::new(FileDisk::open_image(path, Some(1 << 20), |_| None, cached).unwrap())
        }),
        ("journal", &|path| {
            let new = NewJournal {
                bytes: 1 << 20,
                least_bytes: 1 << 20,
                is_journal: <[u8]>::is_empty,
                empty_when_lost: false,
            };
            Box::new(FileJournal::open(path, &new).unwrap())
        }),
    ];
    for mask in [0o000, 0o022, 0o777] {
        for (name, make) in make {
            let path = path(&format!("{name}.{mask:o}"));
            let before = umask(Mode::from_raw_mode(mask));
            let made = make(&path);
            umask(before);
            assert_eq!(mode(&path), 0o600, "{name} under the umask {mask:03o}");
            drop(made);
            assert!(!path.exists(), "nothing was stored in it");
            std::fs::write(&path, b"").unwrap();
            set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let _made = make(&path);
            assert_eq!(mode(&path), 0o640, "{name} keeps its mode");
        }
    }
}
