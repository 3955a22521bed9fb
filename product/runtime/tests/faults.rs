//! Faults in memory that is no mapped file of this crate: they end the process, as before.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use flowstone_runtime::buffer::PAGE_BYTES;
use flowstone_runtime::file::MappedFile;
use rustix::mm::{MapFlags, ProtFlags};

/// Set in the process that is to end.
const CHILD: &str = "FLOWSTONE_FAULTS_CHILD";

#[test]
fn a_fault_elsewhere_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        fault_in_both();
        return;
    }
    let test = std::env::current_exe().unwrap();
    let mut child = Command::new(test);
    child.args(["--exact", "a_fault_elsewhere_ends_the_process"]);
    let status = child.env(CHILD, "1").output().unwrap().status;
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

/// Accesses a page that a mapped file has lost, and then such a page of another mapping.
fn fault_in_both() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let bytes = PAGE_BYTES as u64;
    let mapped = MappedFile::open(&path, |_, _| Ok(bytes), false).unwrap();
    let mapped = mapped.unwrap();
    mapped.store(0, 1);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(mapped.load(0), 0);
    let other = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(directory.path().join("other"))
        .unwrap();
    // SAFETY: a fresh mapping of which one byte is read as a volatile value; there is no page behind it.
    unsafe {
        let none = std::ptr::null_mut();
        let flags = MapFlags::SHARED;
        let start = rustix::mm::mmap(none, PAGE_BYTES, ProtFlags::WRITE, flags, &other, 0);
        start.unwrap().cast::<u8>().write_volatile(1);
    }
}
