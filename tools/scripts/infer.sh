#!/usr/bin/env bash
# make infer: goes on from PROMPT with MODEL, by default the model folded last by make train.
. "$(dirname "$0")/common.sh"

model=${MODEL:-}
if [ -z "$model" ]; then
  model=$(find runs -mindepth 2 -maxdepth 2 -name folded -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d' ' -f2-)
  if [ -z "$model" ]; then
    echo "no model yet: run make train first, or name one with MODEL=FOLDER" >&2
    exit 2
  fi
fi
stage "model: $model"
run "$bin/generate" --model "$model" --prompt "${PROMPT:-Once upon a time}" --max-tokens "${TOKENS:-200}" \
  --temperature 0.8 --top-p 0.95 "${common_flags[@]}"
echo

# The plans differ where norms are still at hand: in the run that the model was folded from.
if [ -e "$(dirname "$model")/internal/summary.json" ]; then
  stage "speed: with norms, with explicit scales, folded"
  run "$bin/decode-bench" --model "$(dirname "$model")/internal" "${common_flags[@]}"
fi
