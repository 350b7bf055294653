#!/usr/bin/env bash
# Formatting, the house rules, and clang-tidy on the files that differ from the last commit, or on all with TIDY=all.
set -euo pipefail
cd "$(dirname "$0")/../.."
failed=0

echo "lint: formatting" >&2
git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -n -Werror || failed=1

echo "lint: house rules" >&2
tools/scripts/house_rules.sh || failed=1

tools/scripts/check_reported_faults.sh || failed=1

if [ "${TIDY:-changed}" = all ]; then
  files=$(git ls-files '*.cpp')
else
  files=$(git diff --name-only --diff-filter=d HEAD -- '*.cpp'; git ls-files --others --exclude-standard '*.cpp')
fi
if [ -n "$files" ]; then
  echo "lint: clang-tidy" >&2
  # clang knows neither g++'s switches nor, without its runtime's headers, OpenMP.
  flags=$(sed -E 's/-Wno-(restrict|stringop-overflow)//g; s/-fopenmp//g' <<<"${LINT_FLAGS:--std=c++20 -I.}")
  xargs -P "$(nproc)" -n 1 sh -c \
    'case $1 in
       engine/kernels/cpu/*) own="-DTAPER_ISA=base -DEigen=Eigen_base" ;;
       tests/emulation/*) own="-DTAPER_GPU_BACKEND=\"tests/emulation/gpu_backend.h\"" ;;
     esac
     clang-tidy --quiet "$1" -- '"$flags"' -Wno-unknown-pragmas $own 2>/dev/null' tidy <<<"$files" || failed=1
fi
exit $failed
