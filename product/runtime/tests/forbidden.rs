//! System calls that a container, an old kernel or a file system refuses. A filter holds for the thread of a test and for
//! threads that it starts.

#![allow(clippy::unwrap_used)]

use std::io;
use std::os::unix::fs::MetadataExt;

use flowstone_runtime::file::{DirectFile, MappedFile, OpenFlags};
use flowstone_runtime::live::{IoChoice, IoPath, LiveConfig, Workers};

/// Options of a new file.
const NEW: OpenFlags = OpenFlags {
    read_only: false,
    create_new: true,
    direct: true,
    exclusive_device: false,
};

/// Makes a system call fail with `errno` on this thread and on threads that it starts.
fn refuse(call: libc::c_long, errno: i32) {
    let step = |code: u32, jump_true: u8, jump_false: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    let call = u32::try_from(call).unwrap();
    let refusal = libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut filter = [
        // The number of the system call is the first word of the filter's input.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its filter are valid for the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

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
    ];
    let errors = [
        (libc::EPERM, "seccomp profile"),
        (libc::EACCES, "seccomp profile"),
        (libc::ENOMEM, "locked memory"),
        (libc::ENOSYS, "Linux 5.19"),
        (libc::EINVAL, "Linux 5.19"),
        (libc::EAGAIN, "Linux 5.19"),
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
        let open = |bytes| MappedFile::open(&path, |_, _| io::Result::Ok(bytes)).unwrap();
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
    MappedFile::open(&path, |_, _| Ok(4096))
        .unwrap()
        .unwrap()
        .store(0, 1);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o077, 0);
}
