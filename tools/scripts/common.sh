# What the scripts behind the make targets share; sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=${TAPER_BIN:-$PWD/build/bin}

# A stage's headline, then the command it runs.
stage() { printf '\n== %s\n' "$*" >&2; }
run() {
  printf '   %s\n' "$(basename "$1") ${*:2}" >&2
  "$@"
}

# Whether a variable's value is a right one, before any work.
want() { # name value pattern what
  if [[ ! $2 =~ ^($3)$ ]]; then
    echo "$1: got '$2', want $4" >&2
    exit 2
  fi
}
want SIZE "${SIZE:-1M}" '1M|3M|9M|30M|17\.7M' '1M, 3M, 9M, 30M or 17.7M'
want DEVICE "${DEVICE:-auto}" 'auto|cpu|cuda' 'auto, cpu or cuda'
want THREADS "${THREADS:-1}" '[1-9][0-9]{0,3}' 'a whole number above 0'
want STEPS "${STEPS:-1}" '[1-9][0-9]{0,8}' 'a whole number above 0'

# The flags of the Makefile's variables that all programs take.
common_flags=()
if [ -n "${DEVICE:-}" ]; then common_flags+=(--device "$DEVICE"); fi
if [ -n "${THREADS:-}" ]; then common_flags+=(--threads "$THREADS"); fi

size=${SIZE:-1M}

# A training program into a run's folder: goes on with what an interrupted run left there. A finished run stays; one of
# other data or settings is refused by the program, so that like is compared with like.
train_into() { # folder command...
  local code=0 how=()
  if compgen -G "$1/step-*/training.json" >/dev/null; then
    how=(--resume)
  elif [ -d "$1" ]; then
    how=(--overwrite)
  fi
  # Its result is read from the run's summary.json.
  run "${@:2}" --output "$1" "${how[@]}" "${common_flags[@]}" >/dev/null || code=$?
  if [ $code = 2 ] && [ "${how[*]}" = --resume ]; then
    printf 'if the run that is there is not wanted any more: rm -r %q\n' "$1" >&2
  fi
  if [ $code != 0 ]; then exit $code; fi
}

# Sets `data` to a prepared folder: DATA itself where it is one, else the tokens of DATA's texts or of made-up stories,
# prepared once and found again; by a tokenizer of their own, or by the one given.
prepare_data() { # [tokenizer]
  local source=${DATA:-} tokenizer=${1:-}
  if [ -n "$source" ] && [ -e "$source/tokenizer.json" ]; then
    data=$source
    return
  fi
  local name=stories
  if [ -n "$source" ]; then
    if [ ! -e "$source" ]; then
      echo "DATA: no such file or folder: $(realpath -m "$source")" >&2
      exit 2
    fi
    # Two sources of one name must not share a folder, nor an older state of the source its newer one.
    name=$(basename "$source")-$( (realpath "$source"; find -L "$source" -type f -printf '%p %s %T@\n' | sort) | cksum | cut -d' ' -f1)
  fi
  if [ -n "$tokenizer" ]; then
    name+=-$( { cat "$tokenizer"/{tokenizer,vocab}.json 2>/dev/null || true; } | cksum | cut -d' ' -f1)
  fi
  data=runs/data/$name
  if [ -e "$data/complete" ]; then
    stage "data: $data, prepared before"
    return
  fi
  rm -rf "$data" "$data.tokenizer"
  mkdir -p "$(dirname "$data")"
  if [ -z "$source" ]; then
    source=runs/data/stories.txt
    stage "data: stories made up here (DATA=FILE_OR_FOLDER takes texts of yours)"
    run "$bin/stories" --megabytes "${MEGABYTES:-20}" --output "$source"
  fi
  if [ -z "$tokenizer" ]; then
    stage "tokenizer: learning the vocabulary of $source"
    tokenizer=$data.tokenizer
    run "$bin/tokenizer" train --input "$source" --vocab-size "${VOCABULARY:-4096}" --output "$tokenizer"
  fi
  stage "data: texts to tokens"
  run "$bin/prepare" --tokenizer "$tokenizer" --input "$source" --valid-fraction 0.05 --output "$data"
  touch "$data/complete"
}

# One number or text of a JSON document on stdin.
json_value() { # key
  sed -nE "s/.*\"$1\": *\"?([^,\"}]+).*/\1/p" | head -n 1
}
