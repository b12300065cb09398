package budget

import (
	"bytes"
	"math"
	"path"
	"strconv"
	"strings"
)

// Sizes of the files that are read. All are short: what is longer is not what it should be.
const (
	maxMounts = 1 << 20
	maxFile   = 64 << 10
)

// noLimit is the limit of a control group that has none. Version 1 writes a number that is a little less
// than 1<<63, which no machine has.
const noLimit = math.MaxInt64

// membership is the place of a process in the hierarchies of control groups. An empty path means that it
// is in none.
type membership struct {
	unified string // of version 2
	memory  string // of version 1's controller of memory
}

// parseMembership parses /proc/PID/cgroup. cgroups(7).
func parseMembership(text []byte) (m membership) {
	for line := range bytes.Lines(text) {
		// hierarchy:controllers:path, of which the path may have colons.
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		switch {
		case parts[0] == "0" && parts[1] == "":
			m.unified = parts[2]
		case containsWord(parts[1], "memory"):
			m.memory = parts[2]
		}
	}
	return m
}

func containsWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// mount is a mounted hierarchy of control groups.
type mount struct {
	v1    bool   // version 1's controller of memory; otherwise version 2
	root  string // the control group that is mounted
	point string // where
}

// parseMounts returns the hierarchies in /proc/PID/mountinfo that may have limits of memory. proc(5).
func parseMounts(text []byte) (all []mount) {
	for line := range bytes.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), " - ")
		if !ok {
			continue
		}
		fields, rest := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(rest) < 1 {
			continue
		}
		m := mount{root: unescape(fields[3]), point: unescape(fields[4])}
		switch {
		case rest[0] == "cgroup2":
		case rest[0] == "cgroup" && len(rest) >= 3 && containsWord(rest[2], "memory"):
			m.v1 = true
		default:
			continue
		}
		if strings.HasPrefix(m.root, "/") && strings.HasPrefix(m.point, "/") {
			all = append(all, m)
		}
	}
	return all
}

// unescape undoes the escapes of mountinfo: octal numbers for spaces, tabs, line feeds and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// folders returns the folders of a control group and of its parents, as far as they are mounted, the
// innermost first.
func (m *mount) folders(group string) (all []string) {
	group = path.Clean(group)
	inside := group
	if m.root != "/" {
		var ok bool
		if inside, ok = strings.CutPrefix(group, path.Clean(m.root)); !ok || inside != "" && inside[0] != '/' {
			// The path is from outside of the namespace that is mounted here, or from another one: only the
			// group that is mounted is known to be a parent.
			inside = ""
		}
	}
	if strings.HasPrefix(inside, "/..") {
		inside = ""
	}
	const most = 64 // levels
	for range most {
		all = append(all, path.Join(m.point, inside))
		if inside == "" || inside == "/" {
			break
		}
		inside = path.Dir(inside)
	}
	return all
}

// parseLimit parses memory.max, memory.high or memory.limit_in_bytes.
func parseLimit(text []byte) (int64, bool) {
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return noLimit, true
	}
	n, ok := parseNumber(text)
	if ok && n > 1<<60 {
		n = noLimit
	}
	return n, ok
}

// parseNumber parses a decimal number that is not negative. Numbers beyond 1<<63-1 are taken for that.
func parseNumber(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 20 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt64-int64(c-'0'))/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// stat is what memory.stat tells about memory that the kernel can have back at once.
type stat struct {
	cache  int64 // of files
	unsafe int64 // the part of it that must be written first
	slab   int64 // of the kernel's own caches
}

// reclaimable returns how much of the memory in use can be had back.
func (s *stat) reclaimable() int64 { return max(0, s.cache-s.unsafe) + s.slab }

// parseStat parses memory.stat. Version 1 has the sums over the children apart.
func parseStat(text []byte, v1 bool) (s stat) {
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			continue
		}
		n, ok := parseNumber(line[i+1:])
		if !ok || n > 1<<60 {
			continue
		}
		name := line[:i]
		if v1 {
			var total bool
			if name, total = bytes.CutPrefix(name, []byte("total_")); !total {
				continue
			}
		}
		switch string(name) {
		case "inactive_file", "active_file":
			s.cache += n
		case "file_dirty", "file_writeback", "dirty", "writeback":
			s.unsafe += n
		case "slab_reclaimable":
			s.slab += n
		}
	}
	return s
}

// parseStatus returns the anonymous and shared memory of a process from its /proc/PID/status, which is
// what cannot be read again from a file.
func parseStatus(text []byte) (n int64, ok bool) {
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		value, is := bytes.CutPrefix(line, []byte("RssAnon:"))
		if !is {
			if value, is = bytes.CutPrefix(line, []byte("RssShmem:")); !is {
				continue
			}
		}
		kB, found := bytes.CutSuffix(bytes.TrimSpace(value), []byte(" kB"))
		if k, is := parseNumber(kB); found && is && k < 1<<50 {
			n += k << 10
			ok = true
		}
	}
	return n, ok
}

// parseOOMKills parses memory.oom_control, memory.events or memory.events.local: lines of a name and a number.
func parseOOMKills(text []byte) (n int64, ok bool) {
	for line := range bytes.Lines(text) {
		if number, found := bytes.CutPrefix(line, []byte("oom_kill ")); found {
			return parseNumber(bytes.TrimSpace(number))
		}
	}
	return 0, false
}
