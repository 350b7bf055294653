#!/usr/bin/env bash
# make report: one page about all runs.
. "$(dirname "$0")/common.sh"

mapfile -t runs < <(find runs -name metrics.jsonl -printf '%h\n' 2>/dev/null | sort)
if [ ${#runs[@]} -eq 0 ]; then
  echo "no runs yet: make train makes some" >&2
  exit 2
fi
run "$bin/report" "${runs[@]}" --output runs/report.html
