# SPDX-License-Identifier: Apache-2.0
#
# For the scripts of ./run: what it says, and steps that are done once. Sourced by bash, in the
# root of the tree.

STATE=.state
mkdir -p "$STATE/log" "$STATE/done"

say() { printf '==> %s\n' "$*"; }

die() {
  printf '==> error: %s\n' "$*" >&2
  exit 1
}

# long_step NAME COMMAND...: runs it with its output in a log, says now and then that it is still at
# work, and shows the log's end if it fails.
long_step() {
  local name="$1" log="$STATE/log/$1.log" start=$SECONDS status=0
  shift
  "$@" >"$log" 2>&1 </dev/null &
  local pid=$! said=$SECONDS
  trap 'kill "$pid" 2>/dev/null' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - said >= 20)); then
      said=$SECONDS
      say "  $name: $((SECONDS - start)) s so far: $(tail -n 1 "$log" | cut -c1-100)"
    fi
  done
  wait "$pid" || status=$?
  trap - INT TERM
  if ((status != 0)); then
    tail -n 40 "$log" >&2
    die "$name failed (exit code $status); all of it is in $log"
  fi
  ((SECONDS - start < 5)) || say "  $name: done in $((SECONDS - start)) s"
}

# Steps that are done once for the same inputs. `key` is a digest of them.
is_done() { [ "$(cat "$STATE/done/$1" 2>/dev/null)" = "$2" ]; }
mark_done() { printf '%s\n' "$2" >"$STATE/done/$1"; }
digest() { sha256sum | cut -c1-32; }
