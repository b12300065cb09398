package doctor

import (
	"fmt"
	"io/fs"
	"strings"
)

// What is enough for a busy relay: smaller values are warnings.
const (
	enoughFiles       = 65536   // four for each of 16,384 flows
	enoughPages       = 16384   // 64 pipes of 1 MiB
	enoughBacklog     = 4096    // the kernel's own choice since 5.4
	enoughBuffer      = 4 << 20 // 2,000 datagrams of 1,200 bytes, as the kernel counts them
	enoughPorts       = 28000   // the kernel's own choice
	enoughDeviceQueue = 1000    // the same
	enoughTracked     = 65536   // two for each of 32,768 flows
)

func limits(root fs.FS) []Finding {
	return []Finding{openFiles(root), pipePages(root),
		atLeast(root, "net.core.somaxconn", enoughBacklog, "clients of a burst beyond that wait for their SYN to be sent again, a second or more"),
		atLeast(root, "net.core.rmem_max", enoughBuffer, "a burst of datagrams beyond the receive buffer is lost, unless the daemon has CAP_NET_ADMIN"),
		atLeast(root, "net.core.wmem_max", enoughBuffer, "a burst of datagrams to one upstream waits, unless the daemon has CAP_NET_ADMIN"),
		atLeast(root, "net.core.netdev_max_backlog", enoughDeviceQueue, "packets are dropped before any socket sees them, where a CPU cannot keep up"),
		ports(root), migrate(root), conntrack(root), congestion(root)}
}

// openFiles examines the hard limit: the daemon raises the soft one to it.
func openFiles(root fs.FS) Finding {
	f := Finding{Group: "limits", Name: "open files", Status: OK}
	words := field(read(root, "proc/self/limits"), "Max open files")
	if len(words) < 2 {
		f.Status, f.Found = Warn, "unknown: /proc/self/limits has no such line"
		return f
	}
	most := sysctl(root, "fs.nr_open")
	f.Found = fmt.Sprintf("soft %s, hard %s, fs.nr_open %s", words[0], words[1], most)
	if n, ok := number(words[1]); ok && n < enoughFiles {
		f.Status = Warn
		f.Cost = fmt.Sprintf("about %d stream flows at most, or %d that splice bulk both ways; then clients wait", n/2, n/6)
		f.Fix = "systemd: LimitNOFILE=1048576; a shell: ulimit -Hn 1048576, as root"
		// Not even root may go beyond it: EPERM (getrlimit(2)).
		if n, ok := number(most); ok && n < 1048576 {
			f.Fix = "first sysctl -w fs.nr_open=1048576; then " + f.Fix
		}
	}
	return f
}

func pipePages(root fs.FS) Finding {
	f := Finding{Group: "limits", Name: "pipe pages of a user", Status: OK}
	soft, hard := sysctl(root, "fs.pipe-user-pages-soft"), sysctl(root, "fs.pipe-user-pages-hard")
	size := sysctl(root, "fs.pipe-max-size")
	f.Found = fmt.Sprintf("soft %s, hard %s (0: no limit), pipes of %s bytes at most", soft, hard, size)
	limit := int64(0)
	for _, s := range []string{soft, hard} {
		if n, ok := number(s); ok && n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	// pipe_is_unprivileged_user in the kernel's fs/pipe.c: a process with one of these has no limit.
	set, _ := effective(root)
	free, admin := set>>capSysResource&1 != 0, set>>capSysAdmin&1 != 0
	switch n, ok := number(size); {
	case ok && n < 1<<20:
		f.Status, f.Cost = Warn, "smaller pipes than bulk wants, which takes up to 1.7 times the CPU"
		f.Fix = "sysctl -w fs.pipe-max-size=1048576"
	case free:
		f.Found += "; not for this process, which has CAP_SYS_RESOURCE: engine.pipes is the limit"
	case limit > 0 && limit < enoughPages:
		f.Status = Warn
		f.Cost = fmt.Sprintf("%d directions can splice at a time, others are copied", limit/256)
		f.Fix = fmt.Sprintf("sysctl -w fs.pipe-user-pages-soft=%d, or CAP_SYS_RESOURCE for the daemon", enoughPages)
	case limit > 0:
		f.Found += fmt.Sprintf("; %d directions can splice at a time", limit/256)
	}
	if admin && !free && limit > 0 {
		f.Found += "; not for this process, which has CAP_SYS_ADMIN, but for a daemon, which gives that up in its sandbox"
	}
	return f
}

// atLeast warns if a sysctl is less than enough.
func atLeast(root fs.FS, name string, enough int64, cost string) Finding {
	f := Finding{Group: "limits", Name: strings.TrimPrefix(name, "net.core."), Status: OK, Found: sysctl(root, name)}
	if n, ok := number(f.Found); !ok {
		// A network namespace that is not the machine's shows only some of these.
		f.Found = "not shown here (a container?)"
	} else if n < enough {
		f.Status, f.Cost, f.Fix = Warn, cost, fmt.Sprintf("sysctl -w %s=%d", name, enough)
	}
	return f
}

func ports(root fs.FS) Finding {
	const name = "net.ipv4.ip_local_port_range"
	f := Finding{Group: "limits", Name: "ip_local_port_range", Status: OK}
	var low, high int
	if n, _ := fmt.Sscan(sysctl(root, name), &low, &high); n < 2 {
		f.Status, f.Found = Warn, "unknown"
		return f
	}
	f.Found = fmt.Sprintf("%d to %d: %d flows to one TCP upstream, and as many datagram flows in all, for each source address", low, high, high-low+1)
	if high-low+1 < enoughPorts {
		f.Status, f.Cost, f.Fix = Warn, "flows beyond that end with an error", "sysctl -w "+name+"='32768 60999', or more source addresses"
	}
	return f
}

func migrate(root fs.FS) Finding {
	const name = "net.ipv4.tcp_migrate_req"
	f := Finding{Group: "limits", Name: "tcp_migrate_req", Status: OK, Found: sysctl(root, name)}
	if f.Found == "0" || f.Found == "" {
		f.Status, f.Cost, f.Fix = Warn, "clients in a listener's queue are reset when a second daemon has taken its port over", "sysctl -w "+name+"=1"
	}
	if f.Found == "" {
		f.Found, f.Fix = "not there", upgrade+"5.14 or later"
	}
	return f
}

// conntrack examines the connection tracking table, in which every flow has two entries. When it
// is full, packets of new connections are dropped.
func conntrack(root fs.FS) Finding {
	const name = "net.netfilter.nf_conntrack_max"
	f := Finding{Group: "limits", Name: "nf_conntrack", Status: OK, Found: "connections are not tracked"}
	most, ok := number(sysctl(root, name))
	if !ok {
		return f
	}
	used, _ := number(sysctl(root, "net.netfilter.nf_conntrack_count"))
	f.Found = fmt.Sprintf("%d of %d entries used; each flow takes one on each side", used, most)
	switch {
	case used > most/5*4:
		f.Status, f.Cost = Warn, "the table is nearly full; then new connections and datagrams are dropped, of the relay and of everything else here"
	case most < enoughTracked:
		f.Status, f.Cost = Warn, fmt.Sprintf("about %d flows at most, then new connections and datagrams are dropped", most/2)
	default:
		return f
	}
	f.Fix = fmt.Sprintf("sysctl -w %s=%d, or rules with notrack for the relay's ports", name, max(2*most, enoughTracked))
	return f
}

// congestion shows the congestion control, because it affects what bulk data costs. Any is fine.
func congestion(root fs.FS) Finding {
	return Finding{Group: "limits", Name: "tcp_congestion_control", Status: OK,
		Found: fmt.Sprintf("%s; queueing discipline %s", sysctl(root, "net.ipv4.tcp_congestion_control"), sysctl(root, "net.core.default_qdisc"))}
}
