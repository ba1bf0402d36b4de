#!/bin/sh
# The whole test sequence, after set-up; called by scripts/bootstrap.sh, which puts the right node first on PATH.
# Arguments go to vitest: `npm test -- --project unit`.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/node_modules/.bin:$PATH
export PATH

say() { printf '==> %s\n' "$*"; }

say "Checking style, types and import rules"
npm run --silent check

for crate in agent host; do
  say "Testing the Rust crate $crate"
  (cd "$crate" && cargo test --locked --quiet)
done

say "Testing the service"
exec vitest run "$@"
