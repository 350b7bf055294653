#!/usr/bin/env bash
# make report: one page about all experiments, runs and benchmarks under runs/.
. "$(dirname "$0")/common.sh"

# The main table first.
mapfile -t experiments < <(find runs -name experiment.json -printf '%h\n' 2>/dev/null | sort |
  awk '{ print /tinystories-table$/ ? 0 : /logit-chasing$/ ? 1 : /gpt2-table$/ ? 3 : 2, $0 }' | sort -s -k 1,1 | cut -d ' ' -f 2-)
mapfile -t benchmarks < <(find runs/experiments -maxdepth 1 -name '*.json' 2>/dev/null | sort)
# Runs that belong to an experiment are told of there.
mapfile -t runs < <(find runs -name metrics.jsonl -printf '%h\n' 2>/dev/null | sort | while read -r folder; do
  if [ ! -e "$(dirname "$folder")/experiment.json" ]; then echo "$folder"; fi
done)
all=("${experiments[@]}" "${benchmarks[@]}" "${runs[@]}")
if [ ${#all[@]} -eq 0 ]; then
  echo "no runs yet: make train or make experiments makes some" >&2
  exit 2
fi
run "$bin/report" "${all[@]}" --output runs/report.html
