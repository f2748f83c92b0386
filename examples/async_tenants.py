"""An asyncio program that calls the APIs of many tenants: four at once, each in order; one is throttled."""

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path

from surepipe import ServedBook
from surepipe.queues.book import BookMessage, Context, Later, Outcome

called: dict[str, list[bytes]] = defaultdict(list)
throttled = {"ada"}


async def call_api(message: BookMessage, context: Context) -> Outcome | None:
    """Runs on the loop of the program. What is staged is stored with the end of the message, or not at all."""
    await asyncio.sleep(0.001)  # the call itself
    if message.origin in throttled:
        throttled.remove(message.origin)
        return Later(
            after_s=0.05
        )  # 429: this tenant waits, others go on, and no attempt is counted
    called[message.origin].append(message.payload)
    context.put(f"{message.origin}/last", message.payload)
    return None


async def main(folder: Path) -> None:
    book = ServedBook(
        "calls", store=f"sqlite:///{folder / 'calls.db'}", processor=call_api, workers=4
    )
    async with book as calls:
        await calls.enqueue_many("loud", [b"GET /items/%d" % item for item in range(50)])
        async with asyncio.TaskGroup() as tenants:
            for tenant in ("ada", "bob", "cyd"):
                tenants.create_task(calls.enqueue_many(tenant, [b"GET /me", b"PUT /me"]))
        await calls.wait_until_idle(timeout=30)
        last = await calls.ask(lambda book: book.value("ada/last"))
        print("the last call for ada:", last)
    for tenant in sorted(called):
        print(tenant, len(called[tenant]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(Path(made)))
