#!/usr/bin/env python3
"""Samples for `onq ... --data 'exec:python3 noise.py'`: arrays one after another, as numpy.save writes them.

For each sample, one array for each input of the model, in the model's order. Here: images of 28 x 28 pixels for
examples/digits_cnn. Anything that Python can read or make becomes samples in this way.
"""
import sys

import numpy as np

count = int(sys.argv[1]) if len(sys.argv) > 1 else 16
random = np.random.default_rng(1)
for _ in range(count):
    np.save(sys.stdout.buffer, random.random((1, 1, 28, 28), dtype=np.float32))
