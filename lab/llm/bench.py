"""`make bench-llm`: a language model behind the queue, compared with the same engine driven directly.

The engine is llama.cpp's HTTP server on the CPU with a random model that is made on the spot. The client is OpenAI's
asynchronous one on both sides, in this process. Direct and queued measurements alternate within each round, and medians
of the rounds are reported, because the machine may be shared. Nothing is asserted.

Settings: STOKE_BIN (the binary), STOKE_TEST_REDIS (redis-server), LLM_ROUNDS, LLM_PROMPTS, LLM_MODEL ("LAYERS WIDTH"),
and BENCH_JSON (a file that gets the results as JSON).
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests/it/engine"
SLOTS = 8
CONCURRENCY = (8, 16, 32)
"""Requests at a time. The best of them counts for the engine and for the queue."""
TOKENS = 64
"""Length of each answer."""
FIRST_TOKENS = 60
"""Requests per round whose time to the first token is measured, one at a time."""
START_S = 120
"""Longest start of a server."""
ROUNDS = int(os.environ.get("LLM_ROUNDS", "3"))
PROMPTS = int(os.environ.get("LLM_PROMPTS", "500"))
MODEL = os.environ.get("LLM_MODEL", "6 256").split()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


MANIFEST = f"""
name = "chat"
kind = "server"
command = ["{sys.executable}", "server.py", "{{port}}"]
openai = "chat"
max_concurrency = {SLOTS}
"""


def cpu_s(pid: int) -> float:
    """CPU time of a process and its children that have ended, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_S


def descendants(pid: int) -> Iterator[int]:
    """The processes below a process."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


def kind(pid: int) -> str:
    """What a process of the stack is: `redis`, `engine`, `runner` or `stoke`."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    names = (("redis", b"redis"), ("engine", b"server.py"), ("runner", b"stokehold.runner"))
    return next((name for name, word in names if word in command), "stoke")


def cpu_of(stack: int) -> dict[str, float]:
    """CPU seconds of a stack's processes by kind. A process that ends meanwhile counts for nothing."""
    used = dict.fromkeys(("stoke", "redis", "runner", "engine"), 0.0)
    for pid in (stack, *descendants(stack)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            used[kind(pid)] += cpu_s(pid)
    return used


def wait_for(what: str, is_ready: Callable[[], bool]) -> None:
    """Calls `is_ready` until it returns true."""
    deadline = time.monotonic() + START_S
    while not is_ready():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not start within {START_S} s")
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Whether a server answers with success."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - an address of this program
            return response.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def process(command: list[str], folder: Path, **variables: str) -> Iterator[subprocess.Popen]:
    """Runs a program, and ends it."""
    log = (folder / f"{Path(command[0]).name}.log").open("w")
    with (
        log,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, env=os.environ | variables
        ) as running,
    ):
        try:
            yield running
        finally:
            running.send_signal(signal.SIGINT)


def client(url: str, key: str) -> AsyncOpenAI:
    """A client that opens as many connections as it needs."""
    return AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=DefaultAsyncHttpxClient(timeout=600))


def chat(n: int, **options: object) -> dict:
    """The arguments of the n-th request. No two prompts are alike, and no answer ends early."""
    prompt = f"Request {n}: describe a quiet harbour in the morning."
    body = {"ignore_eos": True, "cache_prompt": False}
    return {
        "model": "chat",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "extra_body": body,
    } | options


async def throughput(openai: AsyncOpenAI, concurrency: int) -> float:
    """Answers per second of PROMPTS requests, `concurrency` at a time."""
    numbers = iter(range(PROMPTS))

    async def one_after_the_other() -> None:
        for n in numbers:
            answer = await openai.chat.completions.create(**chat(n))
            if answer.usage.completion_tokens != TOKENS:
                sys.exit(f"the answer has {answer.usage.completion_tokens} tokens instead of {TOKENS}")

    started = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(concurrency)))
    return PROMPTS / (time.perf_counter() - started)


async def first_token_s(openai: AsyncOpenAI, n: int) -> float:
    """Seconds until the first token of one streamed answer, which is read to its end."""
    started, first = time.perf_counter(), None
    async for chunk in await openai.chat.completions.create(**chat(n, stream=True)):
        if first is None and chunk.choices[0].delta.content:
            first = time.perf_counter() - started
    return first or sys.exit("an answer had no text")


async def stream_all(openai: AsyncOpenAI, concurrency: int) -> int:
    """Streams PROMPTS answers. Returns the number of tokens."""
    numbers = iter(range(PROMPTS))

    async def one_after_the_other() -> int:
        tokens = 0
        for n in numbers:
            options = {"stream": True, "stream_options": {"include_usage": True}}
            async for chunk in await openai.chat.completions.create(**chat(n, **options)):
                tokens += chunk.usage.completion_tokens if chunk.usage else 0
        return tokens

    return sum(await asyncio.gather(*(one_after_the_other() for _ in range(concurrency))))


async def measure(direct: AsyncOpenAI, queued: AsyncOpenAI, stack: int) -> dict:
    """Measures all rounds."""
    both = {"engine": direct, "queue": queued}
    rates = {name: {at: [] for at in CONCURRENCY} for name in both}
    first = {name: [] for name in both}
    tokens, used = 0, dict.fromkeys(cpu_of(stack), 0.0)
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
        for at in CONCURRENCY:
            for name, openai in both.items():
                rates[name][at].append(await throughput(openai, at))
        for n in range(FIRST_TOKENS):
            for name, openai in both.items():
                first[name].append(await first_token_s(openai, n))
        before = cpu_of(stack)
        tokens += await stream_all(queued, SLOTS)
        used = {name: used[name] + s - before[name] for name, s in cpu_of(stack).items()}
    best = {name: max(statistics.median(of) for of in by.values()) for name, by in rates.items()}
    # The engine is driven at its best concurrency, and so is the queue.
    quantiles = {name: statistics.quantiles([1000 * s for s in of], n=100) for name, of in first.items()}
    return {
        "prompts": PROMPTS,
        "tokens_per_answer": TOKENS,
        "rounds": ROUNDS,
        "model": MODEL,
        "answers_per_s": {
            name: {str(at): statistics.median(of) for at, of in by.items()} for name, by in rates.items()
        },
        "throughput_ratio": best["queue"] / best["engine"],
        "first_token_ms": {name: {"p50": of[49], "p99": of[98]} for name, of in quantiles.items()},
        "streamed_tokens": tokens,
        "cpu_s_per_1000_tokens": {name: 1000 * s / tokens for name, s in used.items()},
    }


def report(result: dict) -> None:
    """Prints the results as Markdown tables."""
    print(f"{PROMPTS} prompts, {TOKENS} tokens each, {SLOTS} slots, a model of {' x '.join(MODEL)}, {ROUNDS} rounds\n")
    print("| answers/s | " + " | ".join(f"{at} at a time" for at in CONCURRENCY) + " |")
    print("|---|" + "---:|" * len(CONCURRENCY))
    for name, by in result["answers_per_s"].items():
        print(f"| {name} | " + " | ".join(f"{by[str(at)]:.1f}" for at in CONCURRENCY) + " |")
    print(f"\nthroughput of the queue: {result['throughput_ratio']:.1%} of the engine's, each at its best\n")
    print("| time to first token, ms | p50 | p99 |\n|---|---:|---:|")
    for name, of in result["first_token_ms"].items():
        print(f"| {name} | {of['p50']:.1f} | {of['p99']:.1f} |")
    print("\n| CPU per 1,000 streamed tokens, ms | |\n|---|---:|")
    for name, s in result["cpu_s_per_1000_tokens"].items():
        print(f"| {name} | {1000 * s:.1f} |")


@contextlib.contextmanager
def systems(folder: Path) -> Iterator[tuple[tuple[str, str], tuple[str, str], int]]:
    """Address and key of the engine alone and of the engine behind the queue, and the process of the stack."""
    binary = os.environ.get("STOKE_BIN", str(ROOT / "target/release/stoke"))
    alone, deployed = folder / "alone", folder / "chat"
    for place in (alone, deployed):
        place.mkdir()
        shutil.copy(ENGINE / "server.py", place)
    subprocess.run([sys.executable, ENGINE / "model.py", alone / "model.gguf", *MODEL], check=True)
    shutil.copy(alone / "model.gguf", deployed)
    (deployed / "stoke.toml").write_text(MANIFEST)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    saved = folder / "credentials.json"
    variables = {"STOKE_CREDENTIALS": str(saved), "STOKE_SANDBOX": "L0"}
    if redis := os.environ.get("STOKE_TEST_REDIS"):
        variables["STOKE_REDIS_SERVER"] = redis
    dev = [binary, "dev", "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--slots", "2"]
    with (
        process([sys.executable, "server.py", str(port)], alone),
        process(dev, folder, **variables) as stack,
    ):
        wait_for("stoke dev", saved.exists)
        credentials = json.loads(saved.read_text())
        wait_for("the API", lambda: answers(f"{credentials['url']}/readyz"))
        subprocess.run([binary, "deploy", str(deployed)], check=True, env=os.environ | variables, stdout=sys.stderr)
        wait_for("the engine", lambda: answers(f"http://127.0.0.1:{port}/health"))
        queue = (f"{credentials['url']}/openai/v1", credentials["token"])
        yield (f"http://127.0.0.1:{port}/v1", "none"), queue, stack.pid


async def compare(engine: tuple[str, str], queue: tuple[str, str], stack: int) -> dict:
    """Measures, after one request to each of them."""
    async with client(*engine) as direct, client(*queue) as queued:
        for openai in (direct, queued):
            await openai.chat.completions.create(**chat(0))
        return await measure(direct, queued, stack)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, systems(Path(folder)) as (engine, queue, stack):
        result = asyncio.run(compare(engine, queue, stack))
    report(result)
    if path := os.environ.get("BENCH_JSON"):
        Path(path).write_text(json.dumps(result, indent=2) + "\n")


main()
