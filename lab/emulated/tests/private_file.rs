//! Access rights of the file that keeps a device. Alone in its process, because the umask belongs to the process.

#![allow(clippy::unwrap_used)]

use std::fs::{Permissions, metadata, set_permissions};
use std::os::unix::fs::PermissionsExt;

use flowstone_emulated::DeviceSpec;
use rustix::fs::Mode;
use rustix::process::umask;

#[test]
fn a_file_is_made_for_its_owner_alone_whatever_the_umask_and_keeps_the_mode_it_has() {
    let directory = tempfile::tempdir().unwrap();
    for mask in [0o000, 0o022, 0o777] {
        let path = directory.path().join(format!("{mask:o}"));
        let mode = || metadata(&path).unwrap().permissions().mode() & 0o777;
        let spec = format!("nand:mlc,size=64MiB,file={}", path.display());
        let spec: DeviceSpec = spec.parse().unwrap();
        let before = umask(Mode::from_raw_mode(mask));
        let made = spec.open(1).unwrap();
        umask(before);
        assert_eq!(mode(), 0o600, "under the umask {mask:03o}");
        drop(made);
        assert!(!path.exists(), "nothing was stored in it");
        std::fs::write(&path, b"").unwrap();
        set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let _made = spec.open(1).unwrap();
        assert_eq!(mode(), 0o640, "it keeps its mode");
    }
}
