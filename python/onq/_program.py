"""The program `onq` of the package: what pip installs as a command runs the binary inside."""

from __future__ import annotations

import os
import subprocess
import sys

from ._library import find_runtime, native_folder


def main() -> None:
    """Replaces this process by the program, with the ONNX Runtime of the installed package as its engine."""
    folder = native_folder() / "bin"
    program = folder / ("onq.exe" if os.name == "nt" else "onq")
    if not os.environ.get("ONQ_ONNXRUNTIME"):
        runtime = find_runtime()
        if runtime:
            os.environ["ONQ_ONNXRUNTIME"] = runtime
    if os.name == "nt":  # which cannot replace a process: the caller would not wait
        sys.exit(subprocess.run([program, *sys.argv[1:]], check=False).returncode)
    os.execv(program, ["onq", *sys.argv[1:]])


if __name__ == "__main__":
    main()
