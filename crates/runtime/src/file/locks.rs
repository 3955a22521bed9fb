//! The exclusive lock of a file: taking it, and who has it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Takes the exclusive lock of a file; false when somebody else has it.
///
/// # Errors
/// When the file system has no locks.
pub fn try_lock(file: impl AsFd) -> Result<bool, Errno> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        locked => locked.map(|()| true),
    }
}

/// Whether some process holds an exclusive lock of the file, as far as the system tells: processes
/// outside this one's container, and locks on some network file systems, are not seen.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let found = fs::metadata(path)?;
    let (major, minor) = (
        rustix::fs::major(found.dev()),
        rustix::fs::minor(found.dev()),
    );
    let id = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = fs::read_to_string("/proc/locks")?;
    Ok(locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.contains(&"FLOCK") && words.contains(&"WRITE") && words.contains(&id.as_str())
    }))
}
