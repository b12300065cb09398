package budget

import (
	"path"
	"strings"
	"testing"
)

// Whatever the kernel's files have, nothing panics, and no number is negative.

func FuzzParseCgroup(f *testing.F) {
	f.Add("0::/a/b\n4:memory:/docker/12\n", "35 31 0:32 /docker /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n30 23 0:26 / /c\\040d rw - cgroup2 cgroup2 rw\n")
	f.Add("0::/../x", "30 23 0:26 /.. /c rw - cgroup2 x\n")
	f.Fuzz(func(t *testing.T, place, mounts string) {
		in := parseMembership([]byte(place))
		for _, m := range parseMounts([]byte(mounts)) {
			for _, group := range []string{in.unified, in.memory} {
				if group == "" {
					continue
				}
				all := m.folders(group)
				if len(all) == 0 || len(all) > 64 {
					t.Fatalf("%d folders of %q in %+v", len(all), group, m)
				}
				for _, folder := range all {
					if point := path.Clean(m.point); folder != point && point != "/" && !strings.HasPrefix(folder, point+"/") {
						t.Fatalf("%q is outside of %q", folder, m.point)
					}
				}
			}
		}
	})
}

func FuzzParseMemory(f *testing.F) {
	f.Add([]byte("max\n"))
	f.Add([]byte("9223372036854771712\n"))
	f.Add([]byte("inactive_file 300\nactive_file 200\nfile_dirty 50\nslab_reclaimable 7\ntotal_inactive_file 1\n"))
	f.Add([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"))
	f.Add([]byte("RssAnon:\t 12 kB\nRssShmem: 1 kB\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n, ok := parseLimit(text); ok && n < 0 {
			t.Fatalf("limit %d", n)
		}
		if n, _ := parseStatus(text); n < 0 {
			t.Fatalf("status %d", n)
		}
		if n, _ := parseOOMKills(text); n < 0 {
			t.Fatalf("kills %d", n)
		}
		for _, v1 := range []bool{false, true} {
			if s := parseStat(text, v1); len(text) < 64<<10 && s.reclaimable() < 0 {
				t.Fatalf("stat %+v", s)
			}
		}
	})
}
