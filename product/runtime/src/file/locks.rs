//! Access to a file: its mode when created, its exclusive lock, and whether a process holds that lock.
//!
//! The lock needs a file opened for writing. A process with read permission only can neither take it nor block others with
//! `flock`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::IFlags;

/// Mode of every created file: only its owner may read what users have stored.
const OWNER_ALONE: u32 = 0o600;

/// Opens the file at `path` for reading and writing, and returns whether it was created. A created file is accessible to its
/// owner only, whatever the umask, where the file system has modes. An existing file keeps its mode.
pub fn open_or_create(path: &Path) -> io::Result<(File, bool)> {
    let mut options = File::options();
    options.read(true).write(true);
    let existing = || options.open(path).map(|file| (file, false));
    match existing() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match for_owner_alone(options.clone().create_new(true)).open(path) {
        Ok(file) => {
            restrict(&file);
            Ok((file, true))
        }
        // Another process has created it in between.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(),
        Err(error) => Err(error),
    }
}

/// Removes the file at `path`, unless the path names a file other than `file` by now.
pub fn remove(path: &Path, file: impl AsFd) {
    let Ok(this) = rustix::fs::fstat(file) else {
        return;
    };
    let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == (this.st_dev, this.st_ino);
    if fs::symlink_metadata(path).is_ok_and(is_same) {
        // A failed removal leaves a file that holds no data.
        let _ = fs::remove_file(path);
    }
}

/// Makes `options` create files that only their owner can access, from the first moment.
pub(super) fn for_owner_alone(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(OWNER_ALONE)
}

/// Sets the mode of a new file, because the umask may have removed bits from it.
pub(super) fn restrict(file: &File) {
    // A file system that refuses has modes of its own, or has made the file with no more than this one.
    let _ = file.set_permissions(Permissions::from_mode(OWNER_ALONE));
}

/// Makes a file system that copies whatever is overwritten overwrite this empty file in place: a copy needs space that a full
/// file system does not have. Does nothing on others.
pub(super) fn overwrite_in_place(file: impl AsFd) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(&file) {
        let _ = rustix::fs::ioctl_setflags(&file, flags | IFlags::NOCOW);
    }
}

/// Takes the exclusive lock of a file that is open for writing. The lock lasts until [`unlock`], or until the last descriptor is
/// closed and the last operation has ended. Returns false when another process or descriptor holds it.
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

/// Releases the lock of a file at once: closing does not, while the system executes an operation on the file.
pub(super) fn unlock(file: impl AsFd) {
    // If this fails, closing the file releases the lock.
    let _ = set_lock(file, libc::F_UNLCK);
}

fn set_lock(file: impl AsFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: a zeroed `flock` is valid: all bytes of the file, whatever its length.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the request reads the `flock` behind the pointer, which lives for the call.
    let result =
        unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns whether this process holds the exclusive lock of the file at `path`. Returns false where the system does not tell.
pub fn is_locked_here(path: &Path) -> bool {
    let Ok(this) = fs::metadata(path) else {
        return false;
    };
    let is_holder = |fd: &fs::DirEntry| {
        let is_this = |found: fs::Metadata| (found.dev(), found.ino()) == (this.dev(), this.ino());
        let about = Path::new("/proc/self/fdinfo").join(fd.file_name());
        fs::metadata(fd.path()).is_ok_and(is_this)
            && fs::read_to_string(about).is_ok_and(|about| about.contains("OFDLCK"))
    };
    fs::read_dir("/proc/self/fd").is_ok_and(|fds| fds.flatten().any(|fd| is_holder(&fd)))
}

/// Returns whether a process holds the exclusive lock of the file. Does not see processes outside this one's container, or locks
/// on some network file systems.
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
