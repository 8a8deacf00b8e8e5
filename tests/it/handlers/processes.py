"""Handlers with processes of their own, which exchange values and open files over Unix sockets in TMPDIR."""

import multiprocessing
import os
import tempfile
import uuid

from stokehold import endpoint


def answer(receiver, queue) -> None:
    # The queue sends an open file as PyTorch's data loaders send tensors: over a socket with a name in TMPDIR.
    reader, writer = multiprocessing.Pipe(duplex=False)
    writer.send(receiver.recv() * 2)
    queue.put(reader)
    receiver.recv()


def open_file(method: str) -> int:
    """The answer of a process, from an open file that it sent."""
    context = multiprocessing.get_context(method)
    queue, (receiver, sender) = context.Queue(), context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(receiver, queue), daemon=True)
    process.start()
    sender.send(21)
    found = queue.get(timeout=60).recv()
    sender.send(0)
    process.join(60)
    return found


@endpoint(name="processes", vram_gib=0, network=True)
def processes() -> dict:
    # vLLM's processes are connected by sockets with such names.
    longest = os.path.join(tempfile.gettempdir(), str(uuid.uuid4()))
    with multiprocessing.Manager() as manager:
        shared = manager.list([1, 2])
        shared.append(3)
        total = sum(shared)
    found = {method: open_file(method) for method in ("fork", "spawn", "forkserver")}
    is_home = os.path.samefile(tempfile.gettempdir(), os.environ["HOME"])
    return {"fits": len(longest) <= 107, "is_home": is_home, "total": total, **found}
