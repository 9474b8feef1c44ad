"""The progress bar: on a terminal one line on standard error, in a notebook one line of output; ONQ_PROGRESS=0 turns it off."""

from __future__ import annotations

import os
import sys
import time

_DELAY = 0.5  # seconds before anything is shown: short jobs show nothing
_STEP = 0.1  # seconds between two drawings
_WIDTH = 28


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _line(what: str, done: int, total: int) -> str:
    if not total:
        return f"onq: {what} {done or ''}".rstrip()
    full = min(_WIDTH, _WIDTH * done // total)
    return f"onq: {what} [{'#' * full}{'.' * (_WIDTH - full)}] {done}/{total}"


class Progress:
    """Draws the progress of one job. `close` takes the line away again."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._last = 0.0
        self._shown = 0
        self._display = None
        self._draw = None
        if os.environ.get("ONQ_PROGRESS", "") != "0":
            if _in_notebook():
                self._draw = self._draw_notebook
            elif hasattr(sys.stderr, "isatty") and sys.stderr.isatty():
                self._draw = self._draw_terminal

    def update(self, what: str, done: int, total: int) -> None:
        """Says how far the job is."""
        if self._draw is None:
            return
        now = time.monotonic()
        if now - self._begin < _DELAY or (now - self._last < _STEP and done != total):
            return
        self._last = now
        self._draw(_line(what, done, total))

    def close(self) -> None:
        """Clears the line."""
        if self._shown and self._draw == self._draw_terminal:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
        elif self._display is not None:
            self._display.update({"text/plain": ""}, raw=True)

    def _draw_terminal(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(text)

    def _draw_notebook(self, text: str) -> None:
        bundle = {"text/plain": text}
        if self._display is None:
            from IPython.display import display

            self._display = display(bundle, raw=True, display_id=True)
        else:
            self._display.update(bundle, raw=True)
