//! Fallback without io_uring, which container runtimes forbid by default. Alone in its process.

#![allow(clippy::unwrap_used)]

use flowstone_runtime::live::{IoChoice, IoPath, LiveConfig, Workers};

/// Makes `io_uring_setup` fail with EPERM on this thread and on threads that it starts.
fn forbid_io_uring() {
    const SETUP: u32 = libc::SYS_io_uring_setup as u32;
    let step = |code: u32, jump_true: u8, jump_false: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    let mut filter = [
        // The number of the system call is the first word of the filter's input.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SETUP),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
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

#[test]
fn the_fallback_is_taken_and_says_why() {
    forbid_io_uring();
    let mut config = LiveConfig {
        threads: 2,
        ..LiveConfig::default()
    };
    let workers = Workers::start(&config).unwrap();
    let IoPath::Fallback { reason } = workers.io_path() else {
        panic!("io_uring is forbidden here");
    };
    assert!(reason.contains("not permitted"), "{reason}");
    let (give, take) = std::sync::mpsc::channel();
    workers.spawn_on(1, move || async move { give.send(7).unwrap() });
    assert_eq!(take.recv().unwrap(), 7);
    workers.shutdown();
    config.io = IoChoice::IoUring;
    assert!(Workers::start(&config).is_err());
}
