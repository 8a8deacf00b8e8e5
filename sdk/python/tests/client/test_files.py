"""Files on their way in and out."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

import pytest

from stokehold import Client, ConnectionFailed, FileRef, Forbidden, StokeholdError
from stokehold._transfer import CHUNK_BYTES

from .conftest import FAST, JOB_ID, Server, cut, data, drop, hang, job, ok, problem, redirect

BYTES = bytes(range(256)) * 3 * (CHUNK_BYTES // 256) + b"tail"


def _take_uploads(api: Server, store: Server, *ids: str) -> None:
    announced = (
        {"id": file, "upload_url": f"{store.url}/{file}?sig=s", "headers": {"x-sum": "1", "content-length": "9"}}
        for file in ids
    )
    api.on(
        "POST /v1/files", *(ok({"name": "n", "expires_at": "2026-11-21T06:50:00Z", **file}, 201) for file in announced)
    )
    for file in ids:
        store.on(f"PUT /{file}", data(b""))


def test_upload_streams_a_file_and_tells_how_far_it_is(
    api: Server, store: Server, client: Client, tmp_path: Path
) -> None:
    _take_uploads(api, store, "file_1")
    path = tmp_path / "photo.png"
    path.write_bytes(BYTES)
    reports: list[tuple[int, int]] = []
    file = client.upload(path, on_progress=lambda sent, total: reports.append((sent, total)))
    assert isinstance(file, FileRef)
    assert (file.id, file.name, file.size_bytes) == ("file_1", "photo.png", len(BYTES))
    sha256 = hashlib.sha256(BYTES).hexdigest()
    assert api.requests[0].json() == {
        "name": "photo.png",
        "size_bytes": len(BYTES),
        "sha256": sha256,
        "content_type": "image/png",
    }
    (put,) = store.requests
    assert put.body == BYTES
    assert put.headers["x-sum"] == "1"
    assert put.query == {"sig": "s"}
    assert "authorization" not in put.headers, "the token is the API's, not the store's"
    assert reports == [(CHUNK_BYTES * n, len(BYTES)) for n in (1, 2, 3)] + [(len(BYTES), len(BYTES))]


def test_upload_starts_over_after_a_lost_connection(api: Server, store: Server, client: Client) -> None:
    _take_uploads(api, store, "file_1")
    store.on("PUT /file_1", drop, problem(503, "slow_down", "x"), data(b""))
    sent: list[int] = []
    client.upload(BYTES, name="x.bin", on_progress=lambda bytes_sent, _: sent.append(bytes_sent))
    assert [put.body == BYTES for put in store.requests] == [True] * 3
    assert sent.count(CHUNK_BYTES) == 3
    assert len(api.requests) == 1


def test_upload_that_the_store_refuses(api: Server, store: Server, client: Client) -> None:
    _take_uploads(api, store, "file_1")
    store.on("PUT /file_1", lambda exchange: exchange.reply(403, b"<Error><Code>AccessDenied</Code></Error>"))
    with pytest.raises(Forbidden, match="AccessDenied"):
        client.upload(b"x")


def test_paths_and_files_in_an_input_become_ids(api: Server, store: Server, client: Client, tmp_path: Path) -> None:
    _take_uploads(api, store, "file_1", "file_2")
    api.on("POST /v1/jobs", ok(job(), 202))
    known = client.upload(b"known", name="known")
    path = tmp_path / "a.txt"
    path.write_text("a")
    client.submit("echo", {"known": known, "paths": [path, {"again": path}]})
    assert api.seen("POST /v1/jobs")[0].json()["input"] == {
        "known": {"$file": "file_1"},
        "paths": [{"$file": "file_2"}, {"again": {"$file": "file_2"}}],
    }
    assert [put.body for put in store.requests] == [b"known", b"a"]


def test_submit_many_uploads_a_shared_file_once(api: Server, store: Server, client: Client, tmp_path: Path) -> None:
    _take_uploads(api, store, "file_1")
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b"]}, 202))
    path = tmp_path / "a.txt"
    path.write_text("a")
    client.submit_many("echo", [{"file": path, "n": n} for n in range(2)])
    assert len(store.requests) == 1
    inputs = [job["input"]["file"] for job in api.seen("POST /v1/jobs/bulk")[0].json()["jobs"]]
    assert inputs == [{"$file": "file_1"}] * 2


def test_a_path_that_is_not_there_is_told_before_anything_is_sent(api: Server, client: Client, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        client.submit("echo", {"file": tmp_path / "nothing"})
    assert api.requests == []


def _result_with(api: Server, **members: object) -> None:
    file = {"$file": "out.png", "url": f"/v1/jobs/{JOB_ID}/files/out.png", **members}
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded", result={"image": file, "seeds": [1, {"deep": file}]})))


def test_files_in_a_result_can_be_read_and_saved(api: Server, store: Server, client: Client, tmp_path: Path) -> None:
    _result_with(api, size_bytes=len(BYTES), sha256=hashlib.sha256(BYTES).hexdigest(), content_type="image/png")
    api.on(f"GET /v1/jobs/{JOB_ID}/files/out.png", redirect(f"{store.url}/out?sig=s"))
    store.on("GET /out", data(BYTES), cut, data(BYTES))
    result = client.get(JOB_ID).result()
    image = result["image"]
    assert isinstance(image, FileRef)
    assert image.url == f"{api.url}/v1/jobs/{JOB_ID}/files/out.png"
    assert result["seeds"][1]["deep"] == image
    assert image.read() == BYTES
    saved = image.save(tmp_path)
    assert saved == tmp_path / "out.png"
    assert saved.read_bytes() == BYTES, "what a broken try had brought is gone"
    assert api.requests[-1].headers["authorization"] == "Bearer sk_test"
    assert all("authorization" not in request.headers for request in store.requests)


def test_saving_leaves_nothing_half_done(api: Server, client: Client, tmp_path: Path) -> None:
    _result_with(api, sha256="0" * 64)
    api.on(f"GET /v1/jobs/{JOB_ID}/files/out.png", data(b"other bytes"))
    target = tmp_path / "target.png"
    target.write_bytes(b"old")
    image = client.get(JOB_ID).result()["image"]
    with pytest.raises(ConnectionFailed, match="SHA-256"):
        image.save(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["target.png"]
    with pytest.raises(ConnectionFailed, match="SHA-256"):
        image.read()


@pytest.mark.parametrize("name", ["../../escape", "/etc/escape", "..\\escape", ".."])
def test_a_name_from_a_result_stays_in_its_folder(api: Server, client: Client, tmp_path: Path, name: str) -> None:
    _result_with(api, **{"$file": name})
    api.on(f"GET /v1/jobs/{JOB_ID}/files/out.png", data(b"x"))
    saved = client.get(JOB_ID).result()["image"].save(tmp_path)
    assert saved.parent == tmp_path
    assert saved.is_file()


def test_a_result_does_not_choose_where_its_reader_connects_to(api: Server, store: Server, client: Client) -> None:
    crafted = {"$file": "x", "url": f"{store.url}/v1/steal"}
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded", result=crafted)))
    assert client.get(JOB_ID).result() == crafted, "plain data, not a file"


def test_an_uploaded_file_can_be_read_back(api: Server, store: Server, client: Client) -> None:
    _take_uploads(api, store, "file_1")
    file = client.upload(b"bytes", name="x")
    api.on("GET /v1/files/file_1", ok({"id": "file_1", "name": "x", "url": f"{store.url}/get?sig=s"}))
    store.on("GET /get", data(b"bytes"))
    assert file.read() == b"bytes"


def test_a_file_of_a_result_can_go_into_another_job(api: Server, store: Server, client: Client) -> None:
    _take_uploads(api, store, "file_9")
    _result_with(api)
    api.on(f"GET /v1/jobs/{JOB_ID}/files/out.png", data(b"image"))
    api.on("POST /v1/jobs", ok(job(), 202))
    image = client.get(JOB_ID).result()["image"]
    client.submit("next", {"image": image})
    assert api.seen("POST /v1/jobs")[0].json()["input"] == {"image": {"$file": "file_9"}}
    assert store.requests[0].body == b"image"
    assert api.seen("POST /v1/files")[0].json()["name"] == "out.png"


def test_redirects_end(api: Server, client: Client) -> None:
    _result_with(api)
    path = f"/v1/jobs/{JOB_ID}/files/out.png"
    api.on(f"GET {path}", redirect(api.url + path))
    with pytest.raises(StokeholdError, match="too many redirects"):
        client.get(JOB_ID).result()["image"].read()


def test_a_store_that_says_nothing(api: Server, store: Server) -> None:
    _result_with(api)
    api.on(f"GET /v1/jobs/{JOB_ID}/files/out.png", redirect(f"{store.url}/out"))
    store.on("GET /out", hang, data(b"late"))
    with Client(api.url, "sk_test", timeout_s=0.05, retry=FAST) as client:
        assert client.get(JOB_ID).result()["image"].read() == b"late"


def test_a_pure_path_is_uploaded_too(api: Server, store: Server, client: Client, tmp_path: Path) -> None:
    _take_uploads(api, store, "file_1")
    (tmp_path / "a").write_bytes(b"a")
    assert client.upload(PurePosixPath(tmp_path / "a")).name == "a"
