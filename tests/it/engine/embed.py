"""Embeds each text as its length and the sum of its bytes: two numbers that a test can compute."""

from stokehold import endpoint


@endpoint(name="embed", openai="embeddings", openai_models=["text-embedding-3-small"], max_batch_size=8)
def embed(input: list[list[str]]) -> list[list[list[float]]]:  # noqa: A002 - the member of OpenAI's request
    return [[[float(len(text)), sum(text.encode()) / 1000] for text in texts] for texts in input]
