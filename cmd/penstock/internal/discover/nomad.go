package discover

import (
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// nomadTag is the beginning of tags of a service that say what labels say of a container, such as penstock.weight=3.
const nomadTag = "penstock."

// nomad has Nomad's own services (version 1.3 or later). Its API tells no checks.
var nomad = &consulAPI{"Nomad", "/v1/service/", func(d *spec.Discover) url.Values {
	return url.Values{"namespace": {d.Namespace}}
}, func(answer io.Reader, d *spec.Discover) (n int, tell func(*feed) error, err error) {
	list, err := readElements[nomadService](answer, maxInstance, maxInstances)
	return len(list), func(f *feed) error { return tellNomad(f, list, d) }, err
}}

// A nomadService is what is read of an element of /v1/service/NAME.
type nomadService struct {
	ID, Address, Datacenter, JobID, AllocID, NodeID string
	Port                                            int
	Tags                                            []string
}

// label returns the value of a tag of ours.
func (s *nomadService) label(name string) (value string, ok bool) {
	for _, tag := range s.Tags {
		if value, ok := strings.CutPrefix(tag, nomadTag+name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// tellNomad tells the members that services make.
func tellNomad(f *feed, list []nomadService, d *spec.Discover) error {
	return f.change(true, func(e *edits) {
		for i := range list {
			s := &list[i]
			if d.Tags != "" && slices.ContainsFunc(strings.Split(d.Tags, ","), func(tag string) bool { return !slices.Contains(s.Tags, tag) }) {
				continue
			}
			var t upstream.Target
			problem := readLabels(&t, s.label)
			ip, err := netip.ParseAddr(s.Address)
			if problem == "" && (err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || s.Port < 1 || s.Port > 65535) {
				problem = fmt.Sprintf("%q, port %d: an IP address and a port are needed", text(s.Address, 60), s.Port)
			}
			if problem != "" {
				e.reject("service "+text(s.ID, 253), problem)
				continue
			}
			if _, ok := s.label("zone"); !ok {
				t.Zone = zone(s.Datacenter)
			}
			t.Addr = relay.Addr{Network: d.Network, AddrPort: netip.AddrPortFrom(ip.Unmap(), uint16(s.Port))}
			t.Metadata = metadata(map[string]any{"job": text(s.JobID, 253), "alloc": text(s.AllocID, 40), "node": text(s.NodeID, 40)})
			e.set(t.Addr.AddrPort.String(), t)
		}
	})
}
