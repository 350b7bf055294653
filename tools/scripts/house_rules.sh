#!/usr/bin/env bash
# The rules a script can check: who may include whom, where foreign headers belong, how long files are, what no file
# holds. Prints each breach as FILE:LINE: text and fails if there is one. OBJECTS names a folder of compiled kernels whose
# symbols are looked at too.
set -euo pipefail
cd "$(dirname "$0")/../.."
breaches=0
breach() {
  printf '%s\n' "$*"
  breaches=$((breaches + 1))
}

longest_file=450
mapfile -t code < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh')
mapfile -t texts < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' '*.mk' '*.sh' '*.md' '*.py' Makefile)

# The folders each folder's files may include from.
allowed() {
  case $1 in
    engine/core) echo "engine/core" ;;
    engine/io) echo "engine/core engine/io" ;;
    engine/kernels) echo "engine/core engine/kernels" ;;
    engine/autograd) echo "engine/core engine/kernels engine/autograd" ;;
    engine/ops) echo "engine/core engine/kernels engine/autograd engine/ops" ;;
    engine/optim) echo "engine/core engine/kernels engine/autograd engine/ops engine/optim" ;;
    model) echo "engine model" ;;
    data) echo "engine data" ;;
    train) echo "engine model data train" ;;
    infer) echo "engine model data infer" ;;
    tools) echo "engine model data train infer tools" ;;
    tests) echo "engine model data train infer tools tests" ;;
  esac
}

layer_of() { # path
  case $1 in
    engine/*/*) cut -d/ -f1-2 <<<"$1" ;;
    *) cut -d/ -f1 <<<"$1" ;;
  esac
}

check_includes() {
  local file line included layer target folder ok
  while IFS=: read -r file line included; do
    layer=$(layer_of "$file")
    target=$(layer_of "$included")
    ok=
    for folder in $(allowed "$layer"); do
      if [ "$target" = "$folder" ] || [ "${target%%/*}" = "$folder" ]; then ok=yes; fi
    done
    if [ ! -f "$included" ]; then breach "$file:$line: includes \"$included\", which is not a path from the root"; continue; fi
    if [ -z "$ok" ]; then breach "$file:$line: $layer may not include from $target"; fi
  done < <(grep -HnoE '^#include "[^"]+"' "${code[@]}" | sed -E 's/#include "([^"]+)"/\1/')
}

# A header of others: `where` may include it, all other files may not.
check_foreign() { # what pattern where
  local hit
  while IFS= read -r hit; do
    if ! [[ ${hit%%:*} =~ ^($3) ]]; then breach "$hit: $1 belongs in $3"; fi
  done < <(grep -HnE "^#include <($2)" "${code[@]}" || true)
}

check_texts() {
  local hit file
  while IFS= read -r hit; do
    breach "$hit: finish it or leave it out"
  done < <(grep -HnwE 'TO''DO|FIX''ME|X''XX|HA''CK' "${texts[@]}" || true)
  while IFS= read -r hit; do
    breach "$hit: code in a comment"
  done < <(grep -HnE '^\s*//.*(;|\{|\})\s*$' "${code[@]}" | grep -E '//\s*(if|for|while|return|auto|int|float|const|std::|[a-z_]+\()[^.]*;\s*$' | grep -v '^tools/common/cli.h' || true)
  for file in "${code[@]}"; do
    local lines
    lines=$(wc -l <"$file")
    if [ "$lines" -gt $longest_file ]; then breach "$file: $lines lines; want at most $longest_file"; fi
    if [[ $file == *.h ]] && ! grep -q '^#pragma once' "$file"; then breach "$file: no #pragma once"; fi
  done
}

# A symbol that a kernel object exports and the rest of the program might link to must be its instruction set's own.
check_kernel_symbols() {
  local folder isa name
  for isa in base avx2 avx512 avx512bf16 amx; do
    folder=$OBJECTS/engine/kernels/cpu/$isa
    if [ ! -d "$folder" ]; then continue; fi
    while IFS= read -r name; do
      breach "$folder: exports $name, which other code could be linked to"
    done < <(find "$folder" -name '*.o' -print0 | xargs -0 nm --defined-only -g -P | awk 'NF > 2 {print $1}' |
      grep -vE "^_ZN[KS]*5taper3cpu${#isa}${isa}|^\.gomp_critical_user_" | sort -u)
  done
}

check_includes
check_foreign CUDA 'cuda|cublas|cudnn|cooperative_groups|mma\.h|nv' 'engine/core/cuda_runtime|engine/kernels/cuda/'
check_foreign 'Eigen or oneDNN' 'Eigen|dnnl|oneapi' 'engine/kernels/cpu/'
check_foreign doctest doctest 'tests/'
check_foreign CLI11 CLI 'tools/common/'
check_texts
if [ -n "${OBJECTS:-}" ]; then check_kernel_symbols; fi
if [ $breaches -gt 0 ]; then
  echo "house rules: $breaches breaches" >&2
  exit 1
fi
echo "house rules: kept in ${#code[@]} files" >&2
