"""Attacks on other processes, through system calls, and on the rights of the handler's user."""

import ctypes
import errno
import os
import pathlib
import platform
import shutil
import signal
import socket
import subprocess
from typing import Any

from stokehold import current_job
from tally import Tally

LIBC = ctypes.CDLL(None, use_errno=True)


def _others() -> list[int]:
    """Visible processes that the handler did not start: not itself, its threads, or its parent, which is part
    of its own sandbox.
    """
    own = {os.getpid(), 1} if os.getppid() == 1 else {os.getpid()}
    return [int(entry.name) for entry in pathlib.Path("/proc").glob("[0-9]*") if int(entry.name) not in own]


def try_processes(targets: list[str], canary: str) -> Any:
    """Inspects and signals processes: the named ones and the visible ones."""
    tally = Tally()
    for pid in [int(target) for target in targets]:
        tally.tried(f"signal {pid}", lambda: f"signalled {os.kill(pid, signal.SIGCONT)}")
        tally.tried(f"pidfd {pid}", lambda: f"signalled {signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT)}")
    # The oldest and the newest processes.
    others = sorted(_others())
    for pid in sorted({int(target) for target in targets} | set(others[:20] + others[-20:])):
        for name in ("environ", "mem", "maps", "syscall", "stack", "auxv", "io"):
            tally.tried(f"{name} {pid}", lambda: _of_process(pid, name))
        for name in ("cwd", "root", f"task/{pid}/cwd", "map_files"):
            tally.tried(f"{name} {pid}", lambda: os.listdir(f"/proc/{pid}/{name}"))
        # The numbers of descriptors are not secret; their targets are.
        for name in ("fd/0", "fd/1", "fd/3", "fd/10", "exe"):
            tally.tried(f"link {name} {pid}", lambda: os.readlink(f"/proc/{pid}/{name}"))
            tally.tried(f"open {name} {pid}", lambda: f"opened {os.open(f'/proc/{pid}/{name}', os.O_RDONLY | os.O_NONBLOCK)}")
        for name, call in {"attach": 16, "seize": 0x4206}.items():
            tally.tried(f"ptrace {name} {pid}", lambda: _call(101, call, pid, 0, 0))
        tally.tried(f"process_vm_readv {pid}", lambda: _peek(pid))
        tally.tried(f"pidfd_getfd {pid}", lambda: _call(438, os.pidfd_open(pid), 0, 0))
        tally.tried(f"kcmp {pid}", lambda: _call(312, os.getpid(), pid, 0, 0, 0))
    return tally.report()


def _of_process(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        if name == "mem":
            file.seek(0x10000)
        # A kernel thread has none of these.
        seen = file.read(4096)
    return f"{len(seen)} bytes" if seen else ""


def _peek(pid: int) -> str:
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(16)
    local = Piece(ctypes.cast(buffer, ctypes.c_void_p).value, 16)
    # The usual first page of programs; an unmapped address is refused for a reason other than rights.
    remote = Piece(0x400000, 16)
    got = LIBC.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return f"{got} bytes" if got > 0 or ctypes.get_errno() == errno.EFAULT else ""


def _call(number: int, *arguments: int) -> str:
    """Makes a system call. Returns its result unless it was refused for lack of rights or is unknown."""
    ctypes.set_errno(0)
    answer = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    refused = answer < 0 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS)
    return "" if refused else f"answered {answer}, {errno.errorcode.get(ctypes.get_errno(), 'no error')}"


# x86-64. The arguments have no effect if the call is not refused: this also runs where nothing is.
CALLS = {
    "ptrace": (101, 0x4206, 0, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "process_vm_writev": (311, 1, 0, 0, 0, 0, 0),
    "pidfd_getfd": (438, -1, 0, 0),
    "kcmp": (312, 1, 1, 0, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "umount2": (166, 0, 0),
    "move_mount": (429, -1, 0, -1, 0, 0),
    "open_tree": (428, -1, 0, 1),
    "open_tree clone": (428, -100, 0, 1),
    "fsopen": (430, 0, 0),
    "fsmount": (432, -1, 0, 0),
    "fsconfig": (431, -1, 0, 0, 0, 0),
    "fspick": (433, -1, 0, 0),
    "mount_setattr": (442, -1, 0, 0, 0, 0),
    "pivot_root": (155, 0, 0),
    "chroot": (161, 0),
    "setns": (308, -1, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0xFFFF),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0),
    "keyctl": (250, 0, -3, 0, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0),
    "init_module": (175, 0, 0, 0),
    "finit_module": (313, -1, 0, 0),
    "delete_module": (176, 0, 0),
    "kexec_load": (246, 0, 0, 0, -1),
    "reboot with a wrong magic": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0),
    "swapoff": (168, 0),
    "acct": (163, -1),
    "quotactl": (179, -1, 0, 0, 0),
    "syslog": (103, 10, 0, 0),
    "settimeofday": (164, -1, 0),
    "clock_settime": (227, 99, 0),
    "adjtimex": (159, 0),
    "clock_adjtime": (305, 99, 0),
    "sethostname": (170, 0, -1),
    "setdomainname": (171, 0, -1),
    "fanotify_init": (300, 0, 0),
    "vhangup with no terminal": (153,),
    "clone3": (435, 0, 0),
    "io_uring_setup": (425, 1, 0),
    "io_uring_enter": (426, -1, 0, 0, 0, 0, 0),
    "io_uring_register": (427, -1, 0, 0, 0),
}
NAMESPACES = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}


def try_calls(_targets: list[str], _canary: str) -> Any:
    """System calls that no model needs."""
    tally = Tally()
    if platform.machine() != "x86_64":
        return tally.report()
    for name, (number, *arguments) in CALLS.items():
        tally.tried(name, lambda: _call(number, *arguments))
    for name, flag in NAMESPACES.items():
        tally.tried(f"unshare {name}", lambda: _call(272, flag))
        tally.tried(f"unshare user and {name}", lambda: _call(272, flag | NAMESPACES["user"]))
        # SIGCHLD together with a namespace flag: the call would create a child.
        tally.tried(f"clone {name}", lambda: _cloned(flag | signal.SIGCHLD))
    for family in range(46):
        if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            for kind in (1, 2, 3, 5):
                tally.tried(f"socket family {family} of kind {kind}", lambda: _call(41, family, kind, 0))
    with open("/dev/null", "rb") as terminal:
        for name, request in {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}.items():
            tally.tried(name, lambda: _call(16, terminal.fileno(), request, 0))
    return tally.report()


def _cloned(flags: int) -> str:
    child = LIBC.syscall(ctypes.c_long(56), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
        return f"made {child}"
    return ""


def try_rights(targets: list[str], _canary: str) -> Any:
    """Becomes another user, or keeps rights that only root may have. `filter` if a filter of system calls is
    expected.
    """
    tally, own = Tally(), current_job().scratch
    status = dict(line.split(":\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        tally.tried(name, lambda: f"holds {status[name]}" if int(status[name], 16) else "")
    tally.tried("no new privileges", lambda: "" if status["NoNewPrivs"].strip() == "1" else "may get new privileges")
    if "filter" in targets:
        tally.tried("seccomp", lambda: "" if status["Seccomp"].strip() == "2" else "no filter")
    tally.tried("root's user", lambda: f"has {status['Uid']}" if "0" in status["Uid"].split() else "")
    for word in range(41):
        # PR_CAP_AMBIENT, raise.
        tally.tried(f"ambient {word}", lambda: _call(157, 47, 2, word, 0, 0))
    for group in (0, 42, 999):
        tally.tried(f"setgroups {group}", lambda: f"groups {os.setgroups([group])}")
    if os.getuid() != 0:
        for ids in ((0, 0, 0), (-1, 0, -1), (65534, 65534, 65534), (50000, 50000, 50000), (1, 1, 1)):
            if os.getuid() not in ids:
                tally.tried(f"setresuid {ids}", lambda: f"uid {os.setresuid(*ids)}")
                tally.tried(f"setresgid {ids}", lambda: f"gid {os.setresgid(*ids)}")
        for program in ("su", "sudo", "mount", "newgrp", "chsh", "passwd", "pkexec", "unix_chkpwd"):
            if path := shutil.which(program):
                tally.tried(program, lambda: _is_root([path, "-c", "id"]))
    copy = own / "id"
    shutil.copyfile("/usr/bin/id", copy)
    for mode in (0o4755, 0o2755, 0o6755):
        copy.chmod(mode)
        if os.getuid() != 0:
            tally.tried(f"mode {mode:o}", lambda: _is_root([str(copy)]))
    # A file capability requires CAP_SETFCAP, even on the user's own file.
    capability = b"\x01\x00\x00\x02" + b"\xff" * 16
    tally.tried("file capability", lambda: f"set {os.setxattr(copy, 'security.capability', capability)}")
    return tally.report()


def _is_root(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    return "it is root" if b"uid=0" in done.stdout or b"euid=0" in done.stdout else ""
