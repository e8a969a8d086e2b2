"""How a gang is divided over clusters: pure functions on free capacity.

May import `api`, `model`, `kinds` and `fit` only.
"""

from __future__ import annotations

from atoll.dispatcher.split.native import Division, Short, divide_as, divide_natively, sets_of

__all__ = ["Division", "Short", "divide_as", "divide_natively", "sets_of"]
