#!/bin/sh
# After installation and upgrade, of .deb and .rpm. Nothing is enabled or started, and
# a running daemon goes on: a restart would end its flows.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	if systemctl is-active --quiet penstock.service; then
		echo "penstock.service still runs the previous version. To change to this one: systemctl restart penstock"
	fi
fi
