"""Returns only when as many runs as it was told are under way at once."""

import asyncio

from stokehold import endpoint

here = asyncio.Condition()
count = 0


@endpoint(name="together", max_concurrency=4)
async def together(runs: int) -> int:
    global count
    async with here:
        count += 1
        here.notify_all()
        await here.wait_for(lambda: count >= runs)
    return count
