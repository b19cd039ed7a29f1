#!/usr/bin/env bash
# Preset `pressure` on a CUDA GPU with random weights (nothing is downloaded): g0 in full, g1 with the
# ladder 1024,1536, close, show. At most six minutes; run again with the same label, it continues where
# it stopped. Usage: benchmarks/gpu_check.sh [LABEL] [RESULTS_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
label=${1:-pressure_random_gpu_v1}
results=${2:-benchmarks/results}
limit_s=${GPU_CHECK_LIMIT_S:-360}

memstrat=.venv/bin/memstrat
[ -x "$memstrat" ] || memstrat=memstrat
command -v "$memstrat" >/dev/null || { echo "memstrat: must be installed, got no such command. Run make install first." >&2; exit 1; }

common=(--label "$label" --results-dir "$results")
task=("${common[@]}" --preset pressure --weights random --device cuda --ladder 1024,1536)

# what is left of the limit goes to the next stage; finished runs are in its journal when it is cut short
stage() {
  local left=$((limit_s - SECONDS)) code=124
  if [ "$left" -gt 0 ]; then
    code=0
    timeout --signal=INT --kill-after=20 "$left" "$memstrat" "$@" || code=$?
  fi
  if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
    echo "$1: must end within ${limit_s} s in all, got ${SECONDS} s. Finished runs are kept: run this again with the same label." >&2
  fi
  [ "$code" -eq 0 ] || exit "$code"
}

stage g0 "${task[@]}"
if [ -e "$results/76_real_gpu_memory_boundary_$label.json" ]; then
  echo "g1 of $label is complete"
else
  stage g1 "${task[@]}"
fi
stage close "${common[@]}"
stage show "${common[@]}"
echo "gpu_check: ${SECONDS} s"
