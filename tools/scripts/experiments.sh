#!/usr/bin/env bash
# make experiments: each experiment's table, within BUDGET minutes each.
. "$(dirname "$0")/common.sh"

prepare_data
for experiment in tinystories-table taper-sweep logit-chasing norm-free-from-start gpt2-table; do
  stage "$experiment"
  run "$bin/$experiment" --data "$data" --budget "${BUDGET:-10}" --output "runs/$experiment" "${common_flags[@]}"
done
