#!/usr/bin/env bash
# make mutate: plants the bugs of tests/emulation/mutations.txt into copies of the CUDA kernels, one at a time, and runs the
# tests of the emulated device with each. A bug that no test sees is printed and makes this fail. ONLY, a part of a line of
# the list, picks some. The compiler's call, the objects and the libraries of the tests come from the Makefile.
set -uo pipefail
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
seen=0 survived=0

# What the device said of the bug, else the first check that failed.
first_sign() {
  local said='(a race|reads what|reaches memory|never reach|other bits|entries of|wait for each other|written beyond).*'
  { grep -m 1 -oE "$said" "$scratch/log" || grep -m 1 -oE 'ERROR: .*' "$scratch/log"; } | cut -c1-100
}

# Seconds of the processor, not of the clock: on a busy machine a test that is only slow must not count as one that fails.
run_tests() { # filter
  (ulimit -t 300 && exec "$scratch/tests" --test-case="$1" --abort-after=1) >"$scratch/log" 2>&1
}

link_tests() { # objects
  eval "$LINK" "$1" $LIBRARIES -o "$scratch/tests"
}

# A test that fails without a bug sees none.
declare -A passes
require_passing() { # filter
  if [ -n "${passes[$1]:-}" ]; then return; fi
  link_tests "$TEST_OBJECTS" || exit 1
  if ! run_tests "$1"; then
    if grep -q 'no test case matches' "$scratch/log"; then
      echo "no test case is called $1"
    else
      echo "fails without a bug: $1: $(first_sign)"
    fi
    exit 1
  fi
  passes[$1]=yes
}

try() { # file filter edit
  local file=$1 filter=$2 edit=$3 object sign status=0
  sed -E "$edit" "$file" >"$scratch/kernel.cu"
  if cmp -s "$file" "$scratch/kernel.cu"; then
    echo "matches nothing: $file: $edit"
    return 1
  fi
  if ! eval "$EMULATE" -O1 -w -c "$scratch/kernel.cu" -o "$scratch/kernel.o" 2>"$scratch/log"; then
    grep -m 1 error "$scratch/log"
    echo "does not compile: $file: $edit"
    return 1
  fi
  object=$OBJECTS/${file%.cu}.emulated.o
  link_tests "${TEST_OBJECTS//$object/$scratch/kernel.o}" || return 1
  run_tests "$filter" || status=$?
  if [ $status = 0 ]; then
    echo "survived: $file: $edit"
    return 1
  fi
  if ((status > 128)); then sign="ended by $(kill -l $((status - 128)))"; else sign=$(first_sign); fi
  printf 'seen: %s: %s\n      %s\n' "$(basename "$file")" "$edit" "$sign"
}

while IFS='|' read -r file filter edit; do
  case $file in '' | '#'*) continue ;; esac
  file=$(echo $file) filter=$(echo "$filter" | sed 's/^ *//; s/ *$//') edit=$(echo "$edit" | sed 's/^ *//')
  if [[ -n ${ONLY:-} && "$file $edit" != *"$ONLY"* ]]; then continue; fi
  require_passing "$filter"
  if try "$file" "$filter" "$edit"; then seen=$((seen + 1)); else survived=$((survived + 1)); fi
done <tests/emulation/mutations.txt
echo "$seen planted bugs seen, $survived not"
[ $survived -eq 0 ]
