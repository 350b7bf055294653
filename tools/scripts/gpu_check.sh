#!/usr/bin/env bash
# make gpu-check: on a machine with a GPU, within five minutes: the tests of the kernels and of training on the device,
# compute-sanitizer on some of them, and 20 training steps against the processor's. Each stage prints as it ends, one that
# fails does not stop the rest. At the end a table, and the same as one JSON object on stdout.
#
#   TAPER_TESTS  the test program; default: the one that make CUDA=1 builds
#   TAPER_BIN    the folder of the programs
set -uo pipefail
cd "$(dirname "$0")/../.."
tests=${TAPER_TESTS:-build/release-cuda/tests-on-gpu}
bin=${TAPER_BIN:-build/release-cuda/bin}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
table="" json="" failed=0

# Runs a stage within its time, and keeps how it ended with the last line it printed.
stage() { # name seconds command...
  local name=$1 limit=$2 begin=$SECONDS log="$logs/log" status outcome last
  shift 2
  timeout "$limit" "$@" >"$log" 2>&1
  status=$?
  outcome=passed
  if [ $status -eq 124 ]; then outcome="out of time"; elif [ $status -ne 0 ]; then outcome=failed; fi
  if [ $status -ne 0 ]; then
    failed=$((failed + 1))
    tail -n 25 "$log" >&2
  fi
  last=$(tail -n 1 "$log" | tr -d '"\\\r' | cut -c1-120)
  printf -v line '%-24s %-12s %4d s  %s' "$name" "$outcome" $((SECONDS - begin)) "$last"
  printf '%s\n' "$line" >&2
  table+="$line"$'\n'
  json+="${json:+, }\"$name\": {\"outcome\": \"$outcome\", \"seconds\": $((SECONDS - begin)), \"last_line\": \"$last\"}"
}

sanitize() { # tool filter
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed"; return 1; }
  compute-sanitizer --tool "$1" --error-exitcode 1 --print-limit 20 "$tests" --test-case="$2"
}

# The loss after 20 steps of the same data on both devices; roundings differ, so they agree to a part in a thousand.
compare_training() { # precision
  local device loss cpu
  for device in cpu cuda; do
    loss=$("$bin/train-bench" --size 1M --batch 4 --context 256 --steps 20 --precision "$1" --device $device --json |
      sed -nE 's/.*"loss": *([0-9.eE+-]+).*/\1/p')
    if [ $device = cpu ]; then cpu=$loss; fi
  done
  awk -v a="$cpu" -v b="$loss" -v most="$([ "$1" = f32 ] && echo 0.001 || echo 0.02)" 'BEGIN {
    d = (a - b) / a; if (d < 0) d = -d
    printf "loss after 20 steps: %s on the processor, %s on the GPU\n", a, b
    exit !(a != "" && b != "" && d < most)
  }'
}

export -f sanitize compare_training
export tests bin
stage "device" 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
stage "ops" 90 "$tests" --test-case='ops on cuda*'
stage "kernels" 60 "$tests" --test-case='*on cuda*' --test-case-exclude='ops on cuda*,training on cuda*,parity on cuda*'
stage "training" 60 "$tests" --test-case='training on cuda*,parity on cuda*,tensors on cuda*'
stage "20 steps in f32" 60 bash -c 'compare_training f32'
stage "20 steps in bf16" 60 bash -c 'compare_training bf16'
stage "memory accesses" 60 bash -c 'sanitize memcheck "ops on cuda: two*"'
stage "races" 60 bash -c 'sanitize racecheck "ops on cuda: two*"'

printf '\n%s' "$table" >&2
printf '{%s, "failed": %d}\n' "$json" "$failed"
[ $failed -eq 0 ]
