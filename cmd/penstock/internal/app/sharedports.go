package app

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

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
			readBound(f, bound[network])
			f.Close()
		}
	}
	return bound
}

// readBound adds what a file of /proc/net has to bound. proc_pid_net(5).
func readBound(from io.Reader, bound map[netip.AddrPort]bool) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 3 {
			continue
		}
		local, ok := procAddrPort(f[1])
		if peer, known := procAddrPort(f[2]); ok && known && peer.Port() == 0 { // not connected; of TCP it listens
			bound[local] = true
		}
	}
}

// procAddrPort parses an address of /proc/net: each 32 bits of it are a number in this host's byte order.
func procAddrPort(text string) (ap netip.AddrPort, ok bool) {
	ip, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return ap, false
	}
	var b []byte
	for ; len(ip) >= 8; ip = ip[8:] {
		word, err := strconv.ParseUint(ip[:8], 16, 32)
		if err != nil {
			return ap, false
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(word))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(n)), ok && ip == ""
}
