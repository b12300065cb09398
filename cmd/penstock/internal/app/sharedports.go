package app

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"os"
	"strconv"

	"github.com/penstock/penstock/relay"
)

// Another process of the same user may have a port, too (SO_REUSEPORT). The kernel spreads new clients over both, and those
// of UDP by a hash and the number of sockets: when one more process binds the port, sessions move to it that the other one
// has. A restart begins like that, and so does a daemon that somebody starts twice by mistake.

// boundPorts are the addresses of TCP and UDP that somebody has on this host.
type boundPorts map[relay.Network]map[netip.AddrPort]bool

// sharedPorts warns of ports that others had bound before.
func (d *daemon) sharedPorts(bound map[bindKey]*boundListener, before boundPorts) {
	for b, p := range bound {
		a := p.Addr()
		if b.inherit != "" || a.AddrPort.Addr().IsMulticast() || !before[a.Network][a.AddrPort] {
			continue
		}
		what := "the kernel spreads new clients over both"
		if a.Network == relay.UDP {
			what = "the kernel spreads clients anew over both, so that sessions of the other one move here"
		}
		d.log.Warn("another process has the port, too: "+what+". Drain that one, or stop this one", "listener", a.String())
	}
}

// portsInUse returns the addresses that anybody can connect or send to.
func portsInUse() boundPorts {
	bound := boundPorts{relay.TCP: {}, relay.UDP: {}}
	for path, network := range map[string]relay.Network{"udp": relay.UDP, "udp6": relay.UDP, "tcp": relay.TCP, "tcp6": relay.TCP} {
		if f, err := os.Open("/proc/net/" + path); err == nil {
			readBound(f, network, bound[network])
			f.Close()
		}
	}
	return bound
}

// The states of TCP sockets that come before all others in /proc/net/tcp: tcp_seq_start in the kernel's net/ipv4/tcp_ipv4.c
// begins with those that listen, and before Linux 4.4 each was followed by its requests.
const (
	tcpSynRecv = "03"
	tcpListen  = "0A"
)

// readBound adds what a file of /proc/net has to bound. proc_pid_net(5). Of TCP it reads no further than to the first socket that
// does not listen: a busy host has 100,000 of these.
func readBound(from io.Reader, network relay.Network, bound map[netip.AddrPort]bool) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var f [4][]byte // number, local address, peer, state
		n := 0
		for field := range bytes.FieldsSeq(lines.Bytes()) {
			if f[n] = field; n == len(f)-1 {
				break
			}
			n++
		}
		peer, known := procAddrPort(f[2])
		switch local, ok := procAddrPort(f[1]); {
		case !ok || !known:
		case peer.Port() == 0: // not connected; of TCP it listens
			bound[local] = true
		case network == relay.TCP && string(f[3]) != tcpSynRecv && string(f[3]) != tcpListen:
			return
		}
	}
}

// procAddrPort parses an address of /proc/net: each 32 bits of it are a number in this host's byte order.
func procAddrPort(text []byte) (ap netip.AddrPort, ok bool) {
	ip, port, _ := bytes.Cut(text, []byte{':'})
	n, err := strconv.ParseUint(string(port), 16, 16)
	if err != nil {
		return ap, false
	}
	var words [16]byte
	b := words[:0]
	for ; len(ip) >= 8 && len(b) < len(words); ip = ip[8:] {
		word, err := strconv.ParseUint(string(ip[:8]), 16, 32)
		if err != nil {
			return ap, false
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(word))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(n)), ok && len(ip) == 0
}
