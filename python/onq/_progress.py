"""Progress of a job, if ONQ_PROGRESS=1: by the package tqdm if it is there, else one line on a terminal's standard error."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

_DELAY = 0.5  # seconds before anything is shown: short jobs show nothing
_STEP = 0.1  # seconds between two drawings
_WIDTH = 28


def _line(what: str, done: int, total: int) -> str:
    if not total:
        return f"onq: {what} {done or ''}".rstrip()
    full = min(_WIDTH, _WIDTH * done // total)
    return f"onq: {what} [{'#' * full}{'.' * (_WIDTH - full)}] {done}/{total}"


def _tqdm() -> Any:
    """tqdm's bar, which draws itself on a terminal and in a notebook; None without the package."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm


class Progress:
    """Shows the progress of one job. `close` takes it away again."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._last = 0.0
        self._shown = 0
        self._bar: Any = None
        self._what = ""
        self._kind: Any = None
        self._on = os.environ.get("ONQ_PROGRESS", "0") not in ("", "0")
        if self._on:
            self._kind = _tqdm()
            self._on = self._kind is not None or sys.stderr.isatty()

    def update(self, what: str, done: int, total: int) -> None:
        """Says how far the job is."""
        if not self._on:
            return
        now = time.monotonic()
        if now - self._begin < _DELAY or (now - self._last < _STEP and done != total):
            return
        self._last = now
        if self._kind is None:
            self._draw(_line(what, done, total))
        else:
            self._advance(what, done, total)

    def close(self) -> None:
        """Clears what is shown."""
        if self._bar is not None:
            self._bar.close()
        elif self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()

    def _draw(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(text)

    def _advance(self, what: str, done: int, total: int) -> None:
        if self._bar is None or self._what != what:  # a bar for each step of the job
            if self._bar is not None:
                self._bar.close()
            self._bar, self._what = self._kind(total=total or None, desc=f"onq: {what}", leave=False), what
        self._bar.n = done
        self._bar.refresh()
