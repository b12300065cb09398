//go:build linux

package world

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// errHeader is returned for bytes that are not a PROXY header of the version that is expected.
var errHeader = errors.New("not a PROXY header")

var signature = []byte("\r\n\r\n\x00\r\nQUIT\n")

// madeUpHeader returns a PROXY header that names a client of documentation addresses, and notes it.
func madeUpHeader(f *flow) []byte {
	client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(f.id)}), uint16(1024+f.id%60000))
	local := netip.MustParseAddrPort("198.51.100.7:443")
	f.header = client.String()
	if f.via.Sends == 1 {
		return fmt.Appendf(nil, "PROXY TCP4 %v %v %d %d\r\n", client.Addr(), local.Addr(), client.Port(), local.Port())
	}
	b := append(bytes.Clone(signature), 0x21, 0x11, 0, 12)
	b = append(append(b, client.Addr().AsSlice()...), local.Addr().AsSlice()...)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, client.Port()), local.Port())
}

// readHeader reads a header of the version and nothing behind it, and returns the client's address and
// the header's length.
func readHeader(r io.Reader, version int) (client string, size int64, err error) {
	if version == 1 {
		var line []byte
		for b := make([]byte, 1); !bytes.HasSuffix(line, []byte("\r\n")); line = append(line, b[0]) {
			if _, err := io.ReadFull(r, b); err != nil {
				return "", 0, err
			}
			if len(line) > 107 {
				return "", 0, fmt.Errorf("%w: %q", errHeader, line)
			}
		}
		part := strings.Fields(string(line))
		if len(part) != 6 || part[0] != "PROXY" || part[1] != "TCP4" {
			return "", 0, fmt.Errorf("%w: %q", errHeader, line)
		}
		return part[2] + ":" + part[4], int64(len(line)), nil
	}
	var b [16]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return "", 0, err
	}
	if !bytes.Equal(b[:12], signature) || b[12] != 0x21 || b[13] != 0x11 {
		return "", 0, fmt.Errorf("%w: % x", errHeader, b)
	}
	rest := make([]byte, binary.BigEndian.Uint16(b[14:]))
	if _, err := io.ReadFull(r, rest); err != nil {
		return "", 0, err
	}
	if len(rest) < 12 {
		return "", 0, fmt.Errorf("%w: %d bytes of addresses", errHeader, len(rest))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest[:4])), binary.BigEndian.Uint16(rest[8:])).String(), int64(len(b) + len(rest)), nil
}
