"""Texts that cost far more than their length."""

from __future__ import annotations

BOMB = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 25))
"""700 bytes that stand for 16 million values."""
