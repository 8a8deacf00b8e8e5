"""The smallest endpoint: what comes in goes out."""

from stokehold import endpoint


@endpoint(name="echo")
def echo(text: str) -> dict:
    return {"text": text}
