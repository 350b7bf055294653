#!/usr/bin/env bash
# Runs every fuzz target for TIME seconds, or RUNS executions where that is set, and prints for each what it did. Inputs
# worth keeping stay in build/fuzz/corpus/TARGET, so that the next call goes on from there; an input that fails is left
# in build/fuzz/findings, and the script fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
fuzz=build/fuzz
mkdir -p $fuzz/findings $fuzz/logs
$fuzz/make_seeds $fuzz/seeds
limit=${RUNS:+-runs=$RUNS}
failed=0 all=0
printf '%-14s %12s %9s %9s %8s\n' target executions coverage features seconds
for target in $TARGETS; do
  mkdir -p "$fuzz/corpus/$target"
  begin=$SECONDS
  # Messages go to the log with libFuzzer's own: stdout alone is closed.
  TAPER_THREADS=1 ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=8 \
    "$fuzz/$target" ${limit:--max_total_time=${TIME:-60}} -max_len=2048 -dict=tests/fuzz/numbers.dict -entropic=0 \
    -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=512 -close_fd_mask=1 -print_final_stats=1 \
    -artifact_prefix="$fuzz/findings/$target-" "$fuzz/corpus/$target" "$fuzz/seeds/$target" \
    >/dev/null 2>"$fuzz/logs/$target" || { failed=1; echo "$target: failed; see $fuzz/logs/$target and $fuzz/findings" >&2; }
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$fuzz/logs/$target")
  read -r coverage features < <(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 \2/p' "$fuzz/logs/$target" | tail -n 1) || true
  printf '%-14s %12s %9s %9s %8s\n' "$target" "${runs:-0}" "${coverage:-0}" "${features:-0}" $((SECONDS - begin))
  all=$((all + ${runs:-0}))
done
printf '%-14s %12s\n' all "$all"
exit $failed
