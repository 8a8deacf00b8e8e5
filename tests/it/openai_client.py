"""The official client of OpenAI, unmodified, against `/openai/v1` with a real engine behind it.

It reads OPENAI_BASE_URL and OPENAI_API_KEY by itself. STOKE_URL is for what OpenAI's API does not show.
"""

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
    assert set(listed) == {"chat", "gpt-4o-mini", "embed", "text-embedding-3-small", "vectors"}, listed
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
    streamed = list(client.completions.create(model="chat", prompt="hi", max_tokens=4, stream=True, extra_body=ENDLESS))
    assert any(chunk.choices[0].text for chunk in streamed), streamed


def responses() -> None:
    answer = client.responses.create(model="chat", input="hi", max_output_tokens=5)
    assert answer.status == "completed" and answer.usage.output_tokens <= 5, answer
    events = [
        event.type for event in client.responses.create(model="chat", input="hi", max_output_tokens=5, stream=True)
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


for check in (models, chat, chat_streamed, completions, responses, embeddings, errors, kept_full, hang_ups):
    check()
    print(check.__name__, "ok", flush=True)
