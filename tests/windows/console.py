#!/usr/bin/env python3
"""console.py WINE PROGRAM MODEL — onq in a console of Windows, which wine makes of a terminal.

Letters of several bytes arrive whole, progress keeps to the width, and Ctrl-C ends a job with status 130 and leaves nothing.
Prints what is wrong; exits 1 if anything is."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import tempfile
import termios
import time

COLUMNS = 60


def run(words, press_at=None, patience=120):
    """Status, what the terminal got, and the seconds between the key and the end. The key comes when `press_at` was seen."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        os.execv(words[0], words)
    got, end, pressed = b"", time.time() + patience, None
    while time.time() < end:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                data = os.read(fd, 1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            got += data
        if press_at and not pressed and press_at in got:
            os.write(fd, b"\x03")
            pressed = time.time()
    else:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, got, pressed and time.time() - pressed


def plain(got):
    """The text without what moves the cursor; a step to the right is a space."""
    return re.sub(r"\x1b(\[[?0-9;]*[A-Za-z]|\][^\x07]*\x07)", "", re.sub(r"\x1b\[\d*C", " ", got.decode("utf-8", "replace")))


def main(wine, program, model):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        status, got, _ = run([wine, program, "inspect", "größe模型.onnx"])
        if status != 1 or "größe模型.onnx: cannot be opened" not in plain(got):
            wrong.append(f"a name in a message: status {status}: {got!r}")
        status, got, seconds = run([wine, program, "calibrate", "-i", model, "-o", "ranges.json", "--data", "random:1000000"], b"[.")
        if seconds is None or status != 130 or seconds > 30 or "stopped by a signal" not in plain(got):
            wrong.append(f"Ctrl-C: status {status} after {seconds} s: {got[-800:]!r}")
        longest = max(len(line) for line in re.split(r"[\r\n]+", plain(got)))
        if longest > COLUMNS:
            wrong.append(f"a line of {longest} letters in a console of {COLUMNS}")
        if os.listdir("."):
            wrong.append(f"left behind: {os.listdir('.')}")
    print("\n".join(wrong) or "console: as it should be")
    return bool(wrong)


sys.exit(main(*sys.argv[1:]))
