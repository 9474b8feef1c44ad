"""SIGINT and SIGTERM: a job that is asked to stop ends soon, by that signal, says so in one line, and leaves nothing."""
import os
import signal
import subprocess
import sys
import time

import onnx
import pytest
from onnx import TensorProto, helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "parity"))

import commands  # noqa: E402
from common import ONQ  # noqa: E402

COMMANDS = subprocess.run([ONQ, "--list-commands"], capture_output=True, text=True, check=True).stdout.split()
SIDE, COUNT = 4096, 24  # 1.6 GB of zeros, which take no space on the disk


def test_every_command_meets_hostile_input():
    """The table of the campaign has a row for each command but ops, which reads nothing."""
    rows = {row.words.split()[0] for row in commands.COMMANDS.values() if row.words}
    assert set(COMMANDS) - rows <= {"ops"} and set(COMMANDS) == set(commands.BARE)



@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("big")
    for name in ("a", "b"):
        graph = helper.make_graph([], "g", [helper.make_tensor_value_info("y0", TensorProto.FLOAT, ["N", SIDE])],
                                  [helper.make_tensor_value_info(f"y{COUNT}", TensorProto.FLOAT, ["N", SIDE])])
        size = SIDE * SIDE * 4
        for i in range(COUNT):
            t = graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE],
                                      data_location=TensorProto.EXTERNAL)
            for k, v in (("location", f"{name}.data"), ("offset", i * size), ("length", size)):
                t.external_data.add(key=k, value=str(v))
            graph.node.append(helper.make_node("MatMul", [f"y{i}", f"w{i}"], [f"y{i + 1}"]))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (where / f"{name}.onnx").write_bytes(model.SerializeToString())
        with open(where / f"{name}.data", "wb") as f:
            f.truncate(COUNT * size)
    return where


JOBS = {
    "diff": ["a.onnx", "b.onnx"],
    "dynamic": ["-i", "a.onnx", "-o", "out/q.onnx", "--threads", "1"],
    "nbits": ["-i", "a.onnx", "-o", "out/q.onnx", "--threads", "1"],
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
@pytest.mark.parametrize("command", JOBS)
def test_stop(folder, command, number):
    if command not in COMMANDS:
        pytest.skip(f"onq has no {command} yet")
    out = folder / "out"
    out.mkdir(exist_ok=True)
    (out / "q.onnx").write_bytes(b"what was there")
    job = subprocess.Popen([ONQ, command, *JOBS[command]], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    time.sleep(0.4)
    if job.poll() is not None:
        pytest.skip(f"{command} was done before it could be asked to stop: {job.stderr.read()}")
    job.send_signal(number)
    stdout, stderr = job.communicate(timeout=300)
    assert job.returncode == -number, (job.returncode, stderr)
    assert stdout == "" and stderr == "onq: error: stopped by a signal; nothing was written\n", stderr
    assert os.listdir(out) == ["q.onnx"] and (out / "q.onnx").read_bytes() == b"what was there"
    assert sorted(os.listdir(folder)) == ["a.data", "a.onnx", "b.data", "b.onnx", "out"]
