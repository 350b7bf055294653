#!/usr/bin/env bash
# make bench: what the machine can do, and what training and decoding make of it.
. "$(dirname "$0")/common.sh"

stage "machine"
run "$bin/bench-machine" "${common_flags[@]}"
stage "training, $size"
run "$bin/train-bench" --size "$size" "${common_flags[@]}"
stage "decoding, $size, three plans"
run "$bin/decode-bench" --size "$size" "${common_flags[@]}"
stage "logits of the last position, $size"
run "$bin/last-token-bench" --size "$size" --batch 1,4 --context 128,256 "${common_flags[@]}"
