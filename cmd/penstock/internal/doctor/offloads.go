package doctor

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/safchain/ethtool"
)

// wantedOffloads are features of network devices, named as by ethtool(8) and the kernel.
var wantedOffloads = []struct {
	flag, short, cost string
	datagrams         bool
}{
	{"rx-gro", "gro", "the kernel handles each segment that arrives by itself", true},
	{"tx-generic-segmentation", "gso", "what is sent is cut early, before it goes through the network stack", true},
	{"tx-tcp-segmentation", "tso", "the CPU cuts TCP segments in the device's place", false},
	{"tx-udp-segmentation", "tx-udp-segmentation", "the CPU cuts runs of datagrams in the device's place", true},
}

// offloads examines every network device that is up, except loopback.
func offloads(root fs.FS, ask func(nic string) (map[string]ethtool.FeatureState, error), s speeds) (all []Finding) {
	devices, _ := fs.ReadDir(root, "sys/class/net")
	for _, d := range devices {
		nic := d.Name()
		if nic == "lo" || read(root, "sys/class/net/"+nic+"/operstate") == "down" {
			continue
		}
		f := Finding{Group: "offloads", Name: nic, Status: OK}
		has, err := ask(nic)
		if err != nil {
			f.Status, f.Found = Warn, "cannot be asked: "+err.Error()
			all = append(all, f)
			continue
		}
		var on, never, costs, fixes []string
		slower := false
		for _, w := range wantedOffloads {
			switch x, known := has[w.flag]; {
			case x.Active:
				on = append(on, w.short)
			case known && !x.Available:
				never = append(never, w.short)
			case known:
				costs, fixes = append(costs, w.cost), append(fixes, w.short+" on")
				slower = slower || w.datagrams
			}
		}
		f.Found = "on: " + strings.Join(on, ", ")
		if len(on) == 0 {
			f.Found = "on: none"
		}
		if len(never) > 0 {
			f.Found += "; not in this device: " + strings.Join(never, ", ")
		}
		if len(costs) > 0 {
			f.Status, f.Cost = Warn, strings.Join(costs, "; ")
			if slower && s.runs > 0 {
				f.Cost += fmt.Sprintf(" (a datagram costs %.2f us here in runs, %.2f us alone)", s.runs, s.plain)
			}
			f.Fix = "ethtool -K " + nic + " " + strings.Join(fixes, " ")
		}
		all = append(all, f)
	}
	return all
}

// ethtoolFeatures asks the kernel by ETHTOOL_GFEATURES.
func ethtoolFeatures(nic string) (map[string]ethtool.FeatureState, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.FeaturesWithState(nic)
}
