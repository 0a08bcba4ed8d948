//! The system calls of a renderer: what the runtimes of Go and Rust, and reading files, need. There is no call that
//! makes a socket, looks into another process, mounts, or changes rights.
//!
//! What is not on the list fails with `EPERM` instead of killing: libraries try newer calls first and know how to go
//! on without them.

use super::{Error, Hold};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Allowed whatever the arguments are.
const ALLOWED: &[libc::c_long] = &[
    // Files
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_umask,
    libc::SYS_fadvise64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    // Memory
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Signals and threads of its own
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_restart_syscall,
    // Answered with "there is no such call" by the first filter, so that `clone` is used.
    libc::SYS_clone3,
    // Time, waiting
    libc::SYS_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    libc::SYS_setitimer,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // About itself
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_getrlimit,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older forms that this architecture still has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_arch_prctl,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_time,
    libc::SYS_getpgrp,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[libc::c_long] = &[];

/// What a process may ask of `prctl`: names for itself and its memory, and to die with its parent.
const PRCTL: [libc::c_int; 5] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_PDEATHSIG,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_SET_VMA,
];

/// Installs the filter. With `programs`, other programs (those that Landlock lets through) may be started.
pub(super) fn restrict(programs: bool) -> Result<Hold, Error> {
    for filter in [without_clone3()?, allowed(programs)?] {
        match seccompiler::apply_filter(&filter) {
            Ok(()) => {}
            // The kernel, or what stands between us and it, has no filters.
            Err(seccompiler::Error::Seccomp(_) | seccompiler::Error::Prctl(_)) => return Ok(Hold::None),
            Err(error) => return Err(Error::SystemCalls(error.to_string())),
        }
    }
    Ok(Hold::Full)
}

/// The flags of `clone3` lie in memory, where a filter cannot look; without the call, `clone` is used.
fn without_clone3() -> Result<BpfProgram, Error> {
    compile(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
    )
}

fn allowed(programs: bool) -> Result<BpfProgram, Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED
        .iter()
        .chain(ALLOWED_OLD)
        .map(|call| (*call, Vec::new()))
        .collect();
    let namespaces = (libc::CLONE_NEWNS
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP) as u64;
    let clone = if programs {
        SeccompCmpOp::MaskedEq(namespaces)
    } else {
        SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64)
    };
    let wanted = if programs { 0 } else { libc::CLONE_THREAD as u64 };
    rules.insert(libc::SYS_clone, vec![rule(0, clone, wanted)?]);
    if programs {
        rules.insert(libc::SYS_execve, Vec::new());
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_vfork, Vec::new());
    }
    // Limits may be read, never set: root could raise them again, and those of others.
    rules.insert(libc::SYS_prlimit64, vec![rule(2, SeccompCmpOp::Eq, 0)?]);
    let prctl = PRCTL
        .iter()
        .map(|option| rule(0, SeccompCmpOp::Eq, *option as u64))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_prctl, prctl);
    compile(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
    )
}

fn rule(argument: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompRule, Error> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compare, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(|e| Error::SystemCalls(e.to_string()))
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, Error> {
    let failed = |e: seccompiler::BackendError| Error::SystemCalls(e.to_string());
    let architecture = std::env::consts::ARCH.try_into().map_err(failed)?;
    SeccompFilter::new(rules, otherwise, listed, architecture)
        .and_then(TryInto::try_into)
        .map_err(failed)
}
