#!/usr/bin/env python3
"""params.py RANGES PARAMS — zero points and scales (uint8) for the ranges that `onq calibrate` wrote."""
import json
import sys

ranges = json.load(open(sys.argv[1]))["data"]
params = {}
for name, found in ranges.items():
    low, high = (found[key]["data"][0] for key in ("lowest", "highest"))
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255 or 1.0
    params[name] = [round(-low / scale), scale]
json.dump(params, open(sys.argv[2], "w"), indent=1)
