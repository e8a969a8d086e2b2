"""Pages that show what their commands print, typed as their reader would."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from atoll.local.binaries import ensure
from tests.docs.pages import blocks

_SLOW = "does not answer; it is tried for some seconds more"
"""What commands say beside their output where an API server takes its time: on a busy machine one does."""


def steps(page: Path) -> Iterator[list[tuple[str, str]]]:
    """Of each console block what its reader is to type, and what the page shows as the answer."""
    for block in blocks(page, "console"):
        yield [(command, shown) for step in re.split(r"^\$ ", block, flags=re.M)[1:] for command, _, shown in
               [step.partition("\n")]]  # fmt: skip


def alike(text: str) -> list[str]:
    """The lines without what differs from run to run: times, ages, and how wide columns are for these."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b(\d+m)?\d+s\b", "AGE", text)
    lines = [line for line in text.strip().splitlines() if _SLOW not in line]
    return [re.sub(r" {2,}", "  ", line).rstrip() for line in lines]


def shows(page: str, printed: str) -> bool:
    """Whether the page shows what was printed; an ellipsis stands for any lines."""
    pattern = "".join(r"(.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in alike(page))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in alike(printed))) is not None


def search_path() -> str:
    """PATH as the pages have it: with Atoll's programs and kubectl."""
    places = [str(Path(sys.executable).parent), str(Path(ensure(report=lambda _: None).kubectl).parent)]
    return os.pathsep.join([*places, os.environ["PATH"]])


async def shell(command: str, folder: Path, environment: Mapping[str, str]) -> tuple[str, int]:
    """What a shell prints, and its exit code."""
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        env={**os.environ, "PATH": search_path(), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    return printed, process.returncode or 0
