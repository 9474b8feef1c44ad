"""Jobs in a process of their own, for models that are not trusted (docs/ISOLATION.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_limits: ContextVar[dict[str, object] | None] = ContextVar("onq_isolated", default=None)


@contextmanager
def isolated(memory: int | str | None = None, time: int | None = None) -> Iterator[None]:
    """What is called inside runs in a process of its own, with limits on memory, time, files and network.

    A crash of the runtime there is an OnqError here. `memory` is in bytes, or a text such as "2g"; `time` in seconds.
    Setting ONQ_ISOLATE=1 in the environment does the same for the whole program. Calls that cannot be isolated (calibrators
    that are filled portion by portion, collect_activations) raise an error.
    """
    token = _limits.set({"isolate": True, "isolate_memory": memory, "isolate_time": time})
    try:
        yield
    finally:
        _limits.reset(token)


def options() -> dict[str, object]:
    """The options that a job gets."""
    limits = _limits.get()
    if limits is None:
        return {"isolate": True} if os.environ.get("ONQ_ISOLATE", "0") not in ("", "0") else {}
    return limits
