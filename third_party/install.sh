#!/usr/bin/env bash
# Finds the dependencies listed in dependencies.txt and installs those that are missing through the distribution's package
# manager. `install.sh build FILE` also writes what the Makefile needs to know to FILE; `install.sh report` and
# `install.sh lint` are for those targets. CXX names the compiler that must find the headers.
set -euo pipefail

purpose=${1:?usage: install.sh build FILE | report | lint}
makefile=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
read -ra compiler <<<"${CXX:-g++}"
compiler_name=$(basename "${compiler[-1]}")

say() { printf '%s\n' "$*" >&2; }

# Every row as the fields the callers below read, without comments and padding.
rows() { sed -e '/^#/d' -e '/^[[:space:]]*$/d' -e 's/[[:space:]]*|[[:space:]]*/|/g' "$here/dependencies.txt"; }

is_needed() { # need
  case $1 in
    always | wanted | found) [ "$purpose" = build ] ;;
    clang) [ "$purpose" = build ] && [[ $compiler_name == *clang* ]] ;;
    *) [ "$purpose" = "$1" ] ;;
  esac
}

# Folders besides the compiler's own in which headers are looked for.
include_folders() { # header
  local prefix
  for prefix in "" "${TAPER_PREFIX:-}" /usr /usr/local /opt/homebrew /opt/local "${CUDA_HOME:-/usr/local/cuda}"; do
    if [ -z "$prefix" ]; then continue; fi
    if [ -e "$prefix/include/$1" ]; then echo "$prefix/include"; fi
    if [ "${1%%/*}" = Eigen ] && [ -e "$prefix/include/eigen3/$1" ]; then echo "$prefix/include/eigen3"; fi
  done
}

# Sets found_file and found_flags; false where the header is absent or too old.
find_header() { # header check
  local source="#include <$1>"$'\n'"#if !($2)"$'\n'"#error too old"$'\n#endif\n' folder text
  for folder in "" $(include_folders "$1"); do
    found_flags=${folder:+-isystem $folder}
    if text=$("${compiler[@]}" -std=c++20 $found_flags -E -x c++ - <<<"$source" 2>/dev/null); then
      found_file=$(grep -m1 -oE "\"[^\"]*/$1\"" <<<"$text" | tr -d '"')
      return 0
    fi
  done
  return 1
}

find_program() { # program
  found_flags=
  if [ "$1" = g++ ]; then
    found_file=$(command -v "${compiler[-1]}")
  elif [ "$1" = nvcc ]; then
    found_file=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2>/dev/null)
  else
    found_file=$(command -v "$1")
  fi
}

find_row() { # find check
  case $1 in
    header\ *) find_header "${1#header }" "$2" ;;
    program\ *) find_program "${1#program }" ;;
  esac
}

links() { # flags...
  local binary status=0
  binary=$(mktemp)
  "${compiler[@]}" -x c++ - "$@" -o "$binary" <<<'int main() {}' 2>/dev/null || status=1
  rm -f "$binary"
  return $status
}

# Which column of the table is this system's, and how its packages are installed.
choose_manager() {
  column=
  if command -v apt-get >/dev/null; then
    column=debian
    install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
  elif command -v dnf >/dev/null; then
    column=fedora
    install=(dnf install -y)
  elif command -v pacman >/dev/null; then
    column=arch
    install=(pacman -S --noconfirm --needed)
  elif command -v brew >/dev/null; then
    column=brew
    install=(brew install)
  fi
}

as_root=()
may_install() {
  if [ "$column" = brew ] || [ "$(id -u)" = 0 ]; then return 0; fi
  as_root=(sudo -n)
  sudo -n true 2>/dev/null
}

install_packages() { # packages...
  local attempt log
  log=$(mktemp)
  for attempt in 1 2 3; do
    # Lists that are empty, as in a fresh container, or out of date name no package that can be fetched.
    if [ "$column" = debian ] && { [ $attempt -gt 1 ] || ! ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1; }; then
      "${as_root[@]}" apt-get update >"$log" 2>&1 || true
    fi
    if "${as_root[@]}" "${install[@]}" "$@" >"$log" 2>&1 </dev/null; then
      rm -f "$log"
      return 0
    fi
    sleep $((attempt * 2))
  done
  tail -n 5 "$log" >&2
  rm -f "$log"
  return 1
}

package_of() { # debian fedora arch brew
  case $column in
    debian) echo "$1" ;;
    fedora) echo "$2" ;;
    arch) echo "$3" ;;
    brew) echo "$4" ;;
    *) echo - ;;
  esac
}

# Looks for every row and collects the names and packages of the missing ones.
search() {
  missing=() missing_packages=() absent=()
  flags=() libraries=() files=()
  has_onednn=0 has_cudnn=0
  local name need minimum find check link debian fedora arch brew package
  while IFS='|' read -r name need minimum find check link debian fedora arch brew; do
    is_needed "$need" || continue
    if find_row "$find" "$check"; then
      record "$name" "$link"
      continue
    fi
    absent+=("$name")
    package=$(package_of "$debian" "$fedora" "$arch" "$brew")
    if [ "$name" = g++ ] && [[ $compiler_name == clang* ]]; then package=clang; fi
    if [ "$need" = found ]; then continue; fi
    if [ "$need" = wanted ] || [ "$need" = clang ]; then missing+=("$name (optional)"); else missing+=("$name >= $minimum"); fi
    if [ "$package" != - ]; then missing_packages+=("$package"); fi
  done < <(rows)
}

# CUDA and cuDNN keep their own flags, for the builds that use them.
record() { # name link
  if [ "$1" = CUDA ]; then return; fi
  if [ "$1" = cuDNN ]; then
    has_cudnn=1
    return
  fi
  if [ "$1" = oneDNN ]; then
    if ! links $found_flags -ldnnl; then return; fi
    has_onednn=1
    files+=("$found_file")
    return
  fi
  files+=("$found_file")
  if [ -n "$found_flags" ] && [[ " ${flags[*]:-} " != *" $found_flags "* ]]; then flags+=("$found_flags"); fi
  if [ -z "$2" ]; then return; fi
  local folder=${found_flags#-isystem } search=
  if [ -n "$found_flags" ]; then search="-L${folder%/include*}/lib"; fi
  if [ "${2%\?}" = "$2" ] || links $search "-l${2%\?}"; then libraries+=($search "-l${2%\?}"); fi
}

write_makefile() {
  local openmp=
  if links -fopenmp; then openmp=-fopenmp; fi
  mkdir -p "$(dirname "$makefile")"
  {
    echo "# Written by third_party/install.sh for $compiler_name; removed and written anew when one of the files is gone."
    echo "dependency_files := ${files[*]}"
    echo "system_flags := ${flags[*]:-}"
    echo "system_libraries := ${libraries[*]:-}"
    echo "found_openmp := $openmp"
    echo "found_onednn := $has_onednn"
    echo "found_cudnn := $has_cudnn"
  } >"$makefile.new"
  mv "$makefile.new" "$makefile"
}

print_table() {
  local name rest state
  while IFS='|' read -r name need rest; do
    is_needed "$need" || continue
    state=found
    if [[ " ${absent[*]:-} " == *" $name "* ]]; then state=absent; fi
    printf '  %-14s %s\n' "$name" "$state" >&2
  done < <(rows)
}

choose_manager
search
if [ ${#missing[@]} -gt 0 ]; then
  say "missing: $(printf '%s, ' "${missing[@]}" | sed 's/, $//')"
  if [ ${#missing_packages[@]} -gt 0 ]; then
    command_line="${install[*]/#env/} ${missing_packages[*]}"
    command_line=${command_line# DEBIAN_FRONTEND=noninteractive }
    if may_install; then
      say "installing: ${missing_packages[*]}"
      # One package this release does not have must not keep the others away.
      install_packages "${missing_packages[@]}" || for package in "${missing_packages[@]}"; do
        install_packages "$package" || say "installing $package failed; by hand: sudo ${command_line% ${missing_packages[0]}*} $package"
      done
      search
    else
      say "no right to install packages here; by hand: sudo $command_line"
    fi
  elif [ -z "$column" ]; then
    say "no package manager known here (apt, dnf, pacman, brew): install them by hand"
  fi
fi
print_table
for name in "${missing[@]:-}"; do
  if [ -n "$name" ] && [[ $name != *"(optional)" ]]; then
    say "cannot go on without: $name"
    exit 1
  fi
done
if [ -n "$makefile" ]; then write_makefile; fi
