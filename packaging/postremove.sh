#!/bin/sh
# After removal. dpkg says purge when the configuration goes too.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
	rm -rf /var/log/penstock /var/log/private/penstock /var/lib/penstock /var/lib/private/penstock
fi
