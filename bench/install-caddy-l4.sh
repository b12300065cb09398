#!/bin/sh
# Builds Caddy with caddy-l4, which routes QUIC by name, from the Go module proxy, in a module of its own in the user's cache folder, and prints
# where it is: half a minute, some 300 MB of modules the first time. The trial quicpeers compares Penstock with it: make quic-rivals.
set -eu

version=v0.1.2
dir=${XDG_CACHE_HOME:-$HOME/.cache}/penstock-bench/caddy-l4-$version

if [ ! -x "$dir/caddy-l4" ]; then
	mkdir -p "$dir"
	cd "$dir"
	printf 'module caddytrial\n\ngo 1.25\n' >go.mod
	cat >main.go <<'EOF'
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	_ "github.com/mholt/caddy-l4"
)

func main() { caddycmd.Main() }
EOF
	{ GOWORK=off go get "github.com/mholt/caddy-l4@$version" && GOWORK=off go mod tidy && GOWORK=off go build -o caddy-l4 .; } >build.log 2>&1 ||
		{ cat build.log >&2; exit 1; }
fi
echo "$dir/caddy-l4"
