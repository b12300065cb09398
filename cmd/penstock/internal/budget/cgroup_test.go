package budget

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseMembership(t *testing.T) {
	for text, want := range map[string]membership{
		"":                           {},
		"0::/\n":                     {unified: "/"},
		"0::/system.slice/a.service": {unified: "/system.slice/a.service"},
		"5:cpu,memory:/docker/a:b\n4:pids:/x\n0::/\n":               {unified: "/", memory: "/docker/a:b"},
		"9:name=systemd:/\n4:memory:/kubepods/pod 1\n1:memories:/n": {memory: "/kubepods/pod 1"},
		"rubbish\n:::\n4:memory\n0::relative\n":                     {},
	} {
		if got := parseMembership([]byte(text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestParseMounts(t *testing.T) {
	text := `22 1 0:20 / /proc rw - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
35 31 0:32 /docker/12 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
37 31 0:32 / /a\040b\134c rw shared:9 master:1 - cgroup2 none rw
rubbish - cgroup2
38 31 0:32 / relative rw - cgroup2 none rw
`
	want := []mount{{false, "/", "/sys/fs/cgroup"}, {true, "/docker/12", "/sys/fs/cgroup/memory"}, {false, "/", `/a b\c`}}
	if got := parseMounts([]byte(text)); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFolders(t *testing.T) {
	for _, c := range []struct {
		root, group string
		want        []string
	}{
		{"/", "/", []string{"/c"}},
		{"/", "/a/b", []string{"/c/a/b", "/c/a", "/c"}},
		{"/docker/12", "/docker/12", []string{"/c"}},
		{"/docker/12", "/docker/12/inner", []string{"/c/inner", "/c"}},
		{"/docker/12", "/docker/123", []string{"/c"}},
		{"/docker/12", "/elsewhere", []string{"/c"}},
		{"/", "/../other", []string{"/c/other", "/c"}}, // Clean leaves no .. above the root
	} {
		m := mount{root: c.root, point: "/c"}
		if got := m.folders(c.group); !slices.Equal(got, c.want) {
			t.Errorf("%s in %s: %q, want %q", c.group, c.root, got, c.want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]int64{
		"max\n": noLimit, "0\n": 0, "100663296\n": 96 << 20, "9223372036854771712\n": noLimit, "99999999999999999999": noLimit,
	} {
		if got, ok := parseLimit([]byte(text)); !ok || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "\n", "-1", "12k", "max max", "999999999999999999999"} {
		if got, ok := parseLimit([]byte(text)); ok {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	v2 := "anon 1000\nfile 500\ninactive_file 300\nactive_file 200\nfile_dirty 50\nfile_writeback 25\nslab_reclaimable 7\nslab 90\n"
	if s := parseStat([]byte(v2), false); s.reclaimable() != 432 {
		t.Errorf("%+v: %d, want 432", s, s.reclaimable())
	}
	v1 := "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\ntotal_dirty 50\ntotal_writeback 25"
	if s := parseStat([]byte(v1), true); s.reclaimable() != 425 {
		t.Errorf("%+v: %d, want 425", s, s.reclaimable())
	}
	for _, text := range []string{"", "\n\n", "inactive_file", "inactive_file \n", "inactive_file x\nactive_file -3\n", "file_dirty 10\n", "inactive_file 9223372036854775807\n"} {
		if s := parseStat([]byte(text), false); s.reclaimable() != 0 {
			t.Errorf("%q: %+v", text, s)
		}
	}
}

func TestParseStatus(t *testing.T) {
	text := "Name:\tRssAnon: 1 kB\nVmRSS:\t   30000 kB\nRssAnon:\t   10240 kB\nRssFile:\t   19000 kB\nRssShmem:\t     1024 kB\n"
	if n, ok := parseStatus([]byte(text)); !ok || n != 11<<20 {
		t.Errorf("%d, %v, want 11 MiB", n, ok)
	}
	for _, text := range []string{"", "RssAnon:", "RssAnon: kB\n", "RssAnon: 1\n", "xRssAnon: 1 kB\n"} {
		if n, ok := parseStatus([]byte(text)); ok {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// tree writes files below a folder that stands for the root of the file system.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		put(t, root, name, text)
	}
	return root
}

func put(t testing.TB, root, name, text string) {
	t.Helper()
	at := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unified is a machine with version 2, and this process in /a/b; only /a has a limit.
var unified = map[string]string{
	"proc/self/cgroup":      "0::/a/b\n",
	"proc/self/mountinfo":   "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n",
	"cg/a/memory.max":       "104857600\n",
	"cg/a/memory.high":      "max\n",
	"cg/a/memory.current":   "89128960\n", // 85 MiB
	"cg/a/memory.stat":      "inactive_file 10485760\nactive_file 5242880\n",
	"cg/a/b/memory.max":     "max\n",
	"cg/a/b/memory.high":    "max\n",
	"cg/a/b/memory.current": "89128960\n",
	"cg/a/b/memory.stat":    "anon 0\n",
}

func noKernel() int64 { return 0 }

func TestMeter(t *testing.T) {
	root := tree(t, unified)
	m := Open(root, true, 0)
	defer m.Close()
	r := m.Read(noKernel)
	// 85 MiB less 15 that can be had back, and 8 for the program.
	if r.Err != nil || r.Limit != 100<<20 || r.Use != 78<<20 || r.Pressure != 0.78 || r.Source != filepath.Join(root, "cg/a/memory.max") {
		t.Errorf("%+v", r)
	}
	// A limit further inside that is lower, while it runs.
	put(t, root, "cg/a/b/memory.high", "94371840\n")
	m.reads = 0 // it is time to look
	if r := m.Read(noKernel); r.Limit != 90<<20 || r.Use != 93<<20 || r.Pressure < 1 || m.LeastLimit() != 90<<20 {
		t.Errorf("%+v, %d", r, m.LeastLimit())
	}
	// It is gone again, and so is the other one.
	put(t, root, "cg/a/b/memory.high", "max\n")
	put(t, root, "cg/a/memory.max", "max\n")
	m.reads = 0
	if r := m.Read(noKernel); r.Limit != 0 || r.Pressure != 0 || m.LeastLimit() != 0 {
		t.Errorf("%+v, %d", r, m.LeastLimit())
	}
	// A limit of nothing.
	for _, g := range m.groups {
		if g.limited || g.max != nil || g.current != nil {
			t.Errorf("%s has open files, and no limit", g.folder)
		}
	}
	put(t, root, "cg/a/memory.max", "0\n")
	m.reads = 0
	if r := m.Read(noKernel); r.Pressure < 1 {
		t.Errorf("%+v", r)
	}
}

// What is far from the limit is not looked at more closely.
func TestMeterFarFromLimit(t *testing.T) {
	root := tree(t, unified)
	put(t, root, "cg/a/memory.max", "1073741824\n")
	m := Open(root, true, 0)
	defer m.Close()
	if r := m.Read(noKernel); r.Use != 93<<20 {
		t.Errorf("%+v", r)
	}
}

// Files that cannot be read or understood are told about, and do no harm.
func TestMeterUnreadable(t *testing.T) {
	for name, text := range map[string]string{
		"cg/a/memory.max": "rubbish", "cg/a/memory.current": "", "cg/a/memory.high": "-5",
	} {
		root := tree(t, unified)
		put(t, root, name, text)
		m := Open(root, true, 0)
		r := m.Read(noKernel)
		if r.Err == nil {
			t.Errorf("%s is %q: %+v", name, text, r)
		}
		m.Close()
	}
	root := tree(t, unified)
	os.Remove(filepath.Join(root, "cg/a/memory.stat"))
	os.Remove(filepath.Join(root, "proc/self/mountinfo"))
	m := Open(root, true, 0)
	if r := m.Read(noKernel); r.Err == nil || !m.Limited() {
		t.Errorf("without mountinfo: %+v", r)
	}
	m.Close()
	put(t, root, "proc/self/mountinfo", unified["proc/self/mountinfo"])
	m = Open(root, true, 0)
	if r := m.Read(noKernel); r.Err == nil || r.Use != 85<<20 {
		t.Errorf("without memory.stat all counts: %+v", r)
	}
	m.Close()
	m = Open(t.TempDir(), true, 0)
	if m.Limited() || m.Read(noKernel) != (Reading{}) {
		t.Error("there is a limit without control groups")
	}
	m.Close()
}

func TestMeterVersion1(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/self/cgroup":                "4:memory:/docker/12\n",
		"proc/self/mountinfo":             "35 31 0:32 /docker/12 /cg/memory rw - cgroup cgroup rw,memory\n",
		"cg/memory/memory.limit_in_bytes": "104857600\n",
		"cg/memory/memory.usage_in_bytes": "89128960\n",
		"cg/memory/memory.stat":           "total_inactive_file 10485760\ntotal_active_file 5242880\ninactive_file 1\n",
	})
	m := Open(root, true, 0)
	defer m.Close()
	if r := m.Read(noKernel); r.Err != nil || r.Use != 78<<20 || r.Limit != 100<<20 {
		t.Errorf("%+v", r)
	}
}

func TestOOMKills(t *testing.T) {
	v2 := maps.Clone(unified)
	v2["cg/a/memory.events"] = "oom_kill 9\n"
	v1 := map[string]string{
		"proc/self/cgroup":             "4:memory:/docker/12\n",
		"proc/self/mountinfo":          "35 31 0:32 /docker/12 /cg/memory rw - cgroup cgroup rw,memory\n",
		"cg/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
	}
	for _, c := range []struct {
		files map[string]string
		file  string
		text  string
		want  int64
		known bool
	}{
		{v1, "", "", 3, true},
		{v1, "cg/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0, false}, // before Linux 4.13
		{v2, "cg/a/b/memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 5\n", 1, true},
		{v2, "cg/a/b/memory.events.local", "oom_kill 0\n", 0, true},
		{v2, "cg/a/b/memory.events", "oom_kill -1\n", 0, false}, // not the parent's
		{map[string]string{"proc/self/cgroup": ""}, "", "", 0, false},
	} {
		root := tree(t, c.files)
		if c.file != "" {
			put(t, root, c.file, c.text)
		}
		if n, ok := OOMKills(root); n != c.want || ok != c.known {
			t.Errorf("%s %q: %d, %v", c.file, c.text, n, ok)
		}
	}
}

// The daemon's own limit counts what the kernel has for flows, and the keeper's memory.
func TestMeterOwnLimit(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/status": "RssAnon: 20480 kB\nRssShmem: 0 kB\n"})
	m := Open(root, true, 64<<20)
	defer m.Close()
	if r := m.Read(func() int64 { return 12 << 20 }); r.Err != nil || r.Limit != 64<<20 || r.Use != 40<<20 || r.Source != "engine.memory" {
		t.Errorf("%+v", r)
	}
	real := Open("/", false, 1<<40)
	defer real.Close()
	if r := real.Read(noKernel); r.Err != nil || r.Use < 1<<20 || r.Pressure > 0.01 {
		t.Errorf("this process: %+v", r)
	}
}

// Measuring again and again allocates nothing, between two looks for new limits.
func TestMeterAllocs(t *testing.T) {
	m := Open(tree(t, unified), true, 0)
	defer m.Close()
	m.Read(noKernel)
	if n := testing.AllocsPerRun(100, func() { m.reads = 1; m.Read(noKernel); m.LeastLimit() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestGoLimit(t *testing.T) {
	if got := goLimit(0); got != math.MaxInt64 {
		t.Error(got)
	}
	if got := goLimit(100 << 20); got < 69<<20 || got > 71<<20 {
		t.Error(got)
	}
}
