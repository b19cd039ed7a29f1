#!/bin/sh
# Predicted against measured on CUDA, phase by phase, at most three minutes. Writes the table as it goes.
#   benchmarks/gpu_compare.sh [OUTPUT.md]
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=python3
"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "gpu_compare: needs a CUDA GPU, torch sees none")'
if [ $# -gt 0 ]; then
    "$python" benchmarks/gpu_compare.py | tee "$1"
else
    "$python" benchmarks/gpu_compare.py
fi
