#!/usr/bin/env bash
# make gpu-check: all tests, those of the CUDA kernels against the CPU among them, on a machine with a GPU.
. "$(dirname "$0")/common.sh"

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
  echo "gpu-check: no GPU here, or no driver for it" >&2
  exit 1
fi
stage "tests"
"$TAPER_TESTS"
