"""`make bench-llm`: a language model behind the queue, compared with the same engine driven directly.

The engine is llama.cpp's HTTP server with a random model that is made on the spot, on the CPU or, by LLM_ENGINE, on a
GPU. The client is OpenAI's asynchronous one on both sides, in this process. Direct and queued measurements alternate
within each round, and medians of the rounds are reported, because the machine may be shared. Goals are printed with
their results, and a missed one is not an error.

Settings: STOKE_BIN (the binary), STOKE_TEST_REDIS (redis-server), LLM_ROUNDS, LLM_PROMPTS, LLM_TOKENS (the length of
an answer), LLM_MODEL ("LAYERS WIDTH"), LLM_SLOTS, LLM_RATE, LLM_PARTS, and BENCH_JSON (a file that gets the results as
JSON). LLM_ENGINE is another command that serves the model `{model}` on the port `{port}`, and LLM_VRAM_GIB the GPU
memory that it needs: LLM_ENGINE="/path/to/llama-server -m {model} --port {port} -np 8 -c 16384 -ngl 99". The part
`events` streams answers by the events of jobs, which releases without `/openai/v1` have, too: LLM_PARTS="events paced"
with their binary measures them in the same way. The part `paced` is a handler instead of the engine, which yields
LLM_RATE chunks a second: the rate of a large model.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "tests/it/engine"
SLOTS = int(os.environ.get("LLM_SLOTS", "8"))
"""Requests that the engine runs at once."""
CONCURRENCY = (SLOTS, 2 * SLOTS, 4 * SLOTS)
"""Requests at a time. The best of them counts for the engine and for the queue."""
COMMAND = os.environ.get("LLM_ENGINE", f"{sys.executable} server.py {{port}}").split()
VRAM_GIB = os.environ.get("LLM_VRAM_GIB", "0")
FIRST_TOKENS = 60
"""Requests per round whose time to the first token is measured, one at a time."""
IDLE_S = 20
"""Time for which the CPU of the idle stack is measured."""
START_S = 120
"""Longest start of a server."""
STOP_S = 60
"""Time after which a server that does not end is killed."""
ROUNDS = int(os.environ.get("LLM_ROUNDS", "3"))
PROMPTS = int(os.environ.get("LLM_PROMPTS", "500"))
TOKENS = int(os.environ.get("LLM_TOKENS", "64"))
"""Length of each answer."""
MODEL = os.environ.get("LLM_MODEL", "6 256").split()
RATE = float(os.environ.get("LLM_RATE", "40"))
"""Chunks a second of each stream of the part `paced`."""
PARTS = os.environ.get("LLM_PARTS", "throughput first_token stream events paced").split()
THROUGHPUT_GOAL = 0.95
"""Least throughput through the queue, as a part of the engine's."""
FIRST_TOKEN_GOAL_MS = 10
"""Largest difference of the median times to the first token."""

PACED = f"""
import asyncio
from collections.abc import AsyncIterator

from stokehold import endpoint


@endpoint(name="paced", vram_gib=0, max_concurrency={SLOTS})
async def paced(n: int) -> AsyncIterator[dict]:
    for token in range({TOKENS}):
        choice = {{"index": 0, "delta": {{"content": f" token {{token}}"}}, "finish_reason": None}}
        yield {{"id": f"chatcmpl-{{n:08}}", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}}
        await asyncio.sleep({1 / RATE})
"""


def cpu_s(pid: int) -> float:
    """CPU time of a process, seconds. Its clock counts nanoseconds, and `/proc` ticks of 10 ms."""
    try:
        # The clock of all threads of a process, as clock_getcpuclockid(3) computes it.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        raise ProcessLookupError(pid) from None


def descendants(pid: int) -> Iterator[int]:
    """The processes below a process."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from descendants(int(child))


def kind(pid: int) -> str:
    """What a process of the stack is: `redis`, `engine`, `runner` or `stoke`."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    names = (("redis", b"redis"), ("engine", b"model.gguf"), ("engine", b"server.py"), ("runner", b"stokehold.runner"))
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
            # Not SIGINT, which programs that a shell starts in the background ignore.
            running.terminate()
            try:
                running.wait(STOP_S)
            except subprocess.TimeoutExpired:
                running.kill()


def client(url: str, key: str) -> AsyncOpenAI:
    """A client that opens as many connections as it needs."""
    return AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=DefaultAsyncHttpxClient(timeout=600))


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


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


async def all_prompts(concurrency: int, ask: Callable[[int], Awaitable[int]]) -> int:
    """Asks all prompts, `concurrency` at a time. Returns the sum of the numbers of tokens."""
    numbers = iter(range(PROMPTS))

    async def one_after_the_other() -> int:
        return sum([await ask(n) for n in numbers])

    tokens = sum(await asyncio.gather(*(one_after_the_other() for _ in range(concurrency))))
    return tokens if tokens == PROMPTS * TOKENS else sys.exit(f"the answers have {tokens} tokens in all")


async def throughput(openai: AsyncOpenAI, concurrency: int) -> float:
    """Answers per second, `concurrency` requests at a time."""

    async def ask(n: int) -> int:
        return (await openai.chat.completions.create(**chat(n))).usage.completion_tokens

    started = time.perf_counter()
    await all_prompts(concurrency, ask)
    return PROMPTS / (time.perf_counter() - started)


async def first_token_s(openai: AsyncOpenAI, n: int) -> float:
    """Seconds until the first token of one streamed answer, which is read to its end."""
    started, first = time.perf_counter(), None
    async for chunk in await openai.chat.completions.create(**chat(n, stream=True)):
        if first is None and chunk.choices[0].delta.content:
            first = time.perf_counter() - started
    return first or sys.exit("an answer had no text")


async def stream(openai: AsyncOpenAI, n: int) -> int:
    """Streams one answer. Returns the number of tokens."""
    tokens = 0
    async for chunk in await openai.chat.completions.create(**chat(n, **STREAMED)):
        tokens += chunk.usage.completion_tokens if chunk.usage else 0
    return tokens


async def follow(api: DefaultAsyncHttpxClient, n: int) -> int:
    """Streams one answer of the engine by the events of its job. Returns the number of tokens."""
    body = chat(n, **STREAMED)
    body |= body.pop("extra_body")
    return await follow_job(api, {"endpoint": "chat", "input": {"path": "/v1/chat/completions", "body": body}})


async def follow_paced(api: DefaultAsyncHttpxClient, n: int) -> int:
    """Streams one answer of the handler. Returns the number of tokens."""
    return await follow_job(api, {"endpoint": "paced", "input": {"n": n}})


async def follow_job(api: DefaultAsyncHttpxClient, job: dict) -> int:
    """Streams the outputs of a job. Returns the number of tokens: that of the usage, else of the outputs."""
    submitted = (await api.post("/v1/jobs", json=job)).raise_for_status().json()
    event, tokens, outputs = "", 0, 0
    async with api.stream("GET", f"/v1/jobs/{submitted['id']}/events") as events:
        async for line in events.raise_for_status().aiter_lines():
            name, _, value = line.partition(":")
            if name == "event":
                event = value.strip()
            elif name == "data" and event == "output":
                usage = json.loads(value)["value"].get("usage")
                tokens += usage["completion_tokens"] if usage else 0
                outputs += 1
            elif name == "data" and event == "done":
                return tokens or outputs
    sys.exit(f"the events of job {submitted['id']} ended before the job")


class Systems(NamedTuple):
    """The engine alone, and the same engine behind the queue."""

    engine_url: str
    url: str
    token: str
    stack: int
    """Process id of the stack."""


class Clients(NamedTuple):
    """Clients of both systems."""

    direct: AsyncOpenAI
    queued: AsyncOpenAI
    api: DefaultAsyncHttpxClient


async def used_by(stack: int, part: Awaitable[int]) -> dict[str, float]:
    """CPU seconds per 1,000 tokens that a part streams, by kind of process, beyond those of the idle stack."""
    start = cpu_of(stack)
    await asyncio.sleep(IDLE_S)
    before, started = cpu_of(stack), time.perf_counter()
    tokens = await part
    took = time.perf_counter() - started
    idle = {name: took * (s - start[name]) / IDLE_S for name, s in before.items()}
    return {name: 1000 * (s - before[name] - idle[name]) / tokens for name, s in cpu_of(stack).items()}


async def measure(clients: Clients, stack: int) -> dict:
    """Measures all rounds. Returns the measurements of each part."""
    both = {"engine": clients.direct, "queue": clients.queued}
    rates = {name: {at: [] for at in CONCURRENCY} for name in both}
    first = {name: [] for name in both}
    used = {"stream": [], "events": [], "paced": []}
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr, flush=True)
        if "throughput" in PARTS:
            for at in CONCURRENCY:
                for name, openai in both.items():
                    rates[name][at].append(await throughput(openai, at))
        if "first_token" in PARTS:
            for n in range(FIRST_TOKENS):
                for name, openai in both.items():
                    first[name].append(await first_token_s(openai, n))
        if "stream" in PARTS:
            asked = all_prompts(SLOTS, lambda n: stream(clients.queued, n))
            used["stream"].append(await used_by(stack, asked))
        if "events" in PARTS:
            used["events"].append(await used_by(stack, all_prompts(SLOTS, lambda n: follow(clients.api, n))))
        if "paced" in PARTS:
            used["paced"].append(await used_by(stack, all_prompts(SLOTS, lambda n: follow_paced(clients.api, n))))
    return {"rates": rates, "first": first, "used": used}


def results(measured: dict) -> dict:
    """The medians of the rounds, for the parts that were measured."""
    result = {"prompts": PROMPTS, "tokens_per_answer": TOKENS, "rounds": ROUNDS, "model": MODEL, "goals": []}
    if "throughput" in PARTS:
        rates = {
            name: {str(at): statistics.median(of) for at, of in by.items()} for name, by in measured["rates"].items()
        }
        # Each at its best concurrency.
        ratio = max(rates["queue"].values()) / max(rates["engine"].values())
        result |= {"answers_per_s": rates, "throughput_ratio": ratio}
        result["goals"].append(goal("throughput of the queue, of the engine's", ratio, THROUGHPUT_GOAL, is_floor=True))
    if "first_token" in PARTS:
        quantiles = {
            name: statistics.quantiles([1000 * s for s in of], n=100) for name, of in measured["first"].items()
        }
        result["first_token_ms"] = {name: {"p50": of[49], "p99": of[98]} for name, of in quantiles.items()}
        later = quantiles["queue"][49] - quantiles["engine"][49]
        result["goals"].append(
            goal("first token after the engine's, p50, ms", later, FIRST_TOKEN_GOAL_MS, is_floor=False)
        )
    for part, rounds in measured["used"].items():
        if rounds:
            medians = {name: statistics.median(used[name] for used in rounds) for name in rounds[0]}
            result[f"cpu_s_per_1000_tokens_{part}"] = medians
    return result


def goal(name: str, reached: float, limit: float, *, is_floor: bool) -> dict:
    """A goal as the other benchmarks write it."""
    is_met = reached >= limit if is_floor else reached <= limit
    return {"goal": name, "limit": limit, "reached": reached, "met": is_met, "is_floor": is_floor}


def report(result: dict) -> None:
    """Prints the results as Markdown tables."""
    print(f"{PROMPTS} prompts, {TOKENS} tokens each, {SLOTS} slots, a model of {' x '.join(MODEL)}, {ROUNDS} rounds")
    if rates := result.get("answers_per_s"):
        print("\n| answers/s | " + " | ".join(f"{at} at a time" for at in CONCURRENCY) + " |")
        print("|---|" + "---:|" * len(CONCURRENCY))
        for name, by in rates.items():
            print(f"| {name} | " + " | ".join(f"{by[str(at)]:.1f}" for at in CONCURRENCY) + " |")
    if first := result.get("first_token_ms"):
        print("\n| time to first token, ms | p50 | p99 |\n|---|---:|---:|")
        for name, of in first.items():
            print(f"| {name} | {of['p50']:.1f} | {of['p99']:.1f} |")
    ways = {"stream": "/openai/v1", "events": "events of jobs", "paced": f"events at {RATE:g} a second"}
    for part, way in ways.items():
        if used := result.get(f"cpu_s_per_1000_tokens_{part}"):
            print(f"\n| CPU per 1,000 tokens streamed by {way}, ms | |\n|---|---:|")
            for name, s in used.items():
                print(f"| {name} | {1000 * s:.1f} |")
    if goals := result["goals"]:
        print("\n| goal | limit | reached | met |\n|---|---:|---:|---|")
        for one in goals:
            sign, met = ">=" if one["is_floor"] else "<=", "yes" if one["met"] else "no"
            print(f"| {one['goal']} | {sign} {one['limit']} | {one['reached']:.3f} | {met} |")


def manifest(command: list[str]) -> str:
    """The stoke.toml of the engine."""
    lines = {"name": "chat", "kind": "server", "command": command, "max_concurrency": SLOTS}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()) + f"vram_gib = {VRAM_GIB}\n"


@contextlib.contextmanager
def systems(folder: Path) -> Iterator[Systems]:
    """Starts both systems."""
    binary = os.environ.get("STOKE_BIN", str(ROOT / "target/release/stoke"))
    alone, deployed, model = folder / "alone", folder / "chat", folder / "alone/model.gguf"
    # A worker that runs as root starts the engine as another user, which reads the model here.
    folder.chmod(0o755)
    for place in (alone, deployed):
        place.mkdir()
        shutil.copy(ENGINE / "server.py", place)
    subprocess.run([sys.executable, ENGINE / "model.py", model, *MODEL], check=True)
    if "LLM_ENGINE" not in os.environ:
        shutil.copy(model, deployed)
    command = [word.replace("{model}", str(model)) for word in COMMAND]
    (deployed / "stoke.toml").write_text(manifest(command))
    paced = folder / "paced.py"
    paced.write_text(PACED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    saved = folder / "credentials.json"
    variables = {"STOKE_CREDENTIALS": str(saved), "STOKE_SANDBOX": "L0"}
    if redis := os.environ.get("STOKE_TEST_REDIS"):
        variables["STOKE_REDIS_SERVER"] = redis
    dev = [binary, "dev", "--data", str(folder / "data"), "--listen", "127.0.0.1:0", "--slots", "1"]
    with (
        process([word.replace("{port}", str(port)) for word in command], alone),
        process(dev, folder, **variables) as stack,
    ):
        wait_for("stoke dev", saved.exists)
        credentials = json.loads(saved.read_text())
        wait_for("the API", lambda: answers(f"{credentials['url']}/readyz"))
        for endpoint in (deployed, paced):
            subprocess.run([binary, "deploy", str(endpoint)], check=True, env=os.environ | variables, stdout=sys.stderr)
        wait_for("the engine", lambda: answers(f"http://127.0.0.1:{port}/health"))
        yield Systems(f"http://127.0.0.1:{port}/v1", credentials["url"], credentials["token"], stack.pid)


async def compare(started: Systems) -> dict:
    """Measures, after one request to each of the systems."""
    authorization = {"authorization": f"Bearer {started.token}"}
    async with (
        client(started.engine_url, "none") as direct,
        client(f"{started.url}/openai/v1", started.token) as queued,
        DefaultAsyncHttpxClient(base_url=started.url, headers=authorization, timeout=600) as api,
    ):
        clients = Clients(direct, queued, api)
        await stream(direct, 0)
        await follow(api, 0)
        if "paced" in PARTS:
            await follow_paced(api, 0)
        return results(await measure(clients, started.stack))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, systems(Path(folder)) as started:
        result = asyncio.run(compare(started))
    report(result)
    if path := os.environ.get("BENCH_JSON"):
        Path(path).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
