"""test_progress.py - progress is off; turned on, it is a bar of tqdm, or a line on a terminal."""
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
    monkeypatch.setenv("ONQ_PROGRESS", "1")


@pytest.fixture
def no_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)


def run(progress):
    progress.update("samples", 1, 4)
    progress.update("samples", 4, 4)
    progress.update("optimisation", 0, 0)
    progress.close()


def test_terminal(monkeypatch, no_tqdm):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run(_progress.Progress())
    shown = screen.getvalue()
    assert "samples [" in shown and "1/4" in shown and "4/4" in shown and "optimisation" in shown
    assert shown.endswith("\r") and shown.rstrip("\r").endswith(" ")  # the line is cleared


def test_no_terminal(monkeypatch, no_tqdm):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    run(_progress.Progress())
    assert screen.getvalue() == ""


@pytest.mark.parametrize("setting", ["0", "", None])
def test_off_by_default(monkeypatch, no_tqdm, setting):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.delenv("ONQ_PROGRESS")
    if setting is not None:
        monkeypatch.setenv("ONQ_PROGRESS", setting)
    run(_progress.Progress())
    assert screen.getvalue() == ""


def test_short_jobs_show_nothing(monkeypatch, no_tqdm):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(_progress, "_DELAY", 60.0)
    run(_progress.Progress())
    assert screen.getvalue() == ""


def test_tqdm(monkeypatch):
    """Where the package is there it draws: a bar for each step, which is closed at its end."""
    bars = []

    class tqdm:  # noqa: N801 - its name
        def __init__(self, total, desc, leave):
            self.total, self.desc, self.n, self.seen, self.closed = total, desc, 0, [], False
            assert leave is False
            bars.append(self)

        def refresh(self):
            self.seen.append(self.n)

        def close(self):
            self.closed = True

    module = types.ModuleType("tqdm.auto")
    module.tqdm = tqdm
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", module)
    run(_progress.Progress())
    assert [(b.desc, b.total, b.seen, b.closed) for b in bars] == [
        ("onq: samples", 4, [1, 4], True),
        ("onq: optimisation", None, [0], True),
    ]
