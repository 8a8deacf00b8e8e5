"""A generator: each item is an output, and the result is the list of all items."""

from collections.abc import Iterator

from stokehold import endpoint, progress


@endpoint(name="count")
def count(to: int, quiet: bool = False) -> Iterator[int]:
    for n in range(1, to + 1):
        if not quiet:
            print(f"counting {n}")
            progress(n / to, f"{n} of {to}")
            yield n
    if quiet:
        yield from range(1, to + 1)
