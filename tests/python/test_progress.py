"""test_progress.py - the progress bar on a terminal, in a notebook, and turned off."""
import io
import sys
import types

import pytest

from onq import _progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(_progress, "_DELAY", 0.0)
    monkeypatch.setattr(_progress, "_STEP", 0.0)
    monkeypatch.delenv("ONQ_PROGRESS", raising=False)


def run(progress):
    progress.update("samples", 1, 4)
    progress.update("samples", 4, 4)
    progress.update("optimisation", 0, 0)
    progress.close()


def test_terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run(_progress.Progress())
    shown = screen.getvalue()
    assert "samples [" in shown and "1/4" in shown and "4/4" in shown and "optimisation" in shown
    assert shown.endswith("\r") and shown.rstrip("\r").endswith(" ")  # the line is cleared


def test_no_terminal(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    run(_progress.Progress())
    assert screen.getvalue() == ""


def test_turned_off(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("ONQ_PROGRESS", "0")
    run(_progress.Progress())
    assert screen.getvalue() == ""


def test_short_jobs_show_nothing(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "_DELAY", 60.0)
    run(_progress.Progress())
    assert screen.getvalue() == ""


def test_notebook(monkeypatch):
    shown = []

    class ZMQInteractiveShell:
        pass

    class Handle:
        def update(self, bundle, raw):
            shown.append(bundle["text/plain"])

    def display(bundle, raw, display_id):
        shown.append(bundle["text/plain"])
        return Handle()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    run(_progress.Progress())
    assert "1/4" in shown[0] and "4/4" in shown[1] and shown[-1] == ""
