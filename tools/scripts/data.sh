#!/bin/sh
# Fetches the TinyStories text (Eldan and Li, 2023; licence CDLA-Sharing-1.0) into data/corpus/. A download that was cut
# off goes on where it stopped; a file appears under its name only when it is complete.
#
#   tools/scripts/data.sh                    the training text (2.2 GB) and the validation text (23 MB)
#   TAPER_CORPUS=DIR tools/scripts/data.sh   into another folder
set -eu

source_url=${TAPER_DATA_URL:-https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main}
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${TAPER_CORPUS:-$root/data/corpus}

say() { printf '%s\n' "$*" >&2; }

explain() {
  say "data: $1"
  say "What to do instead, one of:"
  say "  - on a machine with network, fetch TinyStoriesV2-GPT4-train.txt and TinyStoriesV2-GPT4-valid.txt from"
  say "    $source_url"
  say "    and put them into $folder"
  say "  - train on text of your own: make train DATA=FILE_OR_FOLDER"
  say "  - train on generated stories, which need no download: make train"
  exit 1
}

if command -v curl >/dev/null 2>&1; then
  remote_size() { curl -fsSLI --connect-timeout 20 "$1" | tr -d '\r' | awk 'tolower($1) == "content-length:" { size = $2 } END { print size }'; }
  fetch() { curl -fL --connect-timeout 20 --retry 3 -C - -o "$2" "$1"; }
elif command -v wget >/dev/null 2>&1; then
  remote_size() { wget -q --spider -S -T 20 -t 2 "$1" 2>&1 | tr -d '\r' | awk 'tolower($1) == "content-length:" { size = $2 } END { print size }'; }
  fetch() { wget -c -T 20 -t 3 -O "$2" "$1"; }
else
  explain "neither curl nor wget is installed"
fi

bytes_of() { if [ -f "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

get() {
  name=$1
  file=$folder/$name
  if [ -f "$file" ]; then
    say "data: $file is there already ($(bytes_of "$file") bytes)"
    return
  fi
  want=$(remote_size "$source_url/$name" 2>/dev/null) || want=
  case $want in '' | *[!0-9]*) explain "$source_url/$name cannot be reached" ;; esac
  partial=$file.part
  if [ "$(bytes_of "$partial")" -gt "$want" ]; then rm -f "$partial"; fi
  if [ "$(bytes_of "$partial")" -lt "$want" ]; then
    room=$(df -Pk "$folder" | awk 'NR == 2 { print $4 }')
    need=$(((want - $(bytes_of "$partial")) / 1024 + 1))
    [ "$room" -gt "$need" ] || explain "$folder has $room KiB free, $name needs $need"
    say "data: fetching $name, $want bytes"
    fetch "$source_url/$name" "$partial" || explain "the download of $name was cut off; run this again to go on"
  fi
  have=$(bytes_of "$partial")
  [ "$have" -eq "$want" ] || explain "$name has the wrong size; got $have bytes, want $want (run this again to go on)"
  mv "$partial" "$file"
  say "data: $file is complete"
}

if [ -n "${MODEL:-}" ]; then
  say "data: models are not fetched; got MODEL=$MODEL. Put its folder in place and name it: make infer MODEL=FOLDER"
  exit 2
fi
if [ -n "${DATA:-}" ]; then
  say "data: DATA=$DATA is used as it stands; there is nothing to fetch"
  exit 0
fi
mkdir -p "$folder"
get TinyStoriesV2-GPT4-valid.txt
get TinyStoriesV2-GPT4-train.txt
