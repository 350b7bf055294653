#!/usr/bin/env bash
# make experiments: all experiments' tables within BUDGET minutes together, and the speed of decoding. What was stopped
# goes on; what is done is only shown again. Another BUDGET, or other DATA: remove runs/experiments first.
. "$(dirname "$0")/common.sh"

minutes=${BUDGET:-30}
want BUDGET "$minutes" '0*[1-9][0-9]{0,5}(\.[0-9]+)?|0*\.0*[1-9][0-9]*' 'minutes above 0'
prepare_data
folder=runs/experiments
mkdir -p "$folder"

# An experiment and its share of the time, in percent.
experiment() { # program percent
  local budget
  budget=$(awk -v all="$minutes" -v part="$2" 'BEGIN { printf "%g", all * part / 100 }')
  stage "$1: $budget of $minutes minutes"
  local code=0
  run "$bin/$1" --data "$data" --budget "$budget" --output "$folder/$1" "${common_flags[@]}" || code=$?
  # A run that diverged is a result, and its table is written; the other experiments go on.
  if [ $code = 1 ]; then
    failed+=("$1")
  elif [ $code != 0 ]; then
    exit $code
  fi
}
failed=()
experiment tinystories-table 35
experiment logit-chasing 25
experiment taper-sweep 15
experiment norm-free-from-start 10
experiment gpt2-table 10

stage "decoding: norms, explicit scales, folded"
for each in 1M 9M; do
  run "$bin/decode-bench" --size "$each" --json "${common_flags[@]}" >"$folder/decode-$each.json"
done
run "$bin/last-token-bench" --size 1M --batch 1,4 --context 128,256 --json "${common_flags[@]}" >"$folder/last-token-1M.json"
if [ ${#failed[@]} -gt 0 ]; then stage "with runs that failed: ${failed[*]}"; fi
stage "done: make report puts all of it on one page"
