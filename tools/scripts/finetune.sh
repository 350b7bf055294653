#!/usr/bin/env bash
# make finetune: tapers the norms of a pretrained MODEL away while it learns from DATA, and folds the result.
. "$(dirname "$0")/common.sh"

model=${MODEL:-runs/train-$size/baseline}
if [ ! -e "$model" ]; then
  echo "MODEL: no such folder: $(realpath -m "$model"); make train makes one, MODEL=FOLDER names another" >&2
  exit 2
fi
prepare_data
run_folder=runs/finetune-$(basename "$(dirname "$(realpath "$model")")")-$(basename "$model")
stage "fine-tuning $model with its internal norms tapered away"
how=()
if [ -d "$run_folder" ]; then how=(--resume); fi
run "$bin/finetune" --model "$model" --data "$data" --variant "${VARIANT:-internal}" --steps "${STEPS:-200}" \
  --output "$run_folder" "${how[@]}" "${common_flags[@]}"
stage "fold"
rm -rf "$run_folder-folded"
run "$bin/fold" --model "$run_folder" --output "$run_folder-folded" "${common_flags[@]}"
stage "done: make infer MODEL=$run_folder-folded"
