"""A handler that takes a file and returns one."""

from pathlib import Path

from stokehold import endpoint


@endpoint(name="shout")
def shout(text: Path) -> dict:
    loud = text.with_name("loud.txt")
    loud.write_text(text.read_text().upper())
    return {"loud": loud}
