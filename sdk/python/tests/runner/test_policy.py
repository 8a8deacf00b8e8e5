"""Steps, retries and decisions: what a handler says, and what a deploy carries of it."""

from __future__ import annotations

from typing import Any

import pytest

from stokehold import JobRetry, Step, allow, endpoint, reject, rewrite
from stokehold.runner.decorator import options_of
from stokehold.runner.describe import describe

from .test_describe import Package


def test_describe_tells_them_as_a_deploy_names_them(package: Package) -> None:
    folder = package(
        """
        from stokehold import JobRetry, Step, endpoint

        @endpoint(
            before=[Step("prompt-check", name="words", version=2, thresholds={"violence": 0.5}, timeout_s=5)],
            after=[Step("image-check"), Step("image-check", name="again")],
            retry=JobRetry(backoff_s=1, backoff_max_s=60, jitter=0.5, on=["timeout", "oom_gpu"]),
            warmup=[{"prompt": "a large one"}],
            keep_warm_s=300,
            vram_fraction=0.9,
            min_warm=1,
            vram_gib=20,
            gpus=2,
            gpu_models=["RTX 4090", "A100"],
            min_cuda="12.4",
            min_trust="owned",
            network=True,
            secrets=["HF_TOKEN"],
            min_sandbox="L1",
            priority="batch",
            openai="images",
            openai_models=["dall-e-3"],
        )
        def paint(prompt: str) -> str:
            return prompt
        """,
        "painting.py",
    )
    document, code = describe("python", str(folder))
    assert code == 0
    options = document["options"]
    assert options["before"] == [
        {
            "name": "words",
            "endpoint": "prompt-check",
            "version": 2,
            "thresholds": {"violence": 0.5},
            "timeout_s": 5,
        }
    ]
    assert options["after"] == [{"endpoint": "image-check"}, {"name": "again", "endpoint": "image-check"}]
    assert options["retry"] == {"backoff_s": 1, "backoff_max_s": 60, "jitter": 0.5, "on": ["timeout", "oom_gpu"]}
    assert options["warmup"] == [{"prompt": "a large one"}]
    assert options["demands"] == {
        "gpus": 2,
        "gpu_models": ["RTX 4090", "A100"],
        "min_cuda": "12.4",
        "min_trust": "owned",
        "min_sandbox": "L1",
    }
    assert (options["keep_warm_s"], options["min_warm"], options["network"]) == (300, 1, True)
    assert options["vram_fraction"] == 0.9
    assert (options["secrets"], options["priority"]) == (["HF_TOKEN"], "batch")
    assert (options["openai"], options["openai_models"]) == ("images", ["dall-e-3"])


def test_what_was_not_given_is_not_told() -> None:
    assert Step("a").to_json() == {"endpoint": "a"}
    assert JobRetry().to_json() == {}


def test_the_decorator_keeps_them() -> None:
    @endpoint(before=[Step("a")], retry=JobRetry(backoff_s=2))
    def handler() -> None: ...

    options = options_of(handler)
    assert options is not None
    assert (options.before, options.after, options.retry) == ((Step("a"),), (), JobRetry(backoff_s=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"before": Step("a")}, "before=.*: use a list"),
        ({"before": "a"}, "before='a': use a list"),
        ({"after": ["a"]}, r"after: 'a' is not a Step; use Step\('a'\)"),
        ({"before": [Step(f"a{n}") for n in range(9)]}, "before has 9 items; use at most 8"),
        ({"after": [Step("a"), Step("b", name="a")]}, "after has two steps named 'a'; set a different name="),
        ({"retry": {"backoff_s": 1}}, r"retry=.*: use JobRetry\("),
        ({"retry": 3}, "retry=3: use JobRetry"),
        ({"warmup": {"prompt": "a"}}, "warmup=.*: use a list of inputs"),
        ({"gpu_models": "A100"}, "gpu_models='A100': use a list of names"),
        ({"regions": [""]}, "regions: '' is not a name"),
        ({"regions": ["eu"] * 17}, "regions has 17 items; use at most 16"),
        ({"min_cuda": "12"}, "min_cuda='12': use a string of two numbers"),
        ({"min_cuda": 12.4}, "min_cuda=12.4: use a string of two numbers"),
        ({"secrets": ["A"] * 33}, "secrets has 33 items; use at most 32"),
        ({"vram_gib": -1}, "vram_gib=-1: use a number from 0 to 384"),
        ({"max_concurrency": True}, "max_concurrency=True: use a whole number from 1 to 1000"),
        ({"secrets": ["a-b"]}, "secrets: 'a-b' cannot be an environment variable"),
        ({"priority": "now"}, "priority='now': use interactive, standard, batch"),
        ({"openai": "speech"}, "openai='speech': use chat, embeddings, images, none"),
        ({"openai_models": "gpt"}, "openai_models='gpt': use a list of names"),
        ({"min_trust": "me"}, "min_trust='me': use community, datacenter, owned"),
        ({"gpu_models": ["A100"]}, "require vram_gib"),
        ({"gpus": 2}, "require vram_gib"),
        ({"vram_fraction": 0.9}, "vram_fraction requires vram_gib"),
        ({"vram_gib": 8, "vram_fraction": 1.5}, r"vram_fraction=1\.5: use a number above 0, and at most 1"),
        ({"vram_gib": 8, "vram_fraction": "all"}, "vram_fraction='all': use a number above 0"),
        ({"gpus": 17, "vram_gib": 8}, "gpus=17: use a whole number from 1 to 16"),
        ({"gpus": True, "vram_gib": 8}, "gpus=True: use a whole number"),
        ({"keep_warm_s": -1}, "keep_warm_s=-1: use a whole number from 0 to 86400"),
        ({"min_warm": 1.5}, r"min_warm=1\.5: use a whole number from 0 to 1000"),
        ({"warmup": [1]}, r"warmup\[0\]=1: use a mapping"),
        ({"warmup": [{}] * 9}, "warmup has 9 items; use at most 8"),
        ({"warmup": [{"x": {1, 2}}]}, r"warmup\[0\] cannot be encoded as JSON"),
        ({"warmup": [{}, {"x": "a" * 70_000}]}, r"warmup\[1\] has 700.. bytes as JSON"),
    ],
)
def test_a_wrong_option_says_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        endpoint(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"endpoint": "A b"}, "Step endpoint 'A b': use the name of an endpoint"),
        ({"endpoint": None}, "Step endpoint None"),
        ({"name": "A"}, r"Step\('a'\) name='A': use 1 to 63"),
        ({"version": 0}, "version=0: use a whole number"),
        ({"timeout_s": 1.5}, r"timeout_s=1\.5: use a whole number"),
        ({"timeout_s": True}, "timeout_s=True: use a whole number"),
        ({"thresholds": {"violence": 2}}, "'violence': 2: use a number from 0 to 1 for each label"),
        ({"thresholds": {"violence": float("nan")}}, "'violence': nan"),
        ({"thresholds": {1: 0.5}}, "1: 0.5: use a number from 0 to 1 for each label"),
    ],
)
def test_a_wrong_step_says_what_to_write(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Step(**{"endpoint": "a", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backoff_s": -1}, "backoff_s=-1: use a number from 0 to 86400"),
        ({"backoff_s": "1"}, "backoff_s='1'"),
        ({"backoff_max_s": float("inf")}, "backoff_max_s=inf"),
        ({"backoff_s": 5, "backoff_max_s": 1}, "backoff_s=5 is more than backoff_max_s=1"),
        ({"jitter": 1.1}, r"jitter=1\.1: use a number from 0 to 1"),
        ({"on": "timeout"}, "on='timeout': use a list"),
        ({"on": []}, "list at least one error code"),
        ({"on": ["Time out"]}, "'Time out' is not an error code"),
    ],
)
def test_a_wrong_retry_says_what_to_write(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JobRetry(**arguments)


def test_decisions_are_what_the_api_reads() -> None:
    assert allow() == {"decision": "allow"}
    assert reject("too violent") == {"decision": "reject", "reason": "too violent"}
    assert reject("no", {"violence": 0.9}) == {"decision": "reject", "reason": "no", "scores": {"violence": 0.9}}
    assert rewrite({"prompt": "a"}) == {"decision": "rewrite", "value": {"prompt": "a"}}
    assert rewrite(None, scores={"x": 0.0}) == {"decision": "rewrite", "value": None, "scores": {"x": 0.0}}
    with pytest.raises(ValueError, match="requires a reason"):
        reject("")


def test_an_unknown_option_names_those_that_there_are() -> None:
    with pytest.raises(
        TypeError, match=r"^@endpoint has no option colour; the options are name, .*, vram_gib, warmup$"
    ):
        endpoint(colour=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"has no option vram_gb \(did you mean vram_gib\?\)"):
        endpoint(vram_gb=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r'takes its options by name: write @endpoint\(name="noop"\)$'):
        endpoint("noop")  # type: ignore[call-overload]
