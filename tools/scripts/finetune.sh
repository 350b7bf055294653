#!/usr/bin/env bash
# make finetune: a model with norms (MODEL, or a small GPT-2 pretrained here on made-up stories), fine-tuned from there
# in every way: as it is, its norms tapered away (internal, all), replaced one after another (fakeln); then the table of
# validation losses, and the folds of those without norms.
. "$(dirname "$0")/common.sh"

steps=${STEPS:-150}
model=${MODEL:-}
if [ -n "$model" ] && [ ! -e "$model" ]; then
  echo "MODEL: no such folder: $(realpath -m "$model")" >&2
  exit 2
fi
if [ -n "$model" ] && ! compgen -G "$model/config.json" >/dev/null && ! compgen -G "$model/step-*/config.json" >/dev/null; then
  echo "MODEL: $(realpath "$model") has no config.json; want a model's folder or a run's" >&2
  exit 2
fi

if [ -z "$model" ]; then
  prepare_data
  runs=runs/finetune
  model=$runs/gpt2
  mkdir -p "$runs"
  stage "gpt2: a small GPT-2, pretrained on $data"
  train_into "$model" "$bin/pretrain" --data "$data" --arch gpt2 --size 1M --width 128 --layers 4 --heads 4 --context 256 \
    --steps "${PRETRAIN_STEPS:-400}" --batch-tokens 4096 --lr 2e-3
else
  # The texts must come in the model's own tokens.
  tokenizer=$model
  if [ ! -e "$tokenizer/tokenizer.json" ] && [ ! -e "$tokenizer/vocab.json" ]; then
    tokenizer=$(find "$model" -maxdepth 2 -name tokenizer.json -printf '%h\n' | sort -V | tail -n 1)
  fi
  prepare_data "$tokenizer"
  runs=runs/finetune-$(basename "$(realpath "$model")")
fi

finetune() { # variant purpose
  stage "$1: $2"
  train_into "$runs/$1" "$bin/finetune" --model "$model" --data "$data" --variant "$1" --steps "$steps" --batch-tokens 4096
}

mkdir -p "$runs"
finetune vanilla "$steps steps more, norms and all"
finetune fakeln "the same, its norms replaced by fixed scales one after another"
finetune internal "the same, the norms inside its blocks tapered away"
finetune all "the same, all norms tapered away"

for variant in internal all; do
  stage "fold $variant: the scales of the tapered norms into the matrices beside them"
  rm -rf "$runs/$variant-folded"
  run "$bin/fold" --model "$runs/$variant" --output "$runs/$variant-folded" "${common_flags[@]}"
done

stage "validation loss"
{
  printf '%-10s %10s %10s %10s\n' variant before after gate
  for variant in vanilla fakeln internal all; do
    result=$(cat "$runs/$variant/summary.json")
    printf '%-10s %10.4f %10.4f %10s\n' "$variant" "$(json_value valid_loss_before <<<"$result")" \
      "$(json_value valid_loss <<<"$result")" "$(json_value gate <<<"$result")"
  done
}
stage "done: make infer MODEL=$runs/all-folded"
