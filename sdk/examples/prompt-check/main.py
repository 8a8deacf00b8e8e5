"""Scores a prompt before another endpoint gets it: how much it asks for violence, gore, weapons or self-harm.

A list of words, each with a weight; no model. It stands for a classifier in the place where one belongs.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Optional

from stokehold import endpoint as stokehold_endpoint

# How much a word alone says of its label, 0 to 1. A `*` stands for any ending.
WORDS: dict[str, dict[str, float]] = {
    "violence": {
        "assault*": 0.6, "attack*": 0.4, "beating": 0.3, "behead*": 0.95, "brutal*": 0.6, "fight*": 0.3, "kill*": 0.7,
        "massacre*": 0.9, "murder*": 0.85, "slaughter*": 0.8, "stab": 0.75, "stabbed": 0.75, "stabbing": 0.75,
        "strangl*": 0.85, "torture*": 0.9, "torturing": 0.9, "war": 0.3,
    },
    "gore": {
        "blood": 0.5, "bloody": 0.6, "corpse*": 0.7, "decapitat*": 0.95, "disembowel*": 0.95, "dismember*": 0.95,
        "entrails": 0.85, "gore": 0.8, "gory": 0.8, "guts": 0.5, "mutilat*": 0.9,
    },
    "weapons": {
        "ammunition": 0.6, "bomb": 0.7, "bombs": 0.7, "bombing": 0.7, "explosives": 0.65, "grenade*": 0.75, "gun": 0.6,
        "guns": 0.6, "gunfire": 0.6, "knife": 0.35, "knives": 0.35, "machete*": 0.6, "pistol*": 0.65, "rifle": 0.65,
        "rifles": 0.65, "shotgun*": 0.7,
    },
    "self-harm": {"cutting myself": 0.9, "kill myself": 0.98, "self harm": 0.9, "suicid*": 0.9},
}  # fmt: skip

# Harmless in spite of a word in it: taken out before anything is scored.
HARMLESS = ("blood orange*", "blood moon*", "bath bomb*", "fight for breath", "killer whale*", "killing time")

# Letters that are written otherwise so that a list does not find them.
DISGUISES = str.maketrans({"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s", "!": "i"})

TEXT_CHARS_MAX = 100_000


@stokehold_endpoint(name="prompt-check", timeout_s=30)
def prompt_check(endpoint: str, input: Any, thresholds: Optional[dict[str, float]] = None) -> dict:  # noqa: A002
    """Scores for each label, 0 to 1; `thresholds` then decide, and without one for a label nothing is refused."""
    text = plain(" ".join(texts(input)))
    return {"scores": {label: round(score(text, words), 3) for label, words in PATTERNS.items()}}


def texts(value: Any) -> Iterator[str]:
    """Every text anywhere in an input, up to a bound."""
    left, found = [value], 0
    while left and found < TEXT_CHARS_MAX:
        value = left.pop()
        if isinstance(value, str):
            found += len(value)
            yield value[:TEXT_CHARS_MAX]
        elif isinstance(value, dict):
            left.extend(reversed(value.values()))
        elif isinstance(value, list):
            left.extend(reversed(value))


def plain(text: str) -> str:
    """Lower case, no accents, no disguises, single spaces: `K1LL` and `kíll` are `kill`."""
    letters = unicodedata.normalize("NFKD", text.lower())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter)).translate(DISGUISES)
    return HARMLESS_PATTERN.sub(" ", re.sub(r"[^a-z]+", " ", bare))


def score(text: str, words: list[tuple[re.Pattern[str], float]]) -> float:
    """As if each word were an independent hint: two of 0.5 make 0.75."""
    doubt = 1.0
    for pattern, weight in words:
        if pattern.search(text):
            doubt *= 1 - weight
    return 1 - doubt


def pattern_of(word: str) -> str:
    """A letter may be stretched: `muuurder` is found. To three at least, for a `riffle` is no `rifle`."""
    runs = re.findall(r"(([a-z ])\2*)", word.rstrip("*"))
    stretched = "".join(f"(?:{run}|{letter}{{3,}})" for run, letter in runs)
    return rf"\b{stretched}[a-z]*\b" if word.endswith("*") else rf"\b{stretched}\b"


PATTERNS = {
    label: [(re.compile(pattern_of(word)), weight) for word, weight in words.items()] for label, words in WORDS.items()
}
HARMLESS_PATTERN = re.compile("|".join(map(pattern_of, HARMLESS)))
