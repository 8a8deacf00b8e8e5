"""Which API, which token, and that the token stays where it belongs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import stokehold
from stokehold import Client
from stokehold._config import load_settings

PUBLIC = """
    ApiError AsyncBatch AsyncClient AsyncFileRef AsyncJob AsyncPipeline AsyncSchedule Attempt AttemptState
    BadRequest Batch BatchCounts BatchEstimate BatchOptions BatchRecord BatchState BudgetUsage Cancelled Client
    Conflict ConnectionFailed Delivery DeliveryTry Dependee DependencyFailed DeployError DeployOptions DoneEvent
    Endpoint EndpointLimits EndpointRequirements EndpointRetry EndpointRunner EndpointStep EndpointWeight Event
    Failure Feedback FeedbackStats Field FieldProblem FileInfo FileRef Forbidden GapEvent InUse InvalidInput
    InvalidLine Job JobCancelled JobCost JobError JobExpired JobFailed JobFilter JobOptions JobPoisoned JobRecord
    JobRejected JobRetry JobState Limits LoadedModel LogEvent ModelOnGpu NotFound NotRetryable NothingToRetry
    OutOfGpuMemory OutputEvent PartlySubmitted Pipeline Priority Progress ProgressEvent QuotaExceeded RateLimited
    Rating Reference Reject Retried Retry Schedule ScheduleOptions ScheduleRecord ServerError StateEvent Step
    StepRun StokeholdError TenantLimits TimedOut Timing TokenUsage Unauthorized Unavailable Usage WaitTimeout
    Waiting WaitingReason WebhookEvent WebhookSecret WebhookVerificationError Worker WorkerGpu WorkerHost allow
    current_job endpoint progress reject rewrite verify_webhook
"""


def test_the_public_names_are_these() -> None:
    assert sorted(stokehold.__all__) == sorted(PUBLIC.split())
    for name in stokehold.__all__:
        assert getattr(stokehold, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stokehold.nothing


def test_a_model_needs_no_httpx() -> None:
    script = "import sys; sys.modules['httpx'] = None; from stokehold import endpoint; import stokehold.runner"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def _save(home: Path, url: str) -> None:
    path = home / ".config" / "stokehold" / "credentials.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"url": url, "token": "sk_saved"}))


def test_a_profile_is_chosen_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "credentials.json"
    monkeypatch.setenv("STOKE_CREDENTIALS", str(path))
    prod = {"url": "https://gpu.example.com", "token": "sk_prod"}
    path.write_text(json.dumps({"url": "http://127.0.0.1:7171", "token": "sk_saved", "profiles": {"prod": prod}}))
    assert (load_settings(None, None).base_url, load_settings(None, None).token) == (
        "http://127.0.0.1:7171",
        "sk_saved",
    )
    monkeypatch.setenv("STOKE_PROFILE", "prod")
    assert (load_settings(None, None).base_url, load_settings(None, None).token) == (prod["url"], "sk_prod")
    assert load_settings("https://elsewhere.example.com", None).token is None
    monkeypatch.setenv("STOKE_PROFILE", "default")
    assert load_settings(None, None).base_url == "http://127.0.0.1:7171"
    monkeypatch.setenv("STOKE_PROFILE", "typo")
    with pytest.raises(ValueError, match="stoke login --profile typo"):
        load_settings(None, None)
    path.write_text(json.dumps({"profiles": {"prod": prod}}))
    monkeypatch.delenv("STOKE_PROFILE")
    assert load_settings(None, None).base_url == "http://127.0.0.1:7070"


def test_arguments_come_before_the_environment_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load_settings(None, None).base_url, load_settings(None, None).token) == ("http://127.0.0.1:7070", None)
    _save(tmp_path, "http://127.0.0.1:7171")
    assert (load_settings(None, None).base_url, load_settings(None, None).token) == (
        "http://127.0.0.1:7171",
        "sk_saved",
    )
    monkeypatch.setenv("STOKE_URL", "http://localhost:7171/")
    assert (load_settings(None, None).base_url, load_settings(None, None).token) == (
        "http://localhost:7171",
        "sk_saved",
    )
    monkeypatch.setenv("STOKE_TOKEN", "sk_env")
    assert load_settings(None, None).token == "sk_env"  # noqa: S105
    assert load_settings("https://api.example", "sk_arg").token == "sk_arg"  # noqa: S105


def test_a_saved_token_is_only_for_the_server_that_saved_it(tmp_path: Path) -> None:
    _save(tmp_path, "http://127.0.0.1:7171")
    for other in ("http://127.0.0.1:7172", "https://127.0.0.1:7171", "http://example.com:7171"):
        assert load_settings(other, None).token is None


def test_the_credentials_file_can_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _save(tmp_path, "http://127.0.0.1:7171")
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps({"url": "http://127.0.0.1:7272", "token": "sk_elsewhere", "data": "/x"}))
    monkeypatch.setenv("STOKE_CREDENTIALS", str(elsewhere))
    assert load_settings(None, None).base_url == "http://127.0.0.1:7272"


def test_a_broken_credentials_file_is_no_credentials(tmp_path: Path) -> None:
    _save(tmp_path, "x")
    path = tmp_path / ".config" / "stokehold" / "credentials.json"
    for text in ("", "[]", '{"url": 1, "token": "x"}', '{"token": "x"}'):
        path.write_text(text)
        assert load_settings(None, None).token is None


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ValueError, match="STOKE_URL"):
        Client("127.0.0.1:7070")
    with pytest.raises(ValueError, match="token"):
        Client("http://127.0.0.1:7070", "sk_\nx")


def test_the_token_is_never_printed() -> None:
    with Client("http://127.0.0.1:7070", "sk_secret") as client:
        assert "sk_secret" not in repr(client) + repr(client._api.settings) + repr(client._api.call("GET", "/"))
