#!/bin/sh
# After installation and upgrade, of .deb and .rpm. Nothing is enabled or started. A running daemon with a keeper is
# upgraded in place, with all its flows; without one it goes on, because a restart would end them. Nothing that fails
# here makes the package fail.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	if systemctl is-active --quiet penstock.service; then
		if [ "${PENSTOCK_UPGRADE:-yes}" = no ]; then
			echo "penstock.service still runs the previous version. To change to this one: penstock upgrade"
		elif ! status=$(penstock status --json 2>/dev/null); then
			echo "penstock.service still runs the previous version, and does not answer at the default admin socket. To change to this one: penstock upgrade --admin URL, if it has a keeper; or systemctl restart penstock, which ends its flows"
		elif ! echo "$status" | grep -q '"worker_pid"'; then
			echo "penstock.service still runs the previous version. To change to this one: systemctl restart penstock, which ends its flows"
		elif timeout 180 penstock upgrade; then
			echo "penstock.service runs this version; its flows continue."
		else
			echo "penstock.service could not be upgraded in place and still runs the previous version. To try again: penstock upgrade"
		fi
	fi
fi
