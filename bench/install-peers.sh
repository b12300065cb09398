#!/bin/sh
# Installs, from Debian's or Ubuntu's packages, the relays that bench/relay
# compares with penstock and the clients that bench drives through it. It needs root.
# Distributions start haproxy, nginx and redis when they are installed; nothing here needs
# these services, so this script keeps them from starting.
set -eu

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	trap 'rm -f "$policy"' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --no-install-recommends -y \
	haproxy nginx libnginx-mod-stream \
	redis-server redis-tools wrk iperf3 nsd dnsperf postgresql postgresql-contrib
