"""What a handler might try against whom it runs for. Each attack counts its attempts and says what those got that succeeded.

An attempt that raises an OSError was refused. Anything else that an attempt returns, other than nothing, is what it got.
"""

import ctypes
import errno
import mmap
import os
import pathlib
import platform
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
from typing import Any, Callable

import stokehold
from stokehold import current_job, endpoint
from stokehold.runner import outputs

LIBC = ctypes.CDLL(None, use_errno=True)


class Tally:
    def __init__(self) -> None:
        self.attempted = 0
        self.got: list[str] = []

    def tried(self, what: str, attempt: Callable[[], Any]) -> None:
        self.attempted += 1
        try:
            got = attempt()
        except (OSError, ValueError, subprocess.SubprocessError):
            return
        if got:
            self.got.append(f"{what}: {str(got)[:200]}")

    def told(self) -> dict[str, Any]:
        return {"attempted": self.attempted, "got": self.got}


@endpoint(name="inside", max_attempts=1)
def inside(attack: str, targets: list[str] = [], canary: str = "") -> Any:  # noqa: B006
    return globals()[f"try_{attack}"](targets, canary)


# --- files -----------------------------------------------------------------------------------------------------------------


def try_reads(targets: list[str], canary: str) -> Any:
    """Reads files that hold a canary, each in every way that there is."""
    tally, own = Tally(), current_job().scratch
    for number, target in enumerate(targets):
        for name, read in READS.items():
            place = own / f"{name}-{number}"
            tally.tried(f"{name} {target}", lambda: _seen(read(target, place), canary))
    return tally.told()


def _seen(content: bytes, canary: str) -> str:
    return f"{len(content)} bytes with the canary" if canary.encode() in content else ""


def _open(path: str, _place: pathlib.Path) -> bytes:
    return pathlib.Path(path).read_bytes()


def _by_path_descriptor(path: str, _place: pathlib.Path) -> bytes:
    held = os.open(path, os.O_PATH)
    return pathlib.Path(f"/proc/self/fd/{held}").read_bytes()


def _by_folder_descriptor(path: str, _place: pathlib.Path) -> bytes:
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    return os.read(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder), 1 << 20)


def _by_symlink(path: str, place: pathlib.Path) -> bytes:
    place.symlink_to(path)
    return place.read_bytes()


def _by_hard_link(path: str, place: pathlib.Path) -> bytes:
    os.link(path, place)
    return place.read_bytes()


def _by_hard_link_to_descriptor(path: str, place: pathlib.Path) -> bytes:
    held = os.open(path, os.O_PATH)
    os.link(f"/proc/self/fd/{held}", place, follow_symlinks=True)
    return place.read_bytes()


def _by_rename(path: str, place: pathlib.Path) -> bytes:
    os.rename(path, place)
    content = place.read_bytes()
    os.rename(place, path)
    return content


def _under(prefix: str) -> Callable[[str, pathlib.Path], bytes]:
    return lambda path, _place: pathlib.Path(prefix + path).read_bytes()


def _by_dots(path: str, _place: pathlib.Path) -> bytes:
    return pathlib.Path("../" * 40 + path.lstrip("/")).read_bytes()


def _by_dotted_names(path: str, _place: pathlib.Path) -> bytes:
    parts = path.strip("/").split("/")
    return pathlib.Path("/" + "".join(f"{part}/./../{part}/" for part in parts[:-1]) + parts[-1]).read_bytes()


def _by_cat(path: str, _place: pathlib.Path) -> bytes:
    return subprocess.run(["cat", path], capture_output=True, timeout=10, check=False).stdout


def _by_python(path: str, _place: pathlib.Path) -> bytes:
    code = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, timeout=30, check=False).stdout


def _by_map(path: str, _place: pathlib.Path) -> bytes:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:]


def _by_sendfile(path: str, place: pathlib.Path) -> bytes:
    with open(path, "rb") as file, open(place, "wb") as out:
        os.sendfile(out.fileno(), file.fileno(), 0, 1 << 20)
    return place.read_bytes()


def _by_copy(path: str, place: pathlib.Path) -> bytes:
    shutil.copyfile(path, place)
    return place.read_bytes()


def _by_openat2(path: str, _place: pathlib.Path) -> bytes:
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, 0)
    held = LIBC.syscall(437, -100, path.encode(), how, ctypes.sizeof(how))
    if held < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    return os.read(held, 1 << 20)


READS = {
    "open": _open,
    "O_PATH": _by_path_descriptor,
    "openat": _by_folder_descriptor,
    "symlink": _by_symlink,
    "hard-link": _by_hard_link,
    "hard-link-fd": _by_hard_link_to_descriptor,
    "rename": _by_rename,
    "self-root": _under("/proc/self/root"),
    "init-root": _under("/proc/1/root"),
    "parent-root": lambda path, place: _under(f"/proc/{os.getppid()}/root")(path, place),
    "thread-root": lambda path, place: _under("/proc/thread-self/root")(path, place),
    "parent-cwd": lambda path, place: _under(f"/proc/{os.getppid()}/cwd/" + "../" * 20)(path, place),
    "double-slash": _under("//"),
    "dots": _by_dots,
    "dotted-names": _by_dotted_names,
    "cat": _by_cat,
    "python": _by_python,
    "mmap": _by_map,
    "sendfile": _by_sendfile,
    "copyfile": _by_copy,
    "openat2": _by_openat2,
}


def try_writes(targets: list[str], _canary: str) -> Any:
    """Changes folders that are not its own. Each has a file `canary.txt`."""
    tally = Tally()
    for target in targets:
        _write_into(tally, target)
    return tally.told()


def _write_into(tally: Tally, target: str) -> None:
    folder, own = pathlib.Path(target), current_job().scratch
    there, made = folder / "canary.txt", folder / "zz-hostile"

    def gone(done: Any) -> str:
        """What was made is taken away again, so that the next way has the same chance."""
        for path in (made,):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        return f"done {done}"

    def moved() -> str:
        mine = own / "mine"
        mine.write_text("x")
        os.rename(mine, made)
        return gone("rename")

    def linked() -> str:
        mine = own / "linked"
        mine.write_text("x")
        os.link(mine, made)
        return gone("link")

    def bound() -> str:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(made))
        return gone("bind")

    def appended() -> str:
        with open(there, "ab") as file:
            file.write(b"hostile")
        return "appended"

    def by_descriptor() -> str:
        held = os.open(there, os.O_PATH)
        with open(f"/proc/self/fd/{held}", "ab") as file:
            file.write(b"hostile")
        return "appended by descriptor"

    tally.tried(f"create {target}", lambda: gone(made.write_text("x")))
    tally.tried(f"mkdir {target}", lambda: gone(made.mkdir()))
    tally.tried(f"symlink {target}", lambda: gone(made.symlink_to("/etc/passwd")))
    tally.tried(f"fifo {target}", lambda: gone(os.mkfifo(made)))
    tally.tried(f"device {target}", lambda: gone(os.mknod(made, stat.S_IFCHR | 0o666, os.makedev(1, 3))))
    tally.tried(f"rename {target}", moved)
    tally.tried(f"link {target}", linked)
    tally.tried(f"bind {target}", bound)
    tally.tried(f"temporary {target}", lambda: gone(os.open(folder, os.O_TMPFILE | os.O_RDWR)))
    tally.tried(f"parent-root {target}", lambda: gone(pathlib.Path(f"/proc/{os.getppid()}/root{made}").write_text("x")))
    if there.exists():
        tally.tried(f"append {target}", appended)
        tally.tried(f"append-fd {target}", by_descriptor)
        tally.tried(f"truncate {target}", lambda: f"truncated {os.truncate(there, 0)}")
        tally.tried(f"unlink {target}", lambda: f"unlinked {os.unlink(there)}")
        tally.tried(f"exchange {target}", lambda: f"renamed {os.rename(there, folder / 'other.txt')}")


def try_poison(_targets: list[str], _canary: str) -> Any:
    """Changes code that the next runner of this or another endpoint starts with."""
    package = pathlib.Path(stokehold.__file__).parent
    places = {package, package / "runner", pathlib.Path.cwd(), pathlib.Path(sys.prefix), pathlib.Path(sys.executable).parent}
    places |= {pathlib.Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib", "scripts")}
    places |= {place / "__pycache__" for place in tuple(places) if (place / "__pycache__").is_dir()}
    tally = Tally()
    for place in sorted(places):
        _write_into(tally, str(place))
    tally.tried("its own code", lambda: _appended_to(pathlib.Path(outputs.__file__)))
    tally.tried("pyvenv.cfg", lambda: _appended_to(pathlib.Path(sys.prefix) / "pyvenv.cfg"))
    return tally.told()


def _appended_to(path: pathlib.Path) -> str:
    with open(path, "ab") as file:
        file.write(b"")
    return "could be appended to"


# --- processes and rights --------------------------------------------------------------------------------------------------


def _others() -> list[int]:
    """Processes that it sees and did not start: not itself, its threads, its parent that is part of its own sandbox."""
    own = {os.getpid(), 1} if os.getppid() == 1 else {os.getpid()}
    return [int(entry.name) for entry in pathlib.Path("/proc").glob("[0-9]*") if int(entry.name) not in own]


def try_processes(targets: list[str], canary: str) -> Any:
    """Looks into and signals processes: those that are named and those that are seen."""
    tally = Tally()
    for pid in [int(target) for target in targets]:
        tally.tried(f"signal {pid}", lambda: f"signalled {os.kill(pid, signal.SIGCONT)}")
        tally.tried(f"pidfd {pid}", lambda: f"signalled {signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT)}")
    # Those that run longest, and those that began last.
    others = sorted(_others())
    for pid in sorted({int(target) for target in targets} | set(others[:20] + others[-20:])):
        for name in ("environ", "mem", "maps", "syscall", "stack", "auxv", "io"):
            tally.tried(f"{name} {pid}", lambda: _of_process(pid, name))
        for name in ("cwd", "root", f"task/{pid}/cwd", "map_files"):
            tally.tried(f"{name} {pid}", lambda: os.listdir(f"/proc/{pid}/{name}"))
        # Their numbers are no secret; what they lead to is.
        for name in ("fd/0", "fd/1", "fd/3", "fd/10", "exe"):
            tally.tried(f"link {name} {pid}", lambda: os.readlink(f"/proc/{pid}/{name}"))
            tally.tried(f"open {name} {pid}", lambda: f"opened {os.open(f'/proc/{pid}/{name}', os.O_RDONLY | os.O_NONBLOCK)}")
        for name, call in {"attach": 16, "seize": 0x4206}.items():
            tally.tried(f"ptrace {name} {pid}", lambda: _call(101, call, pid, 0, 0))
        tally.tried(f"process_vm_readv {pid}", lambda: _peek(pid))
        tally.tried(f"pidfd_getfd {pid}", lambda: _call(438, os.pidfd_open(pid), 0, 0))
        tally.tried(f"kcmp {pid}", lambda: _call(312, os.getpid(), pid, 0, 0, 0))
    return tally.told()


def _of_process(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        if name == "mem":
            file.seek(0x10000)
        # A thread of the kernel has none of it.
        seen = file.read(4096)
    return f"{len(seen)} bytes" if seen else ""


def _peek(pid: int) -> str:
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(16)
    local = Piece(ctypes.cast(buffer, ctypes.c_void_p).value, 16)
    # Where most programs have their first page; an address that is not there is refused for another reason than rights.
    remote = Piece(0x400000, 16)
    got = LIBC.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return f"{got} bytes" if got > 0 or ctypes.get_errno() == errno.EFAULT else ""


def _call(number: int, *arguments: int) -> str:
    """A system call: what it answered unless it was refused for want of rights or is unknown."""
    ctypes.set_errno(0)
    answer = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    refused = answer < 0 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS)
    return "" if refused else f"answered {answer}, {errno.errorcode.get(ctypes.get_errno(), 'no error')}"


# x86-64. Arguments that do nothing where the call is not refused: this also runs where nothing is.
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
        return tally.told()
    for name, (number, *arguments) in CALLS.items():
        tally.tried(name, lambda: _call(number, *arguments))
    for name, flag in NAMESPACES.items():
        tally.tried(f"unshare {name}", lambda: _call(272, flag))
        tally.tried(f"unshare user and {name}", lambda: _call(272, flag | NAMESPACES["user"]))
        # SIGCHLD beside a namespace: a child would be made.
        tally.tried(f"clone {name}", lambda: _cloned(flag | signal.SIGCHLD))
    for family in range(46):
        if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            for kind in (1, 2, 3, 5):
                tally.tried(f"socket family {family} of kind {kind}", lambda: _call(41, family, kind, 0))
    with open("/dev/null", "rb") as terminal:
        for name, request in {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}.items():
            tally.tried(name, lambda: _call(16, terminal.fileno(), request, 0))
    return tally.told()


def _cloned(flags: int) -> str:
    child = LIBC.syscall(ctypes.c_long(56), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
        return f"made {child}"
    return ""


def try_rights(targets: list[str], _canary: str) -> Any:
    """Becomes somebody else, or keeps what only root may have. `filter` where one of system calls is to be there."""
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
    # A file capability needs CAP_SETFCAP, also of one's own file.
    capability = b"\x01\x00\x00\x02" + b"\xff" * 16
    tally.tried("file capability", lambda: f"set {os.setxattr(copy, 'security.capability', capability)}")
    return tally.told()


def _is_root(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    return "it is root" if b"uid=0" in done.stdout or b"euid=0" in done.stdout else ""


# --- network ---------------------------------------------------------------------------------------------------------------


def try_network(targets: list[str], _canary: str) -> Any:
    """Reaches anything that is not its own: `host:port`, a path of a socket, or `@name` of an abstract one."""
    tally = Tally()
    for target in targets:
        if target.startswith(("/", "@")):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                tally.tried(f"connect {target} {kind}", lambda: _unix(target, kind))
            continue
        host, port = target.rsplit(":", 1)
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        tally.tried(f"tcp {target}", lambda: _tcp(family, host, int(port)))
        tally.tried(f"udp {target}", lambda: _udp(family, host, int(port)))
        tally.tried(f"fast open {target}", lambda: _fast_open(family, host, int(port)))
        tally.tried(f"by bash {target}", lambda: _by_bash(host, port))
        tally.tried(f"raw {target}", lambda: socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP))
    tally.tried("name lookup", lambda: socket.getaddrinfo("example.com", 80))
    return tally.told()


def _tcp(family: int, host: str, port: int) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        one.connect((host, port))
    return "connected"


def _udp(family: int, host: str, port: int) -> str:
    if host in ("127.0.0.1", "::1", "0.0.0.0", "::ffff:127.0.0.1"):
        return ""  # Its own loopback, where nobody answers.
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(2)
        return f"sent {one.sendto(b'x', (host, port))}"


def _fast_open(family: int, host: str, port: int) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        return f"sent {one.sendto(b'x', 0x20000000, (host, port))}"


def _by_bash(host: str, port: str) -> str:
    code = f"exec 3<>/dev/tcp/{host}/{port} && echo reached"
    done = subprocess.run(["bash", "-c", code], capture_output=True, timeout=5, check=False)
    return "connected" if b"reached" in done.stdout else ""


def _unix(target: str, kind: int) -> str:
    address = "\0" + target[1:] if target.startswith("@") else target
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(2)
        one.connect(address)
    return "connected"


def try_redis(targets: list[str], _canary: str) -> Any:
    """Commands to a Redis on these sockets, without its password and with guessed ones."""
    tally = Tally()
    guesses = ["", "AUTH redis\r\n", "AUTH default default\r\n", "AUTH ''\r\n", "HELLO 3\r\n", "HELLO 3 AUTH default x\r\n", "RESET\r\n", "QUIT\r\n"]
    wishes = ["KEYS *", "GET x", "CONFIG GET requirepass", "ACL LIST", "DEBUG SLEEP 0", "EVAL 'return 1' 0", "SAVE", "MONITOR", "REPLICAOF NO ONE", "FUNCTION LIST"]
    for target in targets:
        for guess in guesses:
            for wish in wishes:
                tally.tried(f"{guess.strip()} {wish}", lambda: _asked(target, guess + wish + "\r\n"))
    return tally.told()


def _asked(path: str, text: str) -> str:
    with socket.socket(socket.AF_UNIX) as redis:
        redis.settimeout(2)
        redis.connect(path)
        redis.sendall(text.encode())
        answers = [line for line in redis.recv(4096).decode("utf-8", "replace").splitlines() if line]
    good = [line for line in answers if not line.startswith(("-", "+RESET", "+OK"))]
    return good[0] if good else ""


# --- results ---------------------------------------------------------------------------------------------------------------


def try_result(targets: list[str], _canary: str) -> Any:
    """Names something as a file of its result, past the runner's own look: `how`, and what it leads to."""
    how, target = targets
    place = current_job().scratch / "picture.png"
    makers: dict[str, Callable[[], Any]] = {
        "symlink": lambda: place.symlink_to(target),
        "symlink to a symlink": lambda: ((place.parent / "between").symlink_to(target), place.symlink_to("between")),
        "symlinked folder": lambda: (place.parent / "folder").symlink_to(os.path.dirname(target)),
        "hard link": lambda: _try(lambda: os.link(target, place)),
        "fifo": lambda: os.mkfifo(place),
        "socket": lambda: socket.socket(socket.AF_UNIX).bind(str(place)),
        "folder": lambda: place.mkdir(),
        "descriptor": lambda: place.symlink_to("/proc/self/fd/0"),
        "root of init": lambda: place.symlink_to(f"/proc/1/root{target}"),
        "outside": lambda: None,
        "dots": lambda: None,
        "nothing": lambda: None,
    }
    makers[how]()
    named = {
        "symlinked folder": str(place.parent / "folder" / os.path.basename(target)),
        "outside": target,
        "dots": str(place.parent) + "/" + "../" * 40 + target.lstrip("/"),
    }.get(how, str(place))

    def put(self: outputs.Outputs, path: pathlib.Path) -> str:
        self.files.append(outputs.OutputFile("picture.png", named, "image/png"))
        return "picture.png"

    outputs.Outputs._place = put
    return place


def _try(attempt: Callable[[], Any]) -> None:
    try:
        attempt()
    except OSError:
        pass


def try_names(targets: list[str], _canary: str) -> Any:
    """A file of its result under a name that leads elsewhere or orders a terminal about."""
    place = current_job().scratch / "plain.txt"
    place.write_text("plain")
    (name,) = targets

    def put(self: outputs.Outputs, path: pathlib.Path) -> str:
        self.files.append(outputs.OutputFile(name, str(place), "text/plain"))
        return name

    outputs.Outputs._place = put
    return place


# --- looks at whether it is in fact shut in -----------------------------------------------------------------------------------


def try_nothing(_targets: list[str], _canary: str) -> Any:
    return {"uid": os.getuid(), "pid": os.getpid(), "scratch": str(current_job().scratch)}
