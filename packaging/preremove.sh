#!/bin/sh
# Before removal. dpkg says remove or upgrade, rpm the number of versions that stay.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now penstock.service || true
	fi
	;;
esac
