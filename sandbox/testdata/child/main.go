// Command child is a process that enters a sandbox, as the test orders it: the order is JSON in its first argument, the answer JSON on
// standard output.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/penstock/penstock/internal/testattack"
	"github.com/penstock/penstock/sandbox"
)

// Order is what the test asks for.
type Order struct {
	Policy sandbox.Policy
	Target testattack.Target
	Enter  bool // or stay outside, to see that the attempts are real
	Attack bool
	Work   *Work  // what must still be possible
	Bench  string // what to measure
}

// Answer is what became of it.
type Answer struct {
	Err     string
	Report  sandbox.Report      // of entering, or of what could be entered
	Threads []map[string]string // /proc/self/task/N/status
	Results map[string][]testattack.Result
	Failed  []string // of Work
	Bench   float64  // nanoseconds
	Files   []string // open after everything
}

func main() {
	var o Order
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		panic(err)
	}
	a := Answer{Results: make(map[string][]testattack.Result)}
	// Threads that exist before: each is locked to a goroutine, and waits in the kernel or in the runtime.
	start, results := make(chan bool), make(chan []testattack.Result)
	early := func() {
		runtime.LockOSThread()
		if <-start {
			results <- testattack.Run(o.Target)
		}
	}
	go early()
	for range 3 {
		go func() { runtime.LockOSThread(); select {} }()
	}
	runtime.Gosched()
	if o.Enter {
		var err error
		if a.Report, err = sandbox.Enter(o.Policy); err != nil {
			a.Err = err.Error()
		}
		if _, err := sandbox.Enter(o.Policy); err == nil {
			a.Err = "entered twice"
		}
	} else {
		a.Report = sandbox.Available()
	}
	a.Threads = threads()
	if o.Attack {
		start <- true
		a.Results["a thread that was there before"] = <-results
		a.Results["the thread that entered"] = testattack.Run(o.Target)
		go func() { runtime.LockOSThread(); results <- testattack.Run(o.Target) }()
		a.Results["a new thread"] = <-results
	}
	if o.Work != nil {
		a.Failed = o.Work.do()
	}
	if o.Bench != "" {
		a.Bench = measure(o.Bench)
	}
	json.NewEncoder(os.Stdout).Encode(a)
}

// threads returns what the kernel says of each thread.
func threads() (all []map[string]string) {
	paths, _ := filepath.Glob("/proc/self/task/*/status")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			all = append(all, map[string]string{"error": fmt.Sprint(err)})
			continue
		}
		m := make(map[string]string)
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(line, ":")
			m[name] = strings.TrimSpace(value)
		}
		all = append(all, m)
	}
	return all
}
