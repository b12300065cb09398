package budget

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Reading is the state of the memory at one moment.
type Reading struct {
	Limit    int64   // in bytes; 0: there is none
	Use      int64   // in bytes
	Pressure float64 // Use by Limit
	Source   string  // of the limit
	Err      error   // something could not be read: Use may be too small
}

// The memory that the program's own pages on disk need: they can be read again at any time, but a
// process without them does nothing else. It counts as used: ownPages, or a share of the limit if that
// is less.
const (
	ownPages = 8 << 20
	ownShare = 8 // one part in so many
)

// A Meter measures memory. It is used by one goroutine.
type Meter struct {
	groups []*group
	own    int64   // engine.memory; 0: only control groups have limits
	status []*file // of this process and of the keeper
	buf    []byte
	reads  int   // so many were done
	err    error // the control groups cannot be found
}

// lookEvery is how many readings there are between two looks at the control groups that have no limit.
const lookEvery = 16

// group is a control group. While it has a limit its files are open, because they may be out of reach
// later, and so that reading them costs one system call. Without a limit it has no descriptors.
type group struct {
	folder           string
	v1               bool
	limited          bool
	max, high        *file // nil: there is none
	current, details *file
}

// file is a file of the kernel's that is read again and again.
type file struct {
	*os.File
	name string
}

// Open returns a Meter for this process. own is the daemon's own limit; 0 for none. Its Close method
// must be called. Control groups are looked for if groups is set; what goes wrong with that is told by
// each reading. root is where the file system begins: /, except in tests.
func Open(root string, groups bool, own int64) *Meter {
	m := &Meter{own: own, buf: make([]byte, maxFile)}
	if groups {
		m.err = m.findGroups(root)
	}
	if own > 0 {
		for _, pid := range []string{"self", strconv.Itoa(os.Getppid())} {
			if pid != "self" && !sameProgram(root, pid) {
				continue
			}
			if f := open(filepath.Join(root, "proc", pid, "status")); f != nil {
				m.status = append(m.status, f)
			}
		}
	}
	return m
}

// keeperName is what the keeper calls itself, as far as the kernel keeps it.
const keeperName = "penstock-keeper"

// sameProgram reports whether another process runs the same program as this one: then it is the keeper. A process in a sandbox
// may not see that, and takes its name for it.
func sameProgram(root, pid string) bool {
	own, err := os.Stat(filepath.Join(root, "proc/self/exe"))
	if err != nil {
		return false
	}
	other, err := os.Stat(filepath.Join(root, "proc", pid, "exe"))
	if errors.Is(err, fs.ErrPermission) {
		name, err := readShort(filepath.Join(root, "proc", pid, "comm"), 64)
		return err == nil && strings.TrimSpace(string(name)) == keeperName
	}
	return err == nil && os.SameFile(own, other)
}

func open(name string) *file {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	return &file{f, name}
}

// findGroups finds the control groups that this process is in.
func (m *Meter) findGroups(root string) error {
	return eachFolder(root, func(folder string, v1 bool) { m.add(root, folder, v1) })
}

// eachFolder calls f with the folders of the control groups that this process is in: in each hierarchy the innermost first.
func eachFolder(root string, f func(folder string, v1 bool)) error {
	place, err := readShort(filepath.Join(root, "proc/self/cgroup"), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the kernel has no control groups
	}
	if err != nil {
		return err
	}
	text, err := readShort(filepath.Join(root, "proc/self/mountinfo"), maxMounts)
	if err != nil {
		return err
	}
	in := parseMembership(place)
	seen := map[string]bool{}
	for _, mt := range parseMounts(text) {
		where := in.unified
		if mt.v1 {
			where = in.memory
		}
		if where == "" {
			continue
		}
		for _, folder := range mt.folders(where) {
			if !seen[folder] {
				seen[folder] = true
				f(folder, mt.v1)
			}
		}
	}
	return nil
}

// OOMKills returns how many processes of this process's control group the kernel's OOM killer has killed so far; false: that is
// not known. root is as of Open.
//
// Linux counts them since 4.13: as oom_kill of memory.oom_control in version 1 of control groups, and in version 2 of memory.events.local
// (5.2) or, with those of groups below, memory.events.
func OOMKills(root string) (n int64, ok bool) {
	var count []byte
	eachFolder(root, func(folder string, v1 bool) {
		names := []string{"memory.events.local", "memory.events"}
		if v1 {
			names = []string{"memory.oom_control"}
		}
		for _, name := range names {
			if count == nil { // the groups further out count others, too
				count, _ = readShort(filepath.Join(root, folder, name), maxFile)
			}
		}
	})
	return parseOOMKills(count)
}

// readShort reads a file that is expected to be short.
func readShort(name string, most int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, int64(most))) // what was read before an error is all that there is
	return text, nil
}

// add adds a control group, if it can have a limit: the root of a hierarchy cannot.
func (m *Meter) add(root, folder string, v1 bool) {
	g := &group{folder: filepath.Join(root, folder), v1: v1}
	for _, name := range g.limits() {
		if _, err := os.Stat(filepath.Join(g.folder, name)); err == nil {
			m.groups = append(m.groups, g)
			return
		}
	}
}

// limits are the names of the files with limits.
func (g *group) limits() [2]string {
	if g.v1 {
		return [2]string{"memory.limit_in_bytes"}
	}
	return [2]string{"memory.max", "memory.high"}
}

// open opens the files of a control group.
func (g *group) open() {
	names := g.limits()
	g.max = open(filepath.Join(g.folder, names[0]))
	current := "memory.usage_in_bytes"
	if !g.v1 {
		g.high, current = open(filepath.Join(g.folder, names[1])), "memory.current"
	}
	g.current, g.details = open(filepath.Join(g.folder, current)), open(filepath.Join(g.folder, "memory.stat"))
}

func (g *group) close() {
	for _, f := range []**file{&g.max, &g.high, &g.current, &g.details} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
	g.limited = false
}

// look opens the control groups that have got a limit, and closes those that have none any more.
func (m *Meter) look() {
	for _, g := range m.groups {
		if g.limited {
			if n, _, err := m.limit(g); n == noLimit && err == nil {
				g.close()
			}
			continue
		}
		g.open()
		n, _, err := m.limit(g)
		if g.limited = n < noLimit || err != nil && g.max != nil; !g.limited {
			g.close() // it has no limit; or there are no descriptors at the moment
		}
	}
}

// Close closes the files.
func (m *Meter) Close() {
	for _, g := range m.groups {
		g.close()
	}
	for _, f := range m.status {
		f.Close()
	}
}

// Limited reports whether there is any control group or other limit to look at. A control group without
// a limit may get one later.
func (m *Meter) Limited() bool { return len(m.groups) > 0 || m.own > 0 || m.err != nil }

// read returns what a file has now, until the next read.
func (m *Meter) read(f *file) ([]byte, error) {
	if f == nil {
		return nil, errors.New("missing")
	}
	n, err := f.ReadAt(m.buf, 0)
	if n == 0 && err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", f.name, err)
	}
	return m.buf[:n], nil
}

// limit returns the limit of a control group, and its name.
func (m *Meter) limit(g *group) (least int64, source *file, err error) {
	least = noLimit
	for _, f := range []*file{g.max, g.high} {
		if f == nil {
			continue
		}
		text, e := m.read(f)
		if e != nil {
			err = e
			continue
		}
		n, ok := parseLimit(text)
		if !ok {
			err = fmt.Errorf("%s is not a limit", f.name)
		} else if n < least {
			least, source = n, f
		}
	}
	return least, source, err
}

// use returns the memory of a control group that cannot be had back at once.
func (m *Meter) use(g *group, limit int64) (int64, error) {
	text, err := m.read(g.current)
	if err != nil {
		return 0, fmt.Errorf("use of %s: %w", g.folder, err)
	}
	n, ok := parseNumber(trim(text))
	if !ok {
		return 0, fmt.Errorf("%s is not a number", g.current.name)
	}
	if n < limit/2 {
		return n + ownMemory(limit), nil // what can be had back does not matter
	}
	if text, err = m.read(g.details); err != nil {
		return n, fmt.Errorf("memory.stat of %s: %w", g.folder, err) // all of it counts
	}
	s := parseStat(text, g.v1)
	return max(0, n-s.reclaimable()) + ownMemory(limit), nil
}

func trim(text []byte) []byte {
	for len(text) > 0 && (text[len(text)-1] == '\n' || text[len(text)-1] == ' ') {
		text = text[:len(text)-1]
	}
	return text
}

func ownMemory(limit int64) int64 { return min(ownPages, limit/ownShare) }

// Read measures. kernel returns the memory that the kernel has for flows; it is called if the daemon's
// own limit counts.
func (m *Meter) Read(kernel func() int64) (r Reading) {
	if m.reads%lookEvery == 0 {
		m.look()
	}
	m.reads++
	r.Err = m.err
	for _, g := range m.groups {
		if !g.limited {
			continue
		}
		limit, source, err := m.limit(g)
		if err != nil && r.Err == nil {
			r.Err = err
		}
		if limit == noLimit {
			continue
		}
		limit = max(limit, 1)
		use, err := m.use(g, limit)
		if err != nil && r.Err == nil {
			r.Err = err
		}
		r.take(limit, use, source.name)
	}
	if m.own > 0 {
		use, err := m.ownUse()
		if err != nil && r.Err == nil {
			r.Err = err
		}
		r.take(m.own, use+kernel()+ownMemory(m.own), "engine.memory")
	}
	return r
}

// take makes a limit the one of the reading if its pressure is the highest.
func (r *Reading) take(limit, use int64, source string) {
	if p := float64(use) / float64(limit); r.Limit == 0 || p > r.Pressure {
		r.Limit, r.Use, r.Pressure, r.Source = limit, use, p, source
	}
}

// ownUse returns the memory of this process and the keeper.
func (m *Meter) ownUse() (sum int64, err error) {
	for i, f := range m.status {
		text, e := m.read(f)
		if e != nil {
			if i == 0 {
				err = e
			}
			continue // the keeper is gone
		}
		n, ok := parseStatus(text)
		if !ok && i == 0 {
			err = fmt.Errorf("%s has no RssAnon", f.name)
		}
		sum += n
	}
	if len(m.status) == 0 {
		err = errors.New("/proc/self/status cannot be opened")
	}
	return sum, err
}

// LeastLimit returns the lowest limit that applied at the last reading, which need not be the one whose pressure is highest;
// 0: there is none.
func (m *Meter) LeastLimit() int64 {
	least := int64(noLimit)
	for _, g := range m.groups {
		if !g.limited {
			continue
		}
		if n, _, _ := m.limit(g); n < least {
			least = max(n, 1)
		}
	}
	if m.own > 0 {
		least = min(least, m.own)
	}
	if least == noLimit {
		return 0
	}
	return least
}
