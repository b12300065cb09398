package discover

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// parseAddress parses the address of a member, such as 10.0.0.7:80 or tcp://10.0.0.7:80. It needs no lookup, and is of the network that the
// group has. A problem is a phrase, empty if there is none.
func parseAddress(at string, network spec.Kind) (addr relay.Addr, problem string) {
	text := at
	if !strings.Contains(text, "://") && !strings.HasPrefix(text, "unix") {
		text = network.String() + "://" + text
	}
	e, err := spec.ParseUpstream(text)
	if err != nil {
		return addr, fmt.Sprintf("invalid address: %v", err)
	}
	addr, literal := e.Literal()
	switch {
	case e.Kind != network:
		return addr, fmt.Sprintf("%q is not a %s address, as the group's members are", text[:min(len(text), maxName)], network)
	case !literal || e.LastPort != 0:
		return addr, fmt.Sprintf("%q is not an IP address and one port", at[:min(len(at), maxName)])
	}
	return addr, ""
}

// readLabels sets what labels say of a member; label returns the value of one. A problem is a phrase, empty if there is none.
//
//	weight    1 to 256
//	priority  0 to 65535
//	zone      a name
//	backup    true or false
//	draining  true or false
//
// and those of readServer.
func readLabels(t *upstream.Target, label func(name string) (value string, ok bool)) (problem string) {
	t.Weight = 1
	for _, n := range []struct {
		name        string
		to          *int
		least, most int
	}{{"weight", &t.Weight, 1, 256}, {"priority", &t.Priority, 0, maxPriority}} {
		value, ok := label(n.name)
		if !ok {
			continue
		}
		number, err := strconv.Atoi(value)
		if err != nil || number < n.least || number > n.most {
			return fmt.Sprintf("%s %q is not a number from %d to %d", n.name, text(value, 60), n.least, n.most)
		}
		*n.to = number
	}
	for name, to := range map[string]*bool{"backup": &t.Backup, "draining": &t.Draining} {
		switch value, ok := label(name); {
		case !ok || value == "false":
		case value == "true":
			*to = true
		default:
			return fmt.Sprintf("%s %q is neither true nor false", name, text(value, 60))
		}
	}
	if value, ok := label("zone"); ok {
		if t.Zone = zone(value); t.Zone == "" {
			return fmt.Sprintf("%q is not the name of a zone", text(value, 60))
		}
	}
	return readServer(t, label)
}

// readServer sets what labels say of the server behind a member: where it is checked, and its ID in connection IDs of QUIC.
//
//	check-port      1 to 65535
//	check-address   an IP address
//	quic-server-id  pairs of hexadecimal digits, of up to 15 bytes, with 0x in front or without
func readServer(t *upstream.Target, label func(name string) (value string, ok bool)) (problem string) {
	if value, ok := label("check-port"); ok {
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return fmt.Sprintf("check-port %q is not a number from 1 to 65535", text(value, 60))
		}
		t.CheckPort = uint16(port)
	}
	if value, ok := label("check-address"); ok {
		addr, err := netip.ParseAddr(value)
		if addr = addr.Unmap(); err != nil || addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
			return fmt.Sprintf("check-address %q is not an IP address", text(value, 60))
		}
		t.CheckAddress = addr
	}
	if value, ok := label("quic-server-id"); ok {
		id, err := quicid.ParseServer(value)
		if err != nil {
			return fmt.Sprintf("quic-server-id %q: %v", text(value, 60), err)
		}
		t.QUICServerID = upstream.ServerID(id)
	}
	return ""
}
