#!/usr/bin/env bash
# Every test that docs/reported_faults.md names exists. Prints those that do not and fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
table=docs/reported_faults.md
names=$(mktemp)
trap 'rm -f "$names"' EXIT
grep -rhoE 'TEST_CASE\("[^"]+"' tests | sed 's/TEST_CASE("//; s/"$//' | sort -u >"$names"
missing=0 checked=0
# The last table names no tests.
while IFS= read -r name; do
  checked=$((checked + 1))
  if ! grep -qxF -- "$name" "$names"; then
    echo "$table: no test case is called '$name'"
    missing=$((missing + 1))
  fi
done < <(sed '/^## Without a test case/,$d' "$table" | grep '^|' | grep -v '^|---' | awk -F'|' '{print $4}' | grep -oE '`[^`]+`' | tr -d '`')
echo "reported faults: $checked names of tests, $missing of them unknown" >&2
[ "$checked" -gt 0 ] && [ "$missing" -eq 0 ]
