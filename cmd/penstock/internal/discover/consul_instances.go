package discover

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A consulInstance is what is read of an element of /v1/health/service/NAME.
type consulInstance struct {
	Node struct {
		Node, Address string
		Meta          map[string]string
		Locality      *consulLocality
	}
	Service struct {
		ID, Address string
		Port        int
		Meta        map[string]string
		Weights     struct{ Passing, Warning *int }
		Locality    *consulLocality
	}
	Checks []consulCheck
}

type consulLocality struct{ Region, Zone string }

type consulCheck struct{ CheckID, Status string }

// readInstances reads the answer to a query, an array.
func readInstances(r io.Reader) (list []consulFound, err error) {
	item := &remote.BoundedReader{R: r, Left: maxInstance}
	d := json.NewDecoder(item)
	if t, err := d.Token(); err != nil {
		return nil, unexpected(err)
	} else if t == nil {
		return nil, nil // a list without elements, as Go writes it
	} else if t != json.Delim('[') {
		return nil, fmt.Errorf("the answer is no JSON array")
	}
	for d.More() {
		item.Left = maxInstance
		var e consulInstance
		if err := d.Decode(&e); err != nil {
			return nil, unexpected(err)
		}
		if len(list) >= maxInstances {
			return nil, fmt.Errorf("the service has more than %d instances", maxInstances)
		}
		list = append(list, e.found())
	}
	_, err = d.Token()
	return list, unexpected(err)
}

// A consulFound is what is kept of an instance.
type consulFound struct {
	id       string // for messages
	at       string // address, which need not be an IP address
	port     int
	status   string // passing, warning, critical or maintenance
	passing  int    // weights
	warning  int
	zone     string
	metadata string
	server   upstream.Target // only what readServer sets
	wrong    string          // what is wrong with that; empty: nothing
}

// consulMeta is what the keys of an instance's metadata begin with that are labels: those of readServer, with _ for -.
const consulMeta = "penstock_"

// Special checks, which exist while a node or an instance is in maintenance.
const (
	nodeMaintenance    = "_node_maintenance"
	serviceMaintenance = "_service_maintenance:"
)

func (e *consulInstance) found() consulFound {
	f := consulFound{id: text(e.Service.ID, 253), at: e.Service.Address, port: e.Service.Port, status: e.status(), passing: 1, warning: 1}
	if f.at == "" {
		f.at = e.Node.Address
	}
	if w := e.Service.Weights.Passing; w != nil {
		f.passing = min(*w, maxConsulWeight)
	}
	if w := e.Service.Weights.Warning; w != nil {
		f.warning = min(*w, maxConsulWeight)
	}
	for _, z := range []string{
		e.Service.Meta["zone"], e.Service.Meta["availability_zone"], e.Service.Locality.zone(),
		e.Node.Meta["zone"], e.Node.Meta["availability_zone"], e.Node.Locality.zone(),
	} {
		if f.zone = zone(z); f.zone != "" {
			break
		}
	}
	f.wrong = readServer(&f.server, func(name string) (string, bool) {
		value, ok := e.Service.Meta[consulMeta+strings.ReplaceAll(name, "-", "_")]
		return value, ok
	})
	m := map[string]any{"node": text(e.Node.Node, 253), "id": text(e.Service.ID, 253)}
	f.metadata = metadata(m)
	if len(e.Service.Meta) > 0 {
		m["meta"] = e.Service.Meta
		if all := metadata(m); all != "" {
			f.metadata = all
		}
	}
	return f
}

func (l *consulLocality) zone() string {
	if l == nil {
		return ""
	}
	return l.Zone
}

// status returns the status of all checks together, as Consul has it (HealthChecks.AggregatedStatus).
func (e *consulInstance) status() string {
	status := "passing"
	for _, c := range e.Checks {
		switch {
		case c.CheckID == nodeMaintenance || strings.HasPrefix(c.CheckID, serviceMaintenance):
			return "maintenance"
		case c.Status == "critical":
			status = "critical"
		case c.Status == "warning" && status == "passing":
			status = "warning"
		case c.Status != "passing" && c.Status != "warning":
			status = "critical" // one that does not exist; Consul's own code knows no other
		}
	}
	return status
}

// maxWeight is the maximum weight of a Target, maxConsulWeight that of Consul.
const (
	maxWeight       = 256
	maxConsulWeight = 65535
)

// tellInstances tells the members that instances make.
func tellInstances(f *feed, list []consulFound, d spec.Discover) error {
	greatest := maxWeight
	for _, i := range list {
		greatest = max(greatest, i.passing, i.warning) // also of those that have the status only at other times, so that it stays
	}
	members := make(map[netip.AddrPort]upstream.Target, len(list))
	return f.change(true, func(e *edits) {
		for _, i := range list {
			if i.status == "critical" {
				continue
			}
			ip, err := netip.ParseAddr(i.at)
			if err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || i.port < 1 || i.port > 65535 {
				e.reject("instance "+i.id, fmt.Sprintf("%q, port %d: an IP address and a port are needed", text(i.at, 60), i.port))
				continue
			}
			if i.wrong != "" {
				e.reject("instance "+i.id, i.wrong)
				continue
			}
			weight := i.passing
			if i.status == "warning" {
				weight = i.warning
			}
			t := upstream.Target{
				Addr:     relay.Addr{Network: d.Network, AddrPort: netip.AddrPortFrom(ip.Unmap(), uint16(i.port))},
				Weight:   min(max(1, int(int64(weight)*maxWeight/int64(greatest))), maxWeight),
				Zone:     i.zone,
				Draining: i.status == "maintenance" || weight <= 0,
				Metadata: i.metadata,

				CheckAddress: i.server.CheckAddress, CheckPort: i.server.CheckPort, QUICServerID: i.server.QUICServerID,
			}
			// An address may have been registered several times: the instance that gets flows counts.
			if old, ok := members[t.Addr.AddrPort]; ok && (old.Draining == t.Draining && old.Metadata <= t.Metadata || !old.Draining && t.Draining) {
				continue
			}
			members[t.Addr.AddrPort] = t
			e.set(t.Addr.AddrPort.String(), t)
		}
	})
}
