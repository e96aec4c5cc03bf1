"""Many timers at once."""
import asyncio


async def wait(n):
    for _ in range(20):
        await asyncio.sleep(0.001)
    return n


async def main():
    print(sum(await asyncio.gather(*(wait(n) for n in range(100)))))


asyncio.run(main())
