"""The official client of OpenAI, unmodified, against `/openai/v1` with a real engine behind it.

It reads OPENAI_BASE_URL and OPENAI_API_KEY by itself. STOKE_URL is for what OpenAI's API does not show.
"""

import base64
import contextlib
import json
import os
import re
import time
import urllib.request

import openai

client = openai.OpenAI(max_retries=0)
HI = [{"role": "user", "content": "hi"}]
# The model is random, so that its end of text is, too.
ENDLESS = {"ignore_eos": True}
# The engine streams no text that is a part of a character, and begins no response before the first text. Random bytes
# may be such a part; token 324 is "a".
LETTERS = {"ignore_eos": True, "logit_bias": [[324, 100]]}


def stoke(path: str, body: object = None) -> dict:
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["STOKE_URL"] + path, data, headers)
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def read_engine(path: str) -> object:
    """What the engine answers on one of its own paths."""
    job = stoke("/v1/jobs", {"endpoint": "chat", "input": {"path": path, "method": "GET"}})
    ended = stoke(f"/v1/jobs/{job['id']}?wait_s=30")
    assert ended["state"] == "succeeded", ended
    return ended["result"]


def is_idle() -> bool:
    """Whether no slot of the engine is in use, as the engine says."""
    return not any(slot["is_processing"] for slot in read_engine("/slots"))


def check_cancelled(job_id: str) -> None:
    ended = stoke(f"/v1/jobs/{job_id}?wait_s=60")
    assert ended["state"] == "cancelled", ended


def check_engine_stops() -> None:
    # Each look is a job, so this takes time. The 8,000 tokens take a minute.
    deadline = time.monotonic() + 30
    while not is_idle():
        assert time.monotonic() < deadline, "the engine goes on"


def models() -> None:
    listed = {model.id: model for model in client.models.list()}
    assert set(listed) == {"chat", "gpt-4o-mini", "embed", "text-embedding-3-small", "vectors", "draw"}, listed
    assert listed["chat"].object == "model" and listed["chat"].created > 1_700_000_000
    assert client.models.retrieve("chat@1").id == "chat@1"


def chat() -> None:
    for model in ("chat", "chat@1", "gpt-4o-mini"):
        answer = client.chat.completions.create(model=model, messages=HI, max_tokens=5, extra_body=ENDLESS)
        assert answer.usage.completion_tokens == 5 and answer.choices[0].finish_reason == "length", answer
        assert answer.choices[0].message.content and answer._request_id, answer


def chat_streamed() -> None:
    chunks = list(
        client.chat.completions.create(
            model="chat",
            messages=HI,
            max_tokens=200,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=ENDLESS,
        )
    )
    assert chunks[-1].usage.completion_tokens == 200, chunks[-1]
    texts = [chunk.choices[0].delta.content for chunk in chunks[:-1] if chunk.choices[0].delta.content]
    assert len(texts) > 50 and chunks[-2].choices[0].finish_reason == "length", texts


def completions() -> None:
    answer = client.completions.create(model="chat", prompt="hi", max_tokens=4, extra_body=ENDLESS)
    assert answer.usage.completion_tokens == 4, answer
    streamed = list(client.completions.create(model="chat", prompt="hi", max_tokens=4, stream=True, extra_body=LETTERS))
    assert any(chunk.choices[0].text for chunk in streamed), streamed


def responses() -> None:
    answer = client.responses.create(model="chat", input="hi", max_output_tokens=5)
    assert answer.status == "completed" and answer.usage.output_tokens <= 5, answer
    events = [
        event.type
        for event in client.responses.create(
            model="chat", input="hi", max_output_tokens=5, stream=True, extra_body=LETTERS
        )
    ]
    assert events[0] == "response.created" and events[-1] == "response.completed", events


def embeddings() -> None:
    for model in ("embed", "text-embedding-3-small"):
        # By default the client asks for base64.
        answer = client.embeddings.create(model=model, input=["a", "bc"])
        vectors = [item.embedding for item in answer.data]
        assert [[round(number, 3) for number in vector] for vector in vectors] == [[1.0, 0.097], [2.0, 0.197]], vectors
    answer = client.embeddings.create(model="embed", input="a", encoding_format="float")
    assert answer.data[0].embedding == [1.0, 0.097], answer
    answer = client.embeddings.create(model="vectors", input=["a", "bc"])
    assert [len(item.embedding) for item in answer.data] == [64, 64] and answer.usage.prompt_tokens > 0, answer


def images() -> None:
    drawn = client.images.generate(model="draw", prompt="a cat", n=2)
    assert [base64.b64decode(image.b64_json) for image in drawn.data] == [b"a cat"] * 2, drawn
    one, two, mask = ("one.png", b"one"), ("two.png", b"two", "image/png"), ("mask.png", b"mask")
    edited = client.images.edit(model="draw", image=one, prompt="a hat")
    assert base64.b64decode(edited.data[0].b64_json) == b"one+a hat", edited
    edited = client.images.edit(model="draw", image=[one, two], mask=mask, prompt="7", response_format="url")
    with urllib.request.urlopen(edited.data[0].url, timeout=30) as response:
        assert response.read() == b"one+two+mask+7"


def errors() -> None:
    for model in ("nothing", "chat@9"):
        try:
            client.chat.completions.create(model=model, messages=HI)
        except openai.NotFoundError as error:
            assert (error.code, error.param, error.type) == ("model_not_found", "model", "invalid_request_error"), error
        else:
            raise AssertionError(f"{model} was found")
    for stream in (False, True):
        try:
            client.chat.completions.create(model="chat", messages=HI, stream=stream, extra_body={"messages": "text"})
        except openai.BadRequestError as error:
            assert "'messages'" in error.message and error.type == "invalid_request_error", error
        else:
            raise AssertionError("the engine accepted a text for messages")
    try:
        openai.OpenAI(api_key="sk-wrong", max_retries=0).models.list()
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key", error
    else:
        raise AssertionError("a wrong key was accepted")


def hang_ups() -> None:
    long = {"model": "chat", "messages": HI, "max_tokens": 8_000, "extra_body": ENDLESS}
    stream = client.chat.completions.create(stream=True, **long)
    next(stream)
    job_id = stream.response.headers["stokehold-job-id"]
    stream.close()
    check_cancelled(job_id)
    check_engine_stops()

    newest = stoke("/v1/jobs?endpoint=chat&limit=1")["jobs"][0]["id"]
    try:
        client.with_options(timeout=2).chat.completions.create(**long)
    except openai.APITimeoutError:
        job_id = stoke("/v1/jobs?endpoint=chat&limit=1")["jobs"][0]["id"]
        assert job_id != newest
        # This engine notices a closed connection only when it writes, which it does at the end here.
        check_cancelled(job_id)
    else:
        raise AssertionError("8,000 tokens took less than 2 s")


def kept_full() -> None:
    """Eight requests run in the engine's eight slots at once, on a worker with two slots."""
    long = {"model": "chat", "messages": HI, "max_tokens": 8_000, "stream": True, "extra_body": ENDLESS}
    with contextlib.ExitStack() as streams:
        for _ in range(8):
            next(streams.enter_context(client.chat.completions.create(**long)))
        metrics = read_engine("/metrics")
        assert re.search(r"^llamacpp:requests_processing 8$", metrics, re.M), metrics
        assert all(slot["is_processing"] for slot in read_engine("/slots"))
    check_engine_stops()


def line(custom_id: str, url: str, **body: object) -> dict:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def batch_of(lines: list[dict], endpoint: str, **options: object) -> openai.types.Batch:
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    assert (file.filename, file.bytes, file.purpose, file.status) == ("lines.jsonl", len(data), "batch", "processed")
    assert client.files.wait_for_processing(file.id).id == file.id
    return client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **options
    )


def ended(batch: openai.types.Batch) -> openai.types.Batch:
    native = stoke(f"/v1/batches/{batch.id}?wait_s=60")
    assert native["ended_at"], native
    return client.batches.retrieve(batch.id)


def lines_of(file_id: str) -> dict[str, dict]:
    lines = [json.loads(line) for line in client.files.content(file_id).text.splitlines()]
    return {line["custom_id"]: line for line in lines}


def batches() -> None:
    chat_url = "/v1/chat/completions"
    few = {"messages": HI, "max_tokens": 5, **ENDLESS}
    models = ("chat", "gpt-4o-mini", "chat")
    lines = [line(f"line-{n}", chat_url, model=model, **few) for n, model in enumerate(models)]
    lines.append(line("wrong", chat_url, model="chat", messages="text"))
    batch = batch_of(lines, chat_url, metadata={"budget_usd": "5"})
    assert (batch.object, batch.metadata, batch.budget["usd_micros"]) == ("batch", {"budget_usd": "5"}, 5_000_000), batch
    # A client that did not get the answer repeats the request.
    again = client.batches.create(
        input_file_id=batch.input_file_id,
        endpoint=chat_url,
        completion_window="24h",
        metadata={"budget_usd": "5"},
    )
    assert again.id == batch.id, again
    batch = ended(batch)
    assert batch.status == "completed" and batch.model == "chat" and batch.completed_at >= batch.created_at, batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (4, 3, 1), batch
    output = lines_of(batch.output_file_id)
    assert set(output) == {"line-0", "line-1", "line-2"}, output
    for answered in output.values():
        assert answered["error"] is None and answered["response"]["status_code"] == 200, answered
        body = openai.types.chat.ChatCompletion.model_validate(answered["response"]["body"])
        assert body.usage.completion_tokens == 5 and body.choices[0].message.content, body
    wrong = lines_of(batch.error_file_id)["wrong"]
    assert wrong["response"]["status_code"] == 400, wrong
    assert "'messages'" in wrong["response"]["body"]["error"]["message"], wrong

    texts = [line("embed", "/v1/embeddings", model="embed", input=["a", "bc"])]
    texts.append(line("vectors", "/v1/embeddings", model="vectors", input=["a", "bc"]))
    output = lines_of(ended(batch_of(texts, "/v1/embeddings")).output_file_id)
    vectors = {name: answered["response"]["body"]["data"] for name, answered in output.items()}
    assert [len(item["embedding"]) for item in vectors["vectors"]] == [64, 64], vectors
    assert vectors["embed"][1]["embedding"] == [2.0, 0.197], vectors

    failed = ended(batch_of([line("a", chat_url, model="nothing", **few)], chat_url))
    assert (failed.status, failed.output_file_id, failed.errors.data[0].line) == ("failed", None, 1), failed

    long = {"model": "chat", "messages": HI, "max_tokens": 8_000, **ENDLESS}
    cancelled = batch_of([line(f"long-{n}", chat_url, **long) for n in range(20)], chat_url)
    assert client.batches.cancel(cancelled.id).status in ("cancelling", "cancelled")
    cancelled = ended(cancelled)
    assert cancelled.status == "cancelled" and cancelled.output_file_id is None, cancelled
    codes = {answered["error"]["code"] for answered in lines_of(cancelled.error_file_id).values()}
    assert codes == {"batch_cancelled"}, codes

    assert len(list(client.batches.list(limit=2))) == 4
    try:
        client.batches.create(input_file_id="file-none", endpoint=chat_url, completion_window="24h")
    except openai.NotFoundError as error:
        assert error.param == "input_file_id", error
    else:
        raise AssertionError("a file that does not exist was accepted")


def files() -> None:
    listed = list(client.files.list(purpose="batch_output", order="asc"))
    assert len(listed) == 4 and all(file.purpose == "batch_output" for file in listed), listed
    for file in client.files.list(limit=3):
        assert client.files.delete(file.id).deleted
    assert list(client.files.list()) == []
    try:
        client.files.content(listed[0].id)
    except openai.NotFoundError:
        pass
    else:
        raise AssertionError("a deleted file was found")


CHECKS = (
    models,
    chat,
    chat_streamed,
    completions,
    responses,
    embeddings,
    images,
    errors,
    kept_full,
    hang_ups,
    batches,
    files,
)
for check in CHECKS:
    check()
    print(check.__name__, "ok", flush=True)
