package packets

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay"
)

// segment returns a packet with a text, of TCP with flags or of UDP.
func segment(protocol uint8, from, to string, flags uint8, text string) []byte {
	f, t := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	b := binary.BigEndian.AppendUint16(nil, f.Port())
	b = binary.BigEndian.AppendUint16(b, t.Port())
	if protocol == TCP {
		b = append(b, 0, 0, 0, 1, 0, 0, 0, 1, 5<<4, flags, 1, 0, 0, 0, 0, 0)
	} else {
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(text)))
		b = append(b, 0, 0)
	}
	b = append(b, text...)
	var h []byte
	if f.Addr().Is4() {
		h = binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(b)))
		h = append(h, 0, 1, 0, 0, 64, protocol, 0, 0)
	} else {
		h = binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(b)))
		h = append(h, protocol, 64)
	}
	h = append(append(h, f.Addr().AsSlice()...), t.Addr().AsSlice()...)
	return append(h, b...)
}

// block is one of a file, as an independent reader reads it.
type block struct {
	kind, on uint32
	linkType uint16
	at       time.Time
	length   int
	data     []byte
	options  map[uint16]string
}

// read reads a file of pcapng.
func read(b []byte) (list []block, err error) {
	le := binary.LittleEndian
	for len(b) > 0 {
		if len(b) < 12 {
			return list, fmt.Errorf("%d bytes at the end", len(b))
		}
		size := int(le.Uint32(b[4:]))
		if size%4 != 0 || size < 12 || size > len(b) || int(le.Uint32(b[size-4:])) != size {
			return list, fmt.Errorf("a block of %d bytes, of %d", size, len(b))
		}
		k := block{kind: le.Uint32(b), options: map[uint16]string{}}
		body := b[8 : size-4]
		b = b[size:]
		switch k.kind {
		case 0x0A0D0D0A:
			if le.Uint32(body) != 0x1A2B3C4D || le.Uint16(body[4:]) != 1 {
				return list, fmt.Errorf("no section")
			}
			body = body[16:]
		case 1:
			k.linkType = le.Uint16(body)
			body = body[8:]
		case 5, 6:
			k.on = le.Uint32(body)
			k.at = time.Unix(0, int64(uint64(le.Uint32(body[4:]))<<32|uint64(le.Uint32(body[8:]))))
			body = body[12:]
			if k.kind == 6 {
				n := int(le.Uint32(body))
				k.length = int(le.Uint32(body[4:]))
				k.data = body[8:][:n]
				body = body[8+(n+3)/4*4:]
			}
		default:
			return list, fmt.Errorf("a block of kind %d", k.kind)
		}
		for {
			code, n := le.Uint16(body), int(le.Uint16(body[2:]))
			if code == 0 {
				if len(body) != 4 {
					return list, fmt.Errorf("%d bytes behind the options", len(body)-4)
				}
				break
			}
			k.options[code] = string(body[4:][:n])
			body = body[4+(n+3)/4*4:]
		}
		list = append(list, k)
	}
	return list, nil
}

var epoch = time.Unix(1_800_000_000, 123_456_789)

func tcp(at string) api.Addr {
	return api.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(at)}
}
func udp(at string) api.Addr {
	return api.Addr{Network: relay.UDP, AddrPort: netip.MustParseAddrPort(at)}
}

// web returns a flow of TCP that is connected since a while after the epoch.
func web(id uint64, peer string, port int, since time.Duration) *api.CaptureFlow {
	return &api.CaptureFlow{
		ID: id, Kind: "stream", Listener: "web", Route: "r", Group: "app", Member: "one", Client: tcp(peer), Peer: tcp(peer), Local: tcp("10.0.0.1:443"),
		Upstream: tcp("10.0.0.9:80"), UpstreamLocal: tcp(fmt.Sprintf("10.0.0.1:%d", port)), Since: epoch.Add(since),
	}
}
