//! L1, and the last steps of L2: a process restricts itself before it becomes a runner. The restrictions cannot be
//! undone.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use caps::CapSet;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope, path_beneath_rules,
};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
#[cfg(target_arch = "x86_64")]
use seccompiler::sock_filter;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::system::{SYSTEM, etc};
use super::{KEPT, Policy, ways};

/// Maximum number of processes and threads of one user: more than any framework needs, fewer than a machine can handle.
const PROCESSES: u64 = 4_096;

/// Maximum size of a file that a runner writes.
const FILE_BYTES: u64 = 64 << 30;

/// Readable paths of every program in addition to [`SYSTEM`].
const ASIDE: [&str; 2] = ["/proc", "/run/stoke"];

/// Writable devices of every program.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/tty"];

/// Writable folders in separate namespaces, where their content is private.
const ALONE: [&str; 3] = ["/dev", "/tmp", "/proc"];

/// Access to `/proc` of a process that uses a GPU. CUDA names its threads in `/proc/<pid>/task/<tid>/comm`, and fails
/// with error 304 if it cannot. A rule cannot name files of future processes, so it covers all of `/proc`, where the
/// kernel also checks the owner of each file.
const NAMES_THREADS: [AccessFs; 2] = [AccessFs::WriteFile, AccessFs::Truncate];

/// Newest Landlock version to use; an older kernel enforces what it supports.
const LANDLOCK: ABI = ABI::V6;

/// Restricts this process by `policy` (JSON), then becomes `program`.
///
/// # Errors
/// If the restrictions could not be applied, or the program does not exist. Otherwise, it does not return.
pub fn confine(policy: &str, program: &[String]) -> Result<std::convert::Infallible> {
    let policy: Policy = serde_json::from_str(policy).context("invalid sandbox policy")?;
    let (name, arguments) = program.split_first().context("no program given")?;
    limit(policy.is_alone || policy.uid.is_some())?;
    if let Some(uid) = policy.uid.filter(|_| !policy.is_alone) {
        ways::open_to(uid, &[policy.reads.as_slice(), &policy.writes].concat())?;
    }
    drop_privileges(policy.uid, &policy.groups)?;
    set_no_new_privs().context("cannot set no_new_privs")?;
    if policy.is_restricted {
        restrict_files(&policy)?;
        restrict_calls(&policy)?;
    }
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.to_str()?.strip_prefix(KEPT)?.to_owned(), value)));
    let mut program = Command::new(name);
    program.args(arguments).env_clear().envs(variables);
    Err(program.exec()).with_context(|| format!("cannot run {name}"))
}

fn limit(is_own_user: bool) -> Result<()> {
    let at_most = |resource, most: u64| {
        let (_, hard) = getrlimit(resource)?;
        let most = most.min(hard);
        setrlimit(resource, most, most)
    };
    at_most(Resource::RLIMIT_CORE, 0).context("cannot turn off core dumps")?;
    at_most(Resource::RLIMIT_FSIZE, FILE_BYTES).context("cannot limit the size of files")?;
    // The limit counts all processes of the user, so it is set only for a separate user.
    if is_own_user {
        at_most(Resource::RLIMIT_NPROC, PROCESSES).context("cannot limit processes")?;
    }
    Ok(())
}

/// Switches to a separate user with these groups; a process that stays root loses all capabilities.
fn drop_privileges(uid: Option<u32>, groups: &[u32]) -> Result<()> {
    if Uid::effective().is_root() {
        let bounds = caps::read(None, CapSet::Bounding).context("cannot read capabilities")?;
        for capability in bounds {
            caps::drop(None, CapSet::Bounding, capability).with_context(|| format!("cannot drop {capability}"))?;
        }
    }
    if let Some(uid) = uid {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups).context("cannot drop root's groups")?;
        setresgid(group, group, group).context("cannot switch to its own group")?;
        setresuid(user, user, user).context("cannot switch to its own user")?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).context("cannot drop capabilities")?;
    }
    Ok(())
}

fn restrict_files(policy: &Policy) -> Result<()> {
    let existing = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let (mut reads, mut writes) = (policy.reads.clone(), policy.writes.clone());
    if policy.is_alone {
        reads.push("/".into());
        writes.extend(existing(&ALONE));
    } else {
        reads.extend(existing(&SYSTEM).into_iter().chain(existing(&ASIDE)).chain(etc()));
        writes.extend(existing(&DEVICES));
    }
    let mut rules =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(LANDLOCK))?;
    if !policy.network && !policy.is_alone {
        rules = rules.handle_access(AccessNet::from_all(LANDLOCK))?;
    }
    let names_threads = policy.has_gpu.then_some("/proc");
    let status = rules
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(names_threads, NAMES_THREADS.into_iter().collect::<BitFlags<_>>()))?
        .add_rules(path_beneath_rules(reads, AccessFs::from_read(LANDLOCK)))?
        .add_rules(path_beneath_rules(writes, AccessFs::from_all(LANDLOCK)))?
        .restrict_self()?;
    ensure!(
        policy.is_alone || status.ruleset != RulesetStatus::NotEnforced,
        "this kernel does not support Landlock, so file access cannot be restricted"
    );
    Ok(())
}

/// Calls that fail with EPERM: only operators, debuggers and exploits use them.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_fanotify_init,
    libc::SYS_vhangup,
];

/// Calls that fail at L1, where files of other users are visible: Landlock does not check changes of extended
/// attributes. `EPERM` is what programs that copy files expect from a file system without attributes. The last two are
/// `setxattrat` and `removexattrat`.
const ATTRIBUTES: &[libc::c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    463,
    466,
];

/// Calls that fail with ENOSYS, so that programs use alternatives: the filter cannot inspect the arguments of `clone3`,
/// and io_uring bypasses it.
const UNKNOWN: &[libc::c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

fn restrict_calls(policy: &Policy) -> Result<()> {
    for program in [refusals(policy)?, unknowns()?] {
        apply_filter(&program).context("cannot restrict system calls")?;
    }
    #[cfg(target_arch = "x86_64")]
    apply_filter(&X32).context("cannot restrict system calls")?;
    Ok(())
}

/// x32 programs use other numbers for the same calls on the same architecture; all of these fail with ENOSYS.
#[cfg(target_arch = "x86_64")]
const X32: [sock_filter; 4] = {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const FIRST: u32 = 0x4000_0000;
    const fn statement(code: u16, k: u32) -> sock_filter {
        sock_filter { code, jt: 0, jf: 0, k }
    }
    [
        statement(LOAD_NUMBER, 0),
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: FIRST },
        statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
};

fn refusals(policy: &Policy) -> Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    // Allow threads and processes but no new namespaces.
    let flags = NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    rules.insert(libc::SYS_clone, flags.collect::<Result<_>>()?);
    // Without network access and namespaces, all connections would leave the sandbox.
    let is_unconnected = !policy.network && !policy.is_alone;
    // Refuse all other families: a virtual machine's host is reachable by one of them, and namespaces do not isolate
    // it.
    let mut families = vec![libc::AF_UNIX, libc::AF_NETLINK];
    if !is_unconnected {
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    let others = families.into_iter().map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.cast_unsigned())));
    rules.insert(libc::SYS_socket, vec![rule(others.collect::<Result<_>>()?)?]);
    if !policy.is_alone {
        rules.extend(ATTRIBUTES.iter().map(|call| (*call, Vec::new())));
    }
    if is_unconnected {
        refuse_unix_peers(&mut rules)?;
    }
    // Calls that inject input into the worker's terminal.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(|request| rule(vec![condition(1, SeccompCmpOp::Eq, request)?]));
    rules.insert(libc::SYS_ioctl, typing.collect::<Result<_>>()?);
    filter(rules, libc::EPERM)
}

/// Refuses connections to Unix sockets by name: Landlock does not check them, and a server may listen there without
/// authentication. Connected sockets (socketpairs and inherited ones) continue to work.
fn refuse_unix_peers(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<()> {
    /// Mask of a socket's type; the other bits are flags.
    const TYPE: u64 = 0xf;
    rules.insert(libc::SYS_connect, Vec::new());
    // `sendto` with an address.
    rules.insert(libc::SYS_sendto, vec![rule(vec![wide(4, SeccompCmpOp::Ne, 0)?])?]);
    // The filter cannot inspect addresses in messages, so socket types that accept them are refused. A raw Unix socket
    // becomes a datagram socket.
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let unix = || condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_UNIX.cast_unsigned()));
        let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW].into_iter().map(|kind| {
            rule(vec![unix()?, condition(1, SeccompCmpOp::MaskedEq(TYPE), u64::from(kind.cast_unsigned()))?])
        });
        rules.entry(call).or_default().extend(kinds.collect::<Result<Vec<_>>>()?);
    }
    Ok(())
}

fn unknowns() -> Result<BpfProgram> {
    filter(UNKNOWN.iter().map(|call| (*call, Vec::new())).collect(), libc::ENOSYS)
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, error: libc::c_int) -> Result<BpfProgram> {
    let arch = std::env::consts::ARCH.try_into().context("the system calls of this architecture are not known")?;
    let refuse = SeccompAction::Errno(error.cast_unsigned());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()?)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule> {
    Ok(SeccompRule::new(conditions)?)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

/// A condition on a 64-bit argument.
fn wide(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)?)
}
