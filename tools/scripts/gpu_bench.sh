#!/usr/bin/env bash
# make gpu-bench: training and decoding on the GPU.
DEVICE=cuda exec "$(dirname "$0")/bench.sh"
