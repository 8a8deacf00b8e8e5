"""`runpod`: runs an unmodified script that ends with `runpod.serverless.start(...)`. The runner emulates RunPod."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
import traceback
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable

from stokehold._wire import Load
from stokehold.runner.attempt import Attempt
from stokehold.runner.context import CURRENT
from stokehold.runner.handler import Handler, HandlerNotFound
from stokehold.runner.kinds.child import Child, end_like
from stokehold.runner.kinds.loopback import Server
from stokehold.runner.kinds.runpod_api import Api, Ticket
from stokehold.runner.kinds.whole import INPUT_SCHEMA, Whole

_POLL_S = 0.05
# Defaults that the endpoint's variables override. Debug output would log each request. The package's own checks
# before the first job require 4 GiB of free memory and a route to 8.8.8.8; the worker tests its GPUs itself.
_DEFAULTS = {
    "RUNPOD_LOG_LEVEL": "INFO",
    "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
    "RUNPOD_SKIP_GPU_CHECK": "true",
}
# Concurrency of a script that sets its own concurrency to a value that cannot be determined statically.
_CONCURRENCY = 16
# The API's limit of `max_concurrency`.
_CONCURRENCY_MAX = 1_000


def describe(where: str) -> dict[str, Any]:
    """Describes the script without running it, because it would start to serve immediately."""
    path = Path(where)
    if not path.is_file():
        raise HandlerNotFound(f"{path.name}: no such file in {path.parent.name or path.parent}")
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError) as error:
        raise HandlerNotFound(f"{path.name} is not valid Python: {error}") from None
    if not any(_imports_runpod(node) for node in ast.walk(tree)):
        raise HandlerNotFound(
            f"{path.name} does not import runpod: name the script that ends with "
            'runpod.serverless.start({"handler": handler})'
        )
    return {
        "name": None,
        "entry": path.name,
        "kind": "runpod",
        "options": _options(tree),
        "input_schema": INPUT_SCHEMA,
        "output_schema": {},
    }


def prepare(load: Load, wait: Callable[[Any], Any]) -> Handler:
    """Starts the script, and returns when it requests its first job. The worker limits the time."""
    runpod = Runpod(load.entry, wait)
    runpod.start()
    return runpod


class Runpod(Handler):
    """Runs jobs in a process of the script, and replaces the process when a job's result requests it.

    The script decides how many jobs it runs at once, by its `concurrency_modifier`; the endpoint's `max_concurrency` is
    how many it is offered. A cancel stops an async handler at its `await`. One that goes on nevertheless, as a plain
    handler does, costs the process: other jobs in it may finish, and the next ones begin in another.
    """

    def __init__(self, entry: str, wait: Callable[[Any], Any]) -> None:
        super().__init__(self._run, Whole())
        self._entry = entry
        self._wait = wait
        self._waiting: deque[Ticket] = deque()
        self._script: Script
        self._replacing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Raises `ChildEnded` if the script exits before it requests a job."""
        self._wait(self._start())

    def close(self) -> None:
        self._wait(self._close())

    async def _start(self) -> None:
        self._script = await self._another()
        await self._script.ready()
        self._script.child.watch()

    async def _close(self) -> None:
        if self._replacing is not None:
            await self._replacing
        await self._script.stop()

    async def _run(self, value: Any) -> Any:
        attempt = CURRENT.get()
        assert isinstance(attempt, Attempt)  # noqa: S101 - it is called for one
        ticket = Ticket(attempt, value)
        self._waiting.append(ticket)
        self._script.api.offer()
        try:
            return await asyncio.shield(ticket.ended)
        except asyncio.CancelledError:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif not ticket.ended.done():
                await self._script.api.cancel(ticket)
            raise

    async def _another(self) -> Script:
        return await Script.start(self._entry, self._waiting, self._replace)

    def _replace(self) -> None:
        self._replacing = asyncio.ensure_future(self._replaced())

    async def _replaced(self) -> None:
        try:
            await self._script.stop()
            self._script = await self._another()
            self._script.child.watch()
        except BaseException:
            # No job would report the error, and a runner without a script is useless.
            traceback.print_exc()
            end_like(1)


class Script:
    """A process of the script, and the server that emulates RunPod for it."""

    def __init__(self, api: Api, server: Server, child: Child) -> None:
        self.api = api
        self.child = child
        self._server = server

    @classmethod
    async def start(cls, entry: str, waiting: deque[Ticket], done: Callable[[], None]) -> Script:
        api = Api(waiting, done)
        server = Server(api.answer)
        environment = _environment(await server.start())
        return cls(api, server, Child([sys.executable, entry], environment))

    async def ready(self) -> None:
        """Waits for its first request. Raises `ChildEnded` if it exits before."""
        while not self.api.asked.is_set():
            self.child.check()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.api.asked.wait(), _POLL_S)

    async def stop(self) -> None:
        self.api.close()
        await asyncio.get_running_loop().run_in_executor(None, self.child.stop)
        self._server.close()


def _environment(url: str) -> dict[str, str]:
    """The variables that make the package serve. The URLs end with `?`, because it appends `&name=value`.

    Without an address for pings it sends none. This runner sees how its child is, and the package would ping from a
    fork, which outlives a script that is killed, and holds on to what the script had of the GPU.
    """
    return {
        **{name: value for name, value in _DEFAULTS.items() if name not in os.environ},
        "RUNPOD_POD_ID": f"runner-{os.getpid()}",
        "RUNPOD_WEBHOOK_GET_JOB": f"{url}/job-take/$ID?",
        "RUNPOD_WEBHOOK_POST_OUTPUT": f"{url}/job-done/$ID?",
        "RUNPOD_WEBHOOK_POST_STREAM": f"{url}/job-stream/$ID?",
    }


def _options(tree: ast.Module) -> dict[str, Any]:
    """The options of a script: with a `concurrency_modifier`, it takes several jobs concurrently by default."""
    modifiers = [modifier for node in ast.walk(tree) for modifier in _modifiers(node)]
    if not modifiers:
        return {}
    functions = {
        node.name: node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    counts = [_constant(modifier, functions) for modifier in modifiers]
    count = max(_CONCURRENCY if count is None else count for count in counts)
    return {"max_concurrency": max(1, min(count, _CONCURRENCY_MAX))}


def _modifiers(node: ast.AST) -> list[ast.expr]:
    """The `concurrency_modifier` in a dict display, `dict(...)` or an assignment to a key."""
    name = "concurrency_modifier"
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values)
        return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name]
    if isinstance(node, ast.Call):
        return [keyword.value for keyword in node.keywords if keyword.arg == name]
    if isinstance(node, ast.Assign):
        targets = [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
        return [node.value for key in targets if isinstance(key, ast.Constant) and key.value == name]
    return []


def _constant(modifier: ast.expr, functions: dict[str, Any]) -> int | None:
    """The number that it always returns; None if it is not constant."""
    returned: list[ast.expr | None]
    if isinstance(modifier, ast.Lambda):
        returned = [modifier.body]
    elif isinstance(modifier, ast.Name) and modifier.id in functions:
        nodes = ast.walk(functions[modifier.id])
        returned = [node.value for node in nodes if isinstance(node, ast.Return)]
    else:
        return None
    numbers = [node.value for node in returned if isinstance(node, ast.Constant) and type(node.value) is int]
    return max(numbers) if numbers and len(numbers) == len(returned) else None


def _imports_runpod(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.split(".")[0] == "runpod" for name in names)
