"""`python -m tests.browser.pictures`: the pictures of README.md and docs/web.md, from the host that the tests of pages play.

Needs the packages of requirements.txt beside this file and a `chromium`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from playwright.async_api import async_playwright

from tests.browser.scene import RACKED, played
from tests.cli.web_pages import opened

PICTURES: dict[str, tuple[str, Literal["light", "dark"], int]] = {
    "federation": ("/", "light", 660),
    "queues": ("/queues", "light", 700),
    "workload": (f"/workloads/team/vcjob/{RACKED}", "light", 760),
    "topology": ("/topology", "dark", 760),
}
"""Name -> address, colours and height in pixels."""
_WIDTH = 1080


async def take(folder: Path) -> list[Path]:
    """Write the pictures to a folder."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        async with opened(played(), Path(work)) as client, async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, (path, scheme, height) in PICTURES.items():
                tab = await browser.new_page(color_scheme=scheme, viewport={"width": _WIDTH, "height": height})
                await tab.goto(client.address)
                await tab.goto(client.base + path)
                await tab.wait_for_selector("#connection:text-is('live')")
                found.append(folder / f"page-{name}.png")
                await tab.screenshot(path=found[-1])
                await tab.close()
            await browser.close()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take the pictures of the pages for the docs.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parents[2] / "docs")
    for picture in asyncio.run(take(parser.parse_args().folder)):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")
