//! System calls that a container, an old kernel or a file system refuses.

#![allow(clippy::unwrap_used)]

mod refuse;

use std::io;
use std::os::unix::fs::MetadataExt;

use flowstone_runtime::file::{DirectFile, MappedFile, OpenFlags};
use flowstone_runtime::live::{IoChoice, IoPath, LiveConfig, Workers};
use flowstone_runtime::net::Listener;
use refuse::refuse;

/// Options of a new file.
const NEW: OpenFlags = OpenFlags {
    read_only: false,
    create_new: true,
    direct: true,
    exclusive_device: false,
};

/// Refuses `call`, starts workers, and returns why they do not use io_uring.
fn fallback_without(call: libc::c_long, errno: i32) -> String {
    refuse(call, errno);
    let mut config = LiveConfig {
        threads: 2,
        ..LiveConfig::default()
    };
    let workers = Workers::start(&config).unwrap();
    let IoPath::Fallback { reason } = workers.io_path().clone() else {
        panic!("a call that a ring needs is refused");
    };
    let (give, take) = std::sync::mpsc::channel();
    workers.spawn_on(1, move || async move { give.send(7).unwrap() });
    assert_eq!(take.recv().unwrap(), 7);
    workers.shutdown();
    config.io = IoChoice::IoUring;
    let refused = Workers::start(&config).err().unwrap();
    assert_eq!(refused.to_string(), reason);
    reason
}

#[test]
fn half_an_io_uring_is_not_used_and_the_reason_names_the_call_and_the_remedy() {
    let calls = [
        (libc::SYS_io_uring_setup, "io_uring_setup is refused"),
        (libc::SYS_io_uring_register, "io_uring_register is refused"),
        (libc::SYS_io_uring_enter, "io_uring_enter is refused"),
        (libc::SYS_eventfd2, "eventfd2 is refused"),
        (libc::SYS_madvise, "madvise is refused"),
    ];
    let errors = [
        (libc::EPERM, "seccomp profile"),
        (libc::EACCES, "seccomp profile"),
        (libc::ENOMEM, "locked memory"),
        (libc::ENOSYS, "Linux 5.19"),
        (libc::EINVAL, "Linux 5.19"),
        (libc::EMFILE, "open files (ulimit -n"),
        (libc::EAGAIN, "Linux 5.19"),
        (libc::ECANCELED, "threads (ulimit -u"),
    ];
    for (call, named) in calls {
        for (errno, remedy) in errors {
            let refused = move || fallback_without(call, errno);
            let reason = std::thread::spawn(refused).join().unwrap();
            assert!(
                reason.starts_with(named) && reason.contains(remedy),
                "{errno}: {reason}"
            );
        }
    }
}

#[test]
fn a_system_that_refuses_every_connection_is_told() {
    for errno in [libc::EPERM, libc::EOPNOTSUPP, libc::ENETDOWN] {
        let refused = move || {
            refuse(libc::SYS_accept4, errno);
            let workers = Workers::start(&LiveConfig::default()).unwrap();
            let (give, take) = std::sync::mpsc::channel();
            workers.spawn_on(0, move || async move {
                let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
                give.send(listener.accept().await.err()).unwrap();
            });
            let error = take.recv().unwrap().expect("no connection");
            assert_eq!(error.raw_os_error(), Some(errno));
            workers.shutdown();
        };
        std::thread::spawn(refused).join().unwrap();
    }
}

/// Runs `test` on a thread of its own for each errno that file systems and containers refuse `fallocate` with.
fn without_fallocate(test: impl Fn() + Copy + Send + Sync + 'static) {
    for errno in [libc::EOPNOTSUPP, libc::ENOSYS, libc::EPERM, libc::EINVAL] {
        let refused = move || {
            refuse(libc::SYS_fallocate, errno);
            test();
        };
        std::thread::spawn(refused).join().unwrap();
    }
}

#[test]
fn a_file_whose_space_cannot_be_reserved_gets_its_length() {
    without_fallocate(|| {
        let directory = tempfile::tempdir().unwrap();
        let file = DirectFile::open(&directory.path().join("flash"), NEW).unwrap();
        file.preallocate(1 << 20).unwrap();
        file.preallocate(1 << 16).unwrap();
        assert_eq!(file.len_bytes().unwrap(), 1 << 20);
    });
}

#[test]
fn a_mapped_file_whose_space_cannot_be_reserved_is_written_over() {
    without_fallocate(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let open = |bytes| MappedFile::open(&path, |_, _| io::Result::Ok(bytes), false).unwrap();
        let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
        let file = open(100 << 12).unwrap();
        assert!(taken() >= 100 << 12, "{} bytes", taken());
        file.store(0, 7);
        file.store((100 << 9) - 1, 8);
        drop(file);
        let longer = open(200 << 12).unwrap();
        assert!(taken() >= 200 << 12, "{} bytes", taken());
        // The first bytes of a file that is made longer are zeroed.
        assert_eq!(
            [0, (100 << 9) - 1, 100 << 9].map(|word| longer.load(word)),
            [0, 8, 0]
        );
        drop(longer);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 100 << 12);
    });
}

#[test]
fn the_room_of_a_file_system_without_figures_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flash");
    let file = DirectFile::open(&path, NEW).unwrap();
    assert!(file.room_bytes().is_some_and(|bytes| bytes > 0));
    refuse(libc::SYS_fstatfs, libc::EPERM);
    assert_eq!(file.room_bytes(), None);
}

#[test]
fn a_file_system_without_modes_is_used() {
    refuse(libc::SYS_fchmod, libc::EPERM);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    MappedFile::open(&path, |_, _| Ok(4096), false)
        .unwrap()
        .unwrap()
        .store(0, 1);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o077, 0);
}
