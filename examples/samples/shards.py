#!/usr/bin/env python3
"""Samples as a tar archive of .npz files on standard output, for models with several inputs: arrays go by their names.

    python3 shards.py > shard.tar; onq static ... --data shard.tar
    onq static ... --data 'exec:python3 shards.py'
"""
import io
import sys
import tarfile

import numpy as np

random = np.random.default_rng(2)
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
    for i in range(16):
        file = io.BytesIO()
        np.savez(file, input=random.random((1, 1, 28, 28), dtype=np.float32))
        info = tarfile.TarInfo(f"{i:06}.npz")
        info.size = file.tell()
        file.seek(0)
        archive.addfile(info, file)
