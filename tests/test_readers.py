"""A second module that decodes an object is noticed."""

from __future__ import annotations

from pathlib import Path

from tests import readers


def test_each_object_is_decoded_where_it_may_be() -> None:
    assert readers.main() == 0


def test_second_reader_of_an_object_is_found(tmp_path: Path) -> None:
    for name, text in (("a", "class JobObject(Slim): ...\n"), ("b", "class _RawJob(Slim, frozen=True): ...\n")):
        (tmp_path / f"{name}.py").write_text(text)
    found = readers.readers([tmp_path])
    [finding] = readers.findings(found, {})
    assert finding.startswith("Job: 2 modules decode it, 1 may")
    assert readers.findings(found, {"Job": (2, "two processes")}) == []
    assert readers.findings(found, {"Job": (3, "three processes")}) != []
