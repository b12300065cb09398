package earlykeeper

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/keeper"
)

// program is the worker's own name for itself in lists of processes.
const program = "penstock"

func init() {
	text, ok := os.LookupEnv(Variable)
	if !ok {
		return
	}
	s, err := parse(text)
	code := 1
	if err == nil {
		code, err = run(&s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "penstock: keeper:", err)
	}
	os.Exit(code)
}

// maxConnectTimeout bounds how long a worker may take until it connects to the keeper: it has done nothing
// else before.
const maxConnectTimeout = 10 * time.Second

// run is the keeper. Its arguments, but for its own name, are those of the worker.
func run(s *Settings) (code int, err error) {
	os.WriteFile("/proc/self/comm", []byte("penstock-keeper"), 0) // execve(2) by descriptor names it after a number
	log := &logger{format: s.LogFormat}
	var inherited []*os.File
	for i := range s.Inherited {
		inherited = append(inherited, os.NewFile(uintptr(3+i), "inherited"))
	}
	never := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	return keeper.Run(keeper.Config{
		Binary: s.Binary,
		Args:   append([]string{program}, os.Args[1:]...),
		Env: slices.DeleteFunc(os.Environ(), func(e string) bool {
			return strings.HasPrefix(e, "PENSTOCK_KEEPER") || strings.HasPrefix(e, "NOTIFY_SOCKET=")
		}),
		Inherit: inherited,
		Standby: []string{LabelConfig, labelLedger},
		// A program that is none of ours does not even connect.
		ConnectTimeout: min(s.StartTimeout, maxConnectTimeout),
		ReadyTimeout:   s.StartTimeout,
		Watchdog:       never(s.Watchdog),
		Healthy:        never(s.HealthyAfter),
		MaxBackoff:     s.MaxRestartDelay,
		Log:            log.event,
		Notify:         notifier(),
	})
}

// logger writes the keeper's own lines, in the format of the worker's log.
type logger struct{ format string }

// loud are the events that an operator should look at.
var loud = []keeper.Kind{keeper.WorkerDied, keeper.WorkerKilled, keeper.WorkerLied, keeper.StartDelayed, keeper.FellBack, keeper.KeeperKept, keeper.Problem}

func (l *logger) event(e keeper.Event) {
	level := "INFO"
	if slices.Contains(loud, e.Kind) {
		level = "WARN"
	}
	now := time.Now()
	switch l.format {
	case LogForPerson:
		if level == "WARN" { // above the live line, which the worker writes again
			fmt.Fprintf(os.Stderr, "\r\x1b[K%s warn: keeper: %s\n", now.Format(time.TimeOnly), e)
		}
		return
	case "text":
		fmt.Fprintf(os.Stderr, "time=%s level=%s msg=%q event=%s pid=%d\n", now.Format("2006-01-02T15:04:05.000Z07:00"), level, "keeper: "+e.String(), e.Kind, e.PID)
		return
	}
	line := struct {
		Time   time.Time `json:"time"`
		Level  string    `json:"level"`
		Msg    string    `json:"msg"`
		Event  string    `json:"event"`
		Detail string    `json:"detail"`
		PID    int       `json:"pid,omitempty"`
	}{now, level, "keeper", e.Kind.String(), e.String(), e.PID}
	b, err := json.Marshal(&line)
	if err == nil {
		os.Stderr.Write(append(b, '\n'))
	}
}
