package host

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

// Ports are the addresses of TCP and UDP that somebody has on this host.
type Ports map[relay.Network]map[netip.AddrPort]bool

// PortsInUse returns the addresses that anybody can connect or send to.
func PortsInUse() Ports {
	bound := Ports{relay.TCP: {}, relay.UDP: {}}
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
