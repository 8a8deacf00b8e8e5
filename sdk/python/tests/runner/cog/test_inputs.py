"""The kind `cog`: predictors as Cog's documentation and its examples have them, and their inputs."""

from __future__ import annotations

from typing import Any

import pytest

from .models import HELLO, MANY, Load, refusal

pytest.importorskip("cog", reason="Cog needs Python 3.10")


def test_hello_world_of_the_examples(load: Load) -> None:
    peer = load(HELLO)
    assert peer.run({"text": "world"}).json == "hello world"


def test_a_runner_with_run_is_found_without_being_named(load: Load) -> None:
    peer = load(
        """
        from cog import BaseRunner, Input

        class Predictor: "is not asked"

        class Runner(BaseRunner):
            def setup(self) -> None:
                self.prefix = "hello"

            def run(self, text: str = Input(description="Text to prefix with 'hello '")) -> str:
                return self.prefix + " " + text
        """,
        "run.py",
    )
    assert peer.run({"text": "world"}).json == "hello world"


def test_a_helper_named_runner_does_not_hide_the_predictor(load: Load) -> None:
    assert load(f"class Runner: 'of something else'\n{HELLO}", "predict.py").run({"text": "x"}).json == "hello x"


@pytest.mark.parametrize(
    "source",
    [
        "from cog import Input\ndef predict(text: str = Input(default='world')) -> str: return f'hello {text}'",
        "def predict(text: str = 'world') -> str: return f'hello {text}'",
        "async def predict(text: str = 'world') -> str: return f'hello {text}'",
    ],
)
def test_a_function_can_be_the_predictor(load: Load, source: str) -> None:
    peer = load(source, "predict.py:predict")
    assert [peer.run().json, peer.run({"text": "you"}).json] == ["hello world", "hello you"]


def test_a_class_that_is_not_derived_from_cog_s(load: Load) -> None:
    peer = load("class Predictor:\n    def predict(self, n: int) -> int: return n * 2")
    assert peer.run({"n": 4}).json == 8


def test_what_is_left_out_gets_its_default(load: Load) -> None:
    assert load(MANY).run({"no_default": "hello", "seed": None}).json == {
        "self": None,
        "no_default": "hello",
        "default_without_input": "default",
        "steps": 10,
        "scale": 1.5,
        "size": "small",
        "code": "a",
        "seed": None,
        "tags": ["x"],
        "exact": False,
    }


def test_an_optional_input_without_a_default_is_none(load: Load) -> None:
    peer = load(
        """
        from __future__ import annotations
        from cog import BasePredictor, Path, Secret, Input

        class Predictor(BasePredictor):
            def predict(self, value: str | None, image: Path | None, key: Secret = Input(default=None)) -> str:
                return f"{value} {image} {key}"
        """
    )
    assert peer.run().json == "None None None"
    assert peer.run({"value": "x", "key": "y"}).json == "x None **********"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"no_default": ...}, "no_default: Field required"),
        ({"steps": 0}, "steps fails constraint >= 1"),
        ({"steps": 501}, "steps fails constraint <= 500"),
        ({"steps": "many"}, "steps: Invalid value for type int"),
        ({"steps": True}, "steps: Invalid value for type int"),
        ({"steps": 1.5}, "steps: Invalid value for type int"),
        ({"scale": 0.25}, "scale fails constraint >= 0.5"),
        ({"scale": None}, "scale: Invalid value for type float"),
        ({"size": "huge"}, "size does not match choices ['small', 'large']"),
        ({"code": "1"}, "code does not match regex '[a-z]+'"),
        ({"code": ""}, "code fails constraint len() >= 1"),
        ({"code": "abcdef"}, "code fails constraint len() <= 5"),
        ({"seed": -1}, "seed fails constraint >= 0"),
        ({"seed": "x"}, "seed: Invalid value for type int"),
        ({"tags": ["four"]}, "tags fails constraint len() <= 3"),
        ({"tags": "x"}, 'tags: "x" is not an array'),
        ({"exact": "true"}, "exact: Invalid value for type bool"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_in_cog_s_words(load: Load, given: dict[str, Any], message: str) -> None:
    peer = load(MANY)
    whole = {"no_default": "x", **given}
    assert refusal(peer.run({name: value for name, value in whole.items() if value is not ...})) == message


def test_what_json_writes_as_a_whole_number_is_an_int(load: Load) -> None:
    assert load(MANY).run({"no_default": "x", "steps": 3.0}).body.count(b'"steps":3,') == 1


def test_an_unknown_input_is_ignored_with_a_warning(load: Load) -> None:
    peer = load(HELLO)
    run = peer.start({"text": "world", "guidance_scale": 7.5})
    assert peer.end(run).json == "hello world"
    assert peer.log(run, "stderr") == "WARNING unknown input field ignored: guidance_scale\n"


def test_unions_objects_and_what_is_opaque_are_passed_as_they_come(load: Load) -> None:
    peer = load(
        """
        from typing import Annotated, Any, Optional, TypedDict, Union
        from cog import BasePredictor, Opaque

        class Message(TypedDict):
            role: str

        class Predictor(BasePredictor):
            def predict(
                self,
                value: Union[str, float],
                params: dict[str, int],
                messages: Annotated[list[Message], Opaque],
                anything: Any,
                message: Optional[Message],
                more: Annotated[Optional[list[Message]], Opaque],
            ) -> dict:
                return {"params": params, "all": [value, messages, anything, message, more]}
        """
    )
    given = {"value": 1, "params": {"x": "not an int"}, "messages": [{"a": 1}], "anything": [None], "message": {"b": 1}}
    assert peer.run(given).json == {
        "params": {"x": "not an int"},
        "all": [1, [{"a": 1}], [None], {"b": 1}, None],
    }
    assert refusal(peer.run({**given, "value": []})) == "value: [] matches no member of the union"


def test_a_secret_does_not_show(load: Load) -> None:
    peer = load(
        """
        from cog import BaseRunner, Secret

        class Runner(BaseRunner):
            def run(self, api_token: Secret) -> str:
                print(api_token)
                return api_token.get_secret_value()
        """,
        "run.py:Runner",
    )
    run = peer.start({"api_token": "hidden"})
    assert peer.end(run).json == "hidden"
    assert peer.log(run) == "**********\n"
    assert refusal(peer.run({"api_token": 7})) == "api_token: Invalid value for type Secret"
