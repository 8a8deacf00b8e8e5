"""Writes a llama with random weights: an engine serves it like any other model.

Usage: python model.py PATH [LAYERS WIDTH]

LAYERS is 2 and WIDTH 64 by default: 0.5 MB. WIDTH is a multiple of 64. From 1,024 on, the weights are of 16 bits.
"""

import sys

import numpy
from gguf import GGUFWriter, TokenType

LAYERS, WIDTH = (int(number) for number in sys.argv[2:]) if sys.argv[2:] else (2, 64)
HEADS, INNER, CONTEXT = max(4, WIDTH // 64), 2 * WIDTH, 65_536
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
# What is special, the bytes that no letter has, and the letters of ASCII.
SPECIAL = [("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
BYTES = [(f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)]
LETTERS = [(chr(code), TokenType.NORMAL) for code in range(32, 127)]
TOKENS = SPECIAL + BYTES + LETTERS

random = numpy.random.default_rng(7)


def weights(*shape: int) -> numpy.ndarray:
    kind = numpy.float16 if WIDTH >= 1_024 else numpy.float32
    return random.normal(0, 0.5 / shape[-1] ** 0.5, shape).astype(kind)


def ones() -> numpy.ndarray:
    return numpy.ones(WIDTH, numpy.float32)


def main(path: str) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in TOKENS])
    writer.add_token_scores([-float(place) for place in range(len(TOKENS))])
    writer.add_token_types([kind for _, kind in TOKENS])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    writer.add_tensor("token_embd.weight", weights(len(TOKENS), WIDTH))
    writer.add_tensor("output_norm.weight", ones())
    writer.add_tensor("output.weight", weights(len(TOKENS), WIDTH))
    for layer in range(LAYERS):
        tensors = {"attn_norm": ones(), "ffn_norm": ones(), "ffn_down": weights(WIDTH, INNER)}
        tensors |= {name: weights(WIDTH, WIDTH) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        tensors |= {name: weights(INNER, WIDTH) for name in ("ffn_gate", "ffn_up")}
        for name, tensor in tensors.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
