# SPDX-License-Identifier: Apache-2.0
#
# set_up PURPOSE: everything that stands between a fresh Debian 12 and the command. Sourced by ./run.

readonly MIN_FREE_GB=12 # torch and what it brings unpack to about 6, the rest are builds

set_up() {
  local purpose="$1"
  enough_space
  packages "$purpose"
  environment "$purpose"
  build
  development_install
}

enough_space() {
  [ -e "$STATE/done/environment" ] && return
  local free_kb
  free_kb=$(df -Pk . | awk 'NR == 2 {print $4}')
  ((free_kb >= MIN_FREE_GB * 1024 * 1024)) ||
    die "the first set-up needs $MIN_FREE_GB GB in $PWD, where $((free_kb / 1024 / 1024)) GB are free"
}

# Debian's names of the packages that the purpose needs.
package_names() {
  echo g++ cmake ninja-build ccache libexpected-dev libfmt-dev libspdlog-dev iproute2
  echo libgtest-dev libgmock-dev libbenchmark-dev
  case "$1" in
    test | dev) echo clang clang-format clang-tidy libclang-rt-dev ;;
    bench) echo openmpi-bin libopenmpi-dev mpich libmpich-dev ;;
  esac
}

packages() {
  local wanted missing=() name
  wanted=$(package_names "$1")
  if ! command -v apt-get >/dev/null || ! grep -qiE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release; then
    say "this is not Debian: these packages, or what they are called here, must be there:"
    say "  " $wanted python3-venv python3-dev "(Python 3.11 or newer)"
    return
  fi
  find_python >/dev/null || wanted+=" python3-venv python3-dev"
  for name in $wanted; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  say "installing Debian packages: ${missing[*]}"
  local root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "as root: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  long_step apt-update "${root[@]}" apt-get update
  long_step apt-install "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
}

# The first Python 3.11 or newer that can make environments and compile extensions.
find_python() {
  local name
  for name in python3 python3.11 python3.12 python3.13 python3.14; do
    if "$name" -c '
import sys, sysconfig, os, ensurepip, venv
assert sys.version_info >= (3, 11)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

environment() {
  local python key
  python=$(find_python) ||
    die "no Python 3.11 or newer with venv and Python.h (Debian: python3-venv python3-dev)"
  key=$({ "$python" -VV; cat tools/house/requirements.txt; } | digest)
  is_done environment "$key" && [ -x .venv/bin/python ] && return
  say "making .venv: $("$python" --version) ($python), torch and test tools; 5 GB, a few minutes"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  long_step pip .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off \
    -r tools/house/requirements.txt
  mark_done environment "$key"
}

build() {
  [ -f build/release/build.ninja ] || {
    say "configuring build/release"
    long_step configure cmake --preset release
  }
  if ninja -C build/release -n | grep -q 'no work to do'; then return; fi
  say "building build/release"
  long_step build ninja -C build/release
}

# The tree itself becomes the installed package, with the library of build/release.
development_install() {
  mkdir -p hfreduce/lib
  ln -sfn ../../build/release/csrc/libhfreduce.so hfreduce/lib/libhfreduce.so
  local key
  key=$(cat setup.py pyproject.toml | digest)
  if ! is_done development "$key"; then
    say "installing the tree into .venv, editable"
    long_step editable .venv/bin/python -m pip install \
      --disable-pip-version-check --no-build-isolation --no-deps --editable .
    mark_done development "$key"
  fi
  .venv/bin/python -m hfreduce.build
}
