#!/usr/bin/env bash
# make train: data, tokenizer, a model with norms, the same model with its internal norms tapered away, the comparison,
# and the fold of the second into one that decodes without those norms.
. "$(dirname "$0")/common.sh"

prepare_data
steps=${STEPS:-300}
runs=runs/train-$size
# Small windows and a high learning rate suit a short run of a small model.
flags=(--data "$data" --size "$size" --context 256 --steps "$steps" --batch-tokens 4096 --lr 3e-3)

train() { # variant purpose
  stage "$1: $2"
  train_into "$runs/$1" "$bin/pretrain" "${flags[@]}" --variant "$1"
}

mkdir -p "$runs"
train baseline "a transformer with its norms, $size parameters, $steps steps"
train internal "the same, its internal norms tapered away during the training"

stage "comparison"
{
  printf '%-10s %12s %14s %14s\n' variant "valid loss" "bits per byte" "tokens per s"
  for variant in baseline internal; do
    result=$(cat "$runs/$variant/summary.json")
    printf '%-10s %12.4f %14.4f %14.0f\n' "$variant" "$(json_value valid_loss <<<"$result")" \
      "$(json_value bits_per_byte <<<"$result")" "$(json_value tokens_per_s <<<"$result")"
  done
  awk -v without="$(json_value valid_loss <"$runs/internal/summary.json")" -v with="$(json_value valid_loss <"$runs/baseline/summary.json")" \
    'BEGIN { printf "gap of the tapered model: %+.2f %%\n", 100 * (without - with) / with }'
}

stage "fold: the scales of the tapered norms into the matrices beside them"
rm -rf "$runs/folded"
run "$bin/fold" --model "$runs/internal" --output "$runs/folded" "${common_flags[@]}"

stage "done: make infer writes with $runs/folded"
