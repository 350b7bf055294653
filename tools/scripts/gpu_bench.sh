#!/usr/bin/env bash
# make gpu-bench: training steps on the GPU, in f32 and bf16, and where the time of one goes. Prints a line a measurement
# as it is made, and at the end all of them as one JSON object on stdout.
set -uo pipefail
cd "$(dirname "$0")/../.."
bin=${TAPER_BIN:-build/release-cuda/bin}
json="" failed=0

measure() { # size batch context precision
  local name="$1, $2 x $3, $4" result
  if ! result=$(timeout 90 "$bin/train-bench" --size "$1" --batch "$2" --context "$3" --precision "$4" --steps "${STEPS:-12}" \
    --device cuda --json); then
    failed=$((failed + 1))
    printf '%-28s failed\n' "$name" >&2
    return
  fi
  printf '%-28s %s\n' "$name" "$result" >&2
  json+="${json:+, }\"$name\": $result"
}

for precision in f32 bf16; do
  measure 1M 16 256 $precision
  measure 9M 16 512 $precision
  measure 30M 16 512 $precision
done
# Each kernel by itself, against the memory it must move and the products it must compute.
for precision in f32 bf16; do
  if result=$(timeout 90 "$bin/kernel-bench" --size 30M --batch 16 --precision $precision --budget 0.05 --device cuda --json); then
    json+="${json:+, }\"kernels, 30M, 16 x 512, $precision\": $result"
  else
    failed=$((failed + 1))
  fi
done
printf '{%s, "failed": %d}\n' "$json" "$failed"
[ $failed -eq 0 ]
