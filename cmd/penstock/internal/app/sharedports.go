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
	files := map[string]relay.Network{"udp": relay.UDP, "udp6": relay.UDP}
	// A read of /proc/net/tcp walks over the kernel's table of all connections, which takes 10 ms where it is empty.
	list, err := listeningTCP()
	for _, at := range list {
		bound[relay.TCP][at] = true
	}
	if err != nil {
		files["tcp"], files["tcp6"] = relay.TCP, relay.TCP
	}
	for path, network := range files {
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
		var f [3][]byte // number, local address, peer
		n := 0
		for field := range bytes.FieldsSeq(lines.Bytes()) {
			f[n] = field
			if n++; n == len(f) {
				break
			}
		}
		local, ok := procAddrPort(f[1])
		if peer, known := procAddrPort(f[2]); ok && known && peer.Port() == 0 { // not connected; of TCP it listens
			bound[local] = true
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
