//! Refusal of system calls, as by a container's filter.

/// Makes a system call fail with `errno` on this thread and on threads that it starts.
pub(crate) fn refuse(call: libc::c_long, errno: i32) {
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
