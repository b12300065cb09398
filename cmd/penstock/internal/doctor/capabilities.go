package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// A capability is a bit of capabilities(7) and what is missing without it.
type capability struct {
	name string
	bit  uint
	cost string
}

// Bits of capabilities(7).
const (
	capSysAdmin    = 21
	capSysResource = 24
)

// effective returns the capabilities of this process.
func effective(root fs.FS) (uint64, error) {
	words := field(read(root, "proc/self/status"), "CapEff:")
	if len(words) == 0 {
		return 0, errors.New("/proc/self/status has no CapEff")
	}
	set, err := strconv.ParseUint(words[0], 16, 64)
	if err != nil {
		return 0, errors.New("CapEff is " + words[0])
	}
	return set, nil
}

var wanted = []capability{
	{"CAP_NET_BIND_SERVICE", 10, "ports below %s cannot be bound"},
	{"CAP_NET_ADMIN", 12, "no transparent listeners or source addresses, no marks, and socket buffers end at rmem_max and wmem_max"},
	{"CAP_NET_RAW", 13, "no socket of a chosen interface before Linux 5.7, and no transparent ones without CAP_NET_ADMIN"},
	{"CAP_SYS_RESOURCE", capSysResource, "the limit of descriptors holds as it is, and without CAP_SYS_ADMIN that of pipes too"},
}

// capabilities examines what this process may do. A relay needs none of them except for the
// features named.
func capabilities(root fs.FS) (all []Finding) {
	set, err := effective(root)
	if err != nil {
		return []Finding{{Group: "capabilities", Name: "all", Status: Warn, Found: "unknown: " + err.Error()}}
	}
	first := sysctl(root, "net.ipv4.ip_unprivileged_port_start")
	for _, c := range wanted {
		f := Finding{Group: "capabilities", Name: c.name, Status: OK, Found: "has it"}
		if set>>c.bit&1 == 0 {
			f.Found, f.Status, f.Cost = "does not have it", Warn, c.cost
			// With one but not the other, the unit fails with EPERM.
			f.Fix = "systemd: AmbientCapabilities=" + c.name + " and CapabilityBoundingSet=" + c.name
			if c.bit == 10 {
				f.Cost = fmt.Sprintf(c.cost, first)
				f.Fix += "; or: sysctl -w net.ipv4.ip_unprivileged_port_start=0"
				if first == "0" {
					f.Found, f.Status, f.Cost, f.Fix = "does not need it: ip_unprivileged_port_start is 0", OK, "", ""
				}
			}
		}
		all = append(all, f)
	}
	return all
}
