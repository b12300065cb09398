//go:build linux

// Faults does each of many kinds of faults to penstock, HAProxy and nginx under a load that knows each of
// its bytes, and prints what happened to old flows, to new ones, to memory, descriptors and CPU time.
//
//	go run ./bench/trials/faults                                  # all
//	go run ./bench/trials/faults -kinds killed,vanished           # some
//	go run ./bench/trials/faults -relays penstock -kinds list     # the kinds, with what is expected
//	go run ./bench/trials/faults -out DIR -docs docs/faults.md    # also as JSON lines, and as the document
//
// Each fault is done in network namespaces of its own, by a process of its own. Without root it is root
// in a user namespace. The exit code is 1 if penstock did not hold.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// run is what was asked for on the command line.
type run struct {
	kinds    []*kind
	relays   []*relay
	penstock string
	dir      string
	parallel int
	short    bool
	keep     bool
	out      io.Writer
	lines    io.Writer // gets each outcome as JSON at once, so that a run that is interrupted is not lost; nil: discarded
}

func main() {
	if is, err := parts.Play(os.Args[1:]); is {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	r := &run{out: os.Stdout}
	names := flag.String("kinds", "", "kinds of faults, with commas; list: only list them; default: all")
	on := flag.String("relays", "penstock,haproxy,nginx", "relays, with commas")
	flag.StringVar(&r.penstock, "penstock", "", "the daemon; default: it is built")
	flag.IntVar(&r.parallel, "parallel", 3, "faults at the same time, apart from those that need the whole machine")
	flag.BoolVar(&r.short, "short", false, "shorter, and without judging times")
	flag.BoolVar(&r.keep, "keep-files", false, "keep the folders of relays that did not hold")
	results := flag.String("out", "", "also write the table and JSON lines to this `folder`")
	docs := flag.String("docs", "", "also write the document to this `file`")
	from := flag.String("from", "", "take the JSON lines of this `file` instead of measuring")
	flag.Parse()
	trial.Main("faults", func() error { return r.main(*names, *on, *results, *docs, *from) })
}

// parts are the children of the program, and those of a cell.
var parts = child.Parts{"cell": child.Answers(measureCell), "launch": child.Does(becomeRelay), "push": child.Does(pushAll), "hog": child.Does(hog)}

func (r *run) main(names, on, results, docs, from string) (err error) {
	r.kinds = kinds
	if names == "list" {
		listKinds(r.out)
		return nil
	}
	if names != "" {
		r.kinds = nil
		for name := range strings.SplitSeq(names, ",") {
			k := findKind(name)
			if k == nil {
				return fmt.Errorf("no kind %q; see -kinds list", name)
			}
			r.kinds = append(r.kinds, k)
		}
	}
	for name := range strings.SplitSeq(on, ",") {
		l := findRelay(name)
		if l == nil {
			return fmt.Errorf("no relay %q", name)
		}
		r.relays = append(r.relays, l)
	}
	if r.dir, err = os.MkdirTemp("", "faults-"); err != nil {
		return err
	}
	if err := os.Chmod(r.dir, 0o755); err != nil { // a relay may run as another user
		return err
	}
	defer os.Remove(r.dir) // unless something was kept in it
	var all []*outcome
	about := ""
	if from != "" {
		if about, all, err = readResults(from); err != nil {
			return err
		}
	} else {
		if err := r.prepare(); err != nil {
			return err
		}
		about = r.about()
		fmt.Fprintf(r.out, "%s\n\n", about)
		if results != "" {
			if err := os.MkdirAll(results, 0o755); err != nil {
				return err
			}
			f, err := os.Create(filepath.Join(results, "faults.jsonl"))
			if err != nil {
				return err
			}
			defer f.Close()
			fmt.Fprintf(f, "# %s\n", about)
			r.lines = f
		}
		start := time.Now()
		all = r.measureAll()
		fmt.Fprintf(r.out, "\n%d measurements in %v\n\n", len(all), time.Since(start).Round(time.Second))
	}
	printTable(r.out, all)
	if results != "" {
		if err := writeResults(results, about, all); err != nil {
			return err
		}
	}
	if docs != "" {
		if err := os.WriteFile(docs, []byte(document(about, all)), 0o644); err != nil {
			return err
		}
	}
	return failures(all)
}

// prepare builds the daemon.
func (r *run) prepare() error {
	if _, err := proc.RaiseFiles(100_000); err != nil {
		return err
	}
	r.relays = slices.DeleteFunc(r.relays, func(l *relay) bool {
		if l == penstock {
			return false
		}
		err := peer.Missing(l.name)
		if err != nil {
			fmt.Fprintf(r.out, "%s is left out: %v\n", l.name, err)
		}
		return err != nil
	})
	var err error
	r.penstock, err = trial.Penstock(r.penstock, r.dir)
	return err
}

// measureAll measures everything, several cells at a time, and those that need the whole machine one by one.
func (r *run) measureAll() []*outcome {
	type job struct {
		k *kind
		l *relay
	}
	var together, alone []job
	for _, k := range r.kinds {
		for _, l := range r.relays {
			if k.alone && !r.short {
				alone = append(alone, job{k, l})
			} else {
				together = append(together, job{k, l})
			}
		}
	}
	var mu sync.Mutex
	var all []*outcome
	measure := func(j job) {
		o := r.cell(j.k, j.l)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, o)
		if r.lines != nil {
			fmt.Fprintln(r.lines, o.json())
		}
		fmt.Fprintf(r.out, "%-18s %-9s %5.1f s  %s\n", o.Kind, o.Relay, o.Seconds, o.short())
	}
	for _, list := range []struct {
		jobs []job
		n    int
	}{{together, r.parallel}, {alone, 1}} {
		todo := make(chan job)
		var workers sync.WaitGroup
		for range list.n {
			workers.Go(func() {
				for j := range todo {
					measure(j)
				}
			})
		}
		for _, j := range list.jobs {
			todo <- j
		}
		close(todo)
		workers.Wait()
	}
	sortOutcomes(all)
	return all
}

// cell measures one fault at one relay in a process of its own, with namespaces of its own.
func (r *run) cell(k *kind, l *relay) *outcome {
	o := &outcome{Kind: k.name, Relay: l.name}
	fail := func(err error) *outcome { o.Error = err.Error(); return o }
	dir, err := os.MkdirTemp(r.dir, k.name+"-"+l.name+"-")
	if err != nil {
		return fail(err)
	}
	os.Chmod(dir, 0o755)
	cmd, err := child.Command("cell", cell{Kind: k.name, Relay: l.name, Dir: dir, Penstock: r.penstock, Short: r.short})
	if err != nil {
		return fail(err)
	}
	cmd.SysProcAttr = isolated()
	start := time.Now()
	err = child.Run(cmd, 3*time.Minute, o)
	if err != nil {
		o.Error, o.Seconds = err.Error(), time.Since(start).Seconds()
	}
	if r.keep && !o.Held && o.Absent == "" {
		fmt.Fprintln(r.out, "files:", dir)
	} else {
		os.RemoveAll(dir)
	}
	return o
}

// isolated gives a process namespaces of its own; when it ends, all that it started ends too.
func isolated() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// failures returns an error if penstock did not hold, or a measurement is missing.
func failures(all []*outcome) error {
	n, broken := 0, 0
	for _, o := range all {
		if o.Relay == penstock.name && o.Error == "" && o.Absent == "" && !o.Held {
			n++
		}
		if o.Error != "" {
			broken++
		}
	}
	if n+broken > 0 {
		return fmt.Errorf("penstock did not hold in %d kinds; %d measurements are missing", n, broken)
	}
	return nil
}

func writeResults(dir, about string, all []*outcome) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var table, lines strings.Builder
	fmt.Fprintf(&table, "%s\n\n", about)
	printTable(&table, all)
	fmt.Fprintf(&lines, "# %s\n", about)
	for _, o := range all {
		fmt.Fprintln(&lines, o.json())
	}
	if err := os.WriteFile(filepath.Join(dir, "faults.txt"), []byte(table.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "faults.jsonl"), []byte(lines.String()), 0o644)
}

// readResults reads what writeResults wrote, and judges it anew.
func readResults(path string) (about string, all []*outcome, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if rest, ok := strings.CutPrefix(in.Text(), "# "); ok {
			about = rest
			continue
		}
		o := &outcome{}
		if err := json.Unmarshal(in.Bytes(), o); err != nil {
			return "", nil, err
		}
		if k, r := findKind(o.Kind), findRelay(o.Relay); k != nil && r != nil {
			o.judge(k, r, false)
			all = append(all, o)
		}
	}
	sortOutcomes(all)
	return about, all, in.Err()
}
