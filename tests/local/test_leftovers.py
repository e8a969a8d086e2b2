"""Trees of files of real nodes are removed whole, and nothing beside them."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.local.realnodes.leftovers import remove_tree


def test_a_tree_goes_and_what_its_links_lead_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "deep").mkdir(parents=True)
    (kept / "deep" / "file").write_text("x")
    tree = tmp_path / "tree"
    for number in range(40):
        below = tree / f"{number % 7}" / f"{number % 5}" / f"{number}"
        below.mkdir(parents=True)
        (below / "file").write_text("x")
        (below / "folder").symlink_to(kept / "deep")
        (below / "nowhere").symlink_to(tmp_path / "missing")
    (tree / "closed").mkdir(mode=0o500)
    os.mkfifo(tree / "pipe")
    remove_tree(tree)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert (kept / "deep" / "file").read_text() == "x"


def test_a_tree_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    remove_tree(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
