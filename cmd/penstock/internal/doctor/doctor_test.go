package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/alecthomas/kong"
	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

var update = flag.Bool("update", false, "write the golden files")

// rootOf makes a root of a few files below /proc and /sys.
func rootOf(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return root
}

// good is a machine without a fault; other roots are changes of it.
var good = map[string]string{
	"proc/sys/kernel/osrelease":                    "6.18.3-amd64",
	"proc/self/limits":                             "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1048576              1048576              files     ",
	"proc/self/status":                             "Name:\tpenstock\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff",
	"proc/sys/fs/nr_open":                          "1048576",
	"proc/sys/fs/pipe-user-pages-soft":             "16384",
	"proc/sys/fs/pipe-user-pages-hard":             "0",
	"proc/sys/fs/pipe-max-size":                    "1048576",
	"proc/sys/net/core/somaxconn":                  "4096",
	"proc/sys/net/core/rmem_max":                   "4194304",
	"proc/sys/net/core/wmem_max":                   "4194304",
	"proc/sys/net/core/netdev_max_backlog":         "1000",
	"proc/sys/net/core/default_qdisc":              "fq_codel",
	"proc/sys/net/ipv4/ip_local_port_range":        "32768\t60999",
	"proc/sys/net/ipv4/tcp_migrate_req":            "1",
	"proc/sys/net/ipv4/tcp_available_ulp":          "espintcp mptcp tls",
	"proc/sys/net/ipv4/tcp_congestion_control":     "cubic",
	"proc/sys/net/ipv4/ip_unprivileged_port_start": "1024",
	"sys/class/net/eth0/operstate":                 "up",
	"sys/class/net/eth1/operstate":                 "down",
	"sys/class/net/lo/operstate":                   "unknown",
}

func goodExcept(changes map[string]string) map[string]string {
	all := map[string]string{}
	for k, v := range good {
		all[k] = v
	}
	for k, v := range changes {
		if all[k] = v; v == "" {
			delete(all, k)
		}
	}
	return all
}

var allOn = device(func(int) ethtool.FeatureState { return ethtool.FeatureState{Available: true, Active: true} })

func device(state func(i int) ethtool.FeatureState) map[string]ethtool.FeatureState {
	all := map[string]ethtool.FeatureState{}
	for i, w := range wantedOffloads {
		all[w.flag] = state(i)
	}
	return all
}

// made is a machine on which all features work, but for those named.
func made(files map[string]string, nic map[string]ethtool.FeatureState, s speeds, fails map[string]error) machine {
	return machine{
		root:     rootOf(files),
		try:      func(f feature) error { return fails[f.name] },
		offloads: func(string) (map[string]ethtool.FeatureState, error) { return nic, nil },
		measure:  func(func(string)) (speeds, error) { return s, nil },
	}
}

var fast = speeds{spliced: 4.5, copied: 2.1, runs: 0.21, gso: 1.05, plain: 1.9}

// The report of a good machine and of one with every fault, as people read it.
func TestGolden(t *testing.T) {
	fails := map[string]error{}
	for i, f := range kernelFeatures {
		fails[f.name] = []error{unix.ENOPROTOOPT, unix.EPERM}[i%2]
	}
	off := device(func(i int) ethtool.FeatureState { return ethtool.FeatureState{Available: i < 3} })
	for name, m := range map[string]machine{
		"good": made(good, allOn, fast, nil),
		"bad": made(goodExcept(map[string]string{
			"proc/sys/kernel/osrelease":             "7.1.2",
			"proc/self/limits":                      "Max open files            1024                 4096                 files",
			"proc/self/status":                      "CapEff:\t0000000000000000",
			"proc/sys/fs/pipe-user-pages-soft":      "1024",
			"proc/sys/net/core/somaxconn":           "128",
			"proc/sys/net/core/rmem_max":            "212992",
			"proc/sys/net/core/wmem_max":            "212992",
			"proc/sys/net/core/netdev_max_backlog":  "300",
			"proc/sys/net/ipv4/ip_local_port_range": "60000\t60999",
			"proc/sys/net/ipv4/tcp_migrate_req":     "0",
			"proc/sys/net/ipv4/tcp_available_ulp":   "espintcp mptcp",
			"proc/sys/fs/nr_open":                   "4096",

			"proc/sys/net/netfilter/nf_conntrack_max":   "32768",
			"proc/sys/net/netfilter/nf_conntrack_count": "30",
		}), off, speeds{spliced: 1, copied: 2, runs: 2, gso: 2, plain: 1.9}, fails),
		"nothing": {
			root:     fstest.MapFS{},
			try:      func(feature) error { return nil },
			offloads: func(string) (map[string]ethtool.FeatureState, error) { return nil, unix.EOPNOTSUPP },
			measure:  func(func(string)) (speeds, error) { return speeds{}, errors.New("no loopback") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Report{Findings: examine(m, func(string) {})}
			r.Missing, r.Warnings = r.count()
			var got bytes.Buffer
			if err := r.print(&got, false); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("%s:\n%s\nwant\n%s", golden, &got, want)
			}
			if name == "good" && (r.Missing != 0 || r.Warnings != 0) {
				t.Errorf("a good machine has faults")
			}
			for _, f := range r.Findings {
				if f.Status != OK && f.Cost == "" && !strings.Contains(f.Found, "unknown") && f.Group != "speed" && f.Group != "offloads" {
					t.Errorf("%s: %s, and nobody learns what that costs", f.Name, f.Status)
				}
				if f.Status == Missing && f.Fix == "" {
					t.Errorf("%s is missing, and nothing fixes it", f.Name)
				}
			}
		})
	}
}

func TestColour(t *testing.T) {
	r := Report{Findings: []Finding{{Group: "kernel", Name: "x", Status: Missing, Found: "y"}}}
	var b bytes.Buffer
	if err := r.print(&b, true); err != nil || !strings.Contains(b.String(), "\033[31mmissing\033[0m") {
		t.Errorf("%q, %v", &b, err)
	}
}

// Known bad kernels, and their neighbours.
func TestKernel(t *testing.T) {
	for text, want := range map[string]Status{
		"6.17.0": OK, "6.99.9": OK, "7.0.0-rc1": Warn, "7.0": Warn, "7.1.4-2-arch": Warn, "7.1.5": OK, "7.2.0": OK, "8.0": OK,
		"5.0": OK, "4.19.1": Warn, "nonsense": Warn, "": Warn,
	} {
		got := kernel(rootOf(map[string]string{"proc/sys/kernel/osrelease": text}))
		if got[0].Status != want {
			t.Errorf("%q: %+v, want %s", text, got[0], want)
		}
	}
}

// Pages of pipes are not limited for a daemon that keeps CAP_SYS_RESOURCE. CAP_SYS_ADMIN would do, too, but no daemon in a sandbox keeps it.
func TestPipePages(t *testing.T) {
	for set, limited := range map[string]bool{"0000000000000000": true, "0000000000000400": true, "0000000001000000": false, "0000000000200000": true} {
		f := pipePages(rootOf(goodExcept(map[string]string{"proc/self/status": "CapEff:\t" + set, "proc/sys/fs/pipe-user-pages-soft": "1024"})))
		if got := strings.Contains(f.Cost, "4 directions"); got != limited || limited != (f.Status == Warn) || !limited && !strings.Contains(f.Found, "engine.pipes") {
			t.Errorf("CapEff %s: %+v", set, f)
		}
	}
}

// A table of connections that is small, or nearly full, is told before it drops packets.
func TestConntrack(t *testing.T) {
	const most, count = "proc/sys/net/netfilter/nf_conntrack_max", "proc/sys/net/netfilter/nf_conntrack_count"
	for _, c := range []struct {
		most, count string
		status      Status
		says        string
	}{
		{"", "", OK, "not tracked"}, {"262144", "100", OK, "100 of 262144"}, {"262144", "250000", Warn, "nearly full"}, {"4096", "0", Warn, "about 2048 flows"},
	} {
		f := conntrack(rootOf(map[string]string{most: c.most, count: c.count}))
		if f.Status != c.status || !strings.Contains(f.Found+f.Cost, c.says) || (f.Status == Warn) != (f.Fix != "") {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

func TestCapabilities(t *testing.T) {
	for _, c := range []struct {
		set, start string
		warned     []string
	}{
		{"000001ffffffffff", "1024", nil},
		{"0000000000000400", "1024", []string{"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_RESOURCE"}},
		{"0000000001003000", "0", nil},
		{"0000000001003000", "80", []string{"CAP_NET_BIND_SERVICE"}},
		{"zz", "0", []string{"all"}},
	} {
		var warned []string
		for _, f := range capabilities(rootOf(map[string]string{
			"proc/self/status": "CapEff:\t" + c.set, "proc/sys/net/ipv4/ip_unprivileged_port_start": c.start,
		})) {
			if f.Status != OK {
				warned = append(warned, f.Name)
			}
		}
		if !slices.Equal(warned, c.warned) {
			t.Errorf("CapEff %s from port %s: %v, want %v", c.set, c.start, warned, c.warned)
		}
	}
}

// The real machine, by the command line: JSON that says the same as the exit
// code, and figures for each thing that was measured.
func TestThisMachine(t *testing.T) {
	testnet.CheckLeaks(t)
	var c struct {
		Doctor Cmd `cmd:""`
	}
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"doctor", "--json"}); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := c.Doctor.Run(out, out)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if (code == 0) != (r.Missing == 0) || code > 1 {
		t.Errorf("exit code %d, and %d missing", code, r.Missing)
	}
	groups := map[string]int{}
	for _, f := range r.Findings {
		groups[f.Group]++
		if f.Name == "" || f.Found == "" || !slices.Contains([]Status{OK, Warn, Missing}, f.Status) {
			t.Errorf("%+v", f)
		}
	}
	if groups["kernel"] != 2+len(kernelFeatures) || groups["limits"] < 5 || groups["capabilities"] == 0 || groups["speed"] < 3 {
		t.Errorf("findings by group: %v\n%s", groups, text)
	}
}

func FuzzRelease(f *testing.F) {
	for _, s := range []string{"6.18.44-fc1", "7.1", "", "..", "99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := release(s)
		for _, n := range v {
			if n < 0 || n > 999999 {
				t.Errorf("%q: %v", s, v)
			}
		}
		if before(v, v) {
			t.Errorf("%v is before itself", v)
		}
	})
}
