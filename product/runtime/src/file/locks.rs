//! Who may have a file: its mode when it is made, its exclusive lock, and who holds that.
//!
//! The lock is one that needs a file opened for writing. Whoever may only read a file cannot take
//! it, nor keep others from it with `flock`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode of every file that is made: its owner alone may read what users have stored.
const OWNER_ALONE: u32 = 0o600;

/// Opens the file at `path` for reading and writing, and tells whether it was made. One that does not
/// exist is made, for its owner alone, whatever the umask; one that does keeps its mode.
pub fn open_or_create(path: &Path) -> io::Result<(File, bool)> {
    let mut options = File::options();
    options.read(true).write(true);
    let existing = || options.open(path).map(|file| (file, false));
    match existing() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match for_owner_alone(options.clone().create_new(true)).open(path) {
        Ok(file) => restrict(&file).map(|()| (file, true)),
        // Somebody else has made it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(),
        Err(error) => Err(error),
    }
}

/// Removes the file at `path`, unless that is another one than `file` by now.
pub fn remove(path: &Path, file: impl AsFd) {
    let Ok(this) = rustix::fs::fstat(file) else {
        return;
    };
    let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == (this.st_dev, this.st_ino);
    if fs::symlink_metadata(path).is_ok_and(is_same) {
        // What cannot be removed stays, and holds nothing.
        let _ = fs::remove_file(path);
    }
}

/// What `options` make is its owner's alone from the first moment.
pub(super) fn for_owner_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(OWNER_ALONE)
}

/// Gives a file that has just been made its mode, of which the umask may have taken away.
pub(super) fn restrict(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(OWNER_ALONE))
}

/// Takes the exclusive lock of a file that is open for writing, held until [`unlock`] or until its last
/// descriptor is closed and the last operation on it has ended; false when somebody else has it.
///
/// # Errors
/// When the file system has no locks.
pub fn try_lock(file: impl AsFd) -> io::Result<bool> {
    let error = match set_lock(file, libc::F_WRLCK) {
        Ok(()) => return Ok(true),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Gives up the lock of a file at once: closing it does not while the system has an operation on it.
pub(super) fn unlock(file: impl AsFd) {
    // What cannot be unlocked here is once it is closed.
    let _ = set_lock(file, libc::F_UNLCK);
}

fn set_lock(file: impl AsFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: a zeroed `flock` is a valid one: all bytes of the file, whatever its length.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the request reads the `flock` that the pointer names, which lives for the call.
    let result =
        unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether some process holds the exclusive lock of the file, as far as the system tells: processes
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
        words.contains(&"OFDLCK") && words.contains(&"WRITE") && words.contains(&id.as_str())
    }))
}
