#!/bin/sh
# Takes rounds of all benchmarks, each round with every implementation in turn,
# so that a noisy minute hits all alike. Usage: run.sh ROUNDS [go test flags]
set -e
cd "$(dirname "$0")/.."
rounds=$1
shift
bin=$(mktemp)
trap 'rm -f "$bin"' EXIT
go test -c -o "$bin" ./pool
for round in $(seq "$rounds"); do
	"$bin" -test.run '^$' -test.bench . "$@"
done
