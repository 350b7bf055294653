#!/usr/bin/env bash
# make gpu-pack: all that gpu_check.sh and gpu_bench.sh need, in the folder gpu-pack, for a machine with a GPU and the CUDA
# libraries but without this repository: programs, scripts, and the reference data of the tests. At most 64 MiB.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=${TAPER_TESTS:-build/release-cuda/tests-on-gpu}
bin=${TAPER_BIN:-build/release-cuda/bin}
pack=gpu-pack
rm -rf $pack
mkdir -p $pack/bin $pack/tools/scripts $pack/shared
cp tools/scripts/gpu_check.sh tools/scripts/gpu_bench.sh $pack/tools/scripts/
strip -o $pack/tests-on-gpu "$tests"
for program in train-bench kernel-bench pretrain evaluate; do strip -o $pack/bin/$program "$bin/$program"; done
reference=${TAPER_SHARED:-../shared}
if [ -d "$reference/parity" ]; then cp -r "$reference/parity" $pack/shared/; fi
cat >$pack/run.sh <<'RUN'
#!/usr/bin/env bash
# Checks, then measurements; check.json and bench.json beside this file, or in the folder given.
cd "$(dirname "$0")"
export TAPER_TESTS=$PWD/tests-on-gpu TAPER_BIN=$PWD/bin TAPER_SHARED=$PWD/shared
results=${1:-.}
tools/scripts/gpu_check.sh >"$results/check.json"
tools/scripts/gpu_bench.sh >"$results/bench.json"
cat "$results/check.json" "$results/bench.json"
RUN
chmod +x $pack/run.sh
size=$(du -sm $pack | cut -f1)
echo "gpu-pack: $size MiB in $PWD/$pack; there: ./run.sh" >&2
if [ "$size" -gt 64 ]; then
  echo "gpu-pack: too large; got $size MiB, want at most 64" >&2
  exit 1
fi
