package earlykeeper

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
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
	// What reads standard error may go away: writing then returns an error, and does not end the keeper. The
	// handler is not inherited by the worker, as SIG_IGN would be.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	lines := newOutlet(func(line string) { os.Stderr.WriteString(line) })
	s, err := parse(text)
	code := 1
	if err == nil {
		code, err = run(&s, lines)
	}
	if err != nil {
		lines.put(fmt.Sprintln("penstock: keeper:", err))
	}
	lines.close(time.Second)
	os.Exit(code)
}

// maxConnectTimeout bounds how long a worker may take until it connects to the keeper: it has done nothing
// else before.
const maxConnectTimeout = 10 * time.Second

// run is the keeper. Its arguments, but for its own name, are those of the worker.
func run(s *Settings, lines *outlet) (code int, err error) {
	os.WriteFile("/proc/self/comm", []byte("penstock-keeper"), 0) // execve(2) by descriptor names it after a number
	log := &logger{format: s.LogFormat, lines: lines}
	var inherited []*os.File
	for i := range s.Inherited {
		inherited = append(inherited, os.NewFile(uintptr(3+i), "inherited"))
	}
	times := s.Times()
	cfg := keeper.Config{
		Binary:  s.Binary,
		Args:    append([]string{program}, os.Args[1:]...),
		Env:     slices.DeleteFunc(os.Environ(), notForWorker),
		Inherit: inherited,
		Standby: []string{LabelConfig, LabelState, labelLedger},
		// A program that is none of ours does not even connect.
		ConnectTimeout: min(s.StartTimeout, maxConnectTimeout),
		ReadyTimeout:   times.ReadyTimeout,
		Watchdog:       times.Watchdog,
		Healthy:        times.Healthy,
		MaxBackoff:     times.MaxBackoff,
		Broker:         broker,
		CheckBinary:    checkBinary,
		Paused:         answerMeanwhile,
		Log:            log.event,
	}
	if states := notifier(); states != nil {
		defer states.close(time.Second)
		cfg.Notify = func(state string) { states.put(state) }
		cfg.NotifyEvery = pingEvery(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"), os.Getpid())
	}
	return keeper.Run(cfg)
}

// notForWorker reports whether an assignment is the keeper's alone. The service manager listens to its main
// process, which is the keeper, and that tells it that all is well.
func notForWorker(e string) bool {
	return strings.HasPrefix(e, "PENSTOCK_KEEPER") || strings.HasPrefix(e, "NOTIFY_SOCKET=") || strings.HasPrefix(e, "WATCHDOG_")
}

// logger writes the keeper's own lines, in the format of the worker's log.
type logger struct {
	format string
	lines  *outlet
}

// loud are the events that an operator should look at.
var loud = []keeper.Kind{keeper.WorkerDied, keeper.WorkerKilled, keeper.WorkerLied, keeper.StartDelayed, keeper.FellBack, keeper.KeeperKept, keeper.Problem, keeper.WorkerWrote}

func levelOf(e keeper.Event) string {
	switch {
	case e.Kind == keeper.WorkerKilled && e.Upgrade.DryRun: // as it was asked to
		return "INFO"
	case slices.Contains(loud, e.Kind), e.Kind == keeper.UpgradeStep && (e.Upgrade.State == keeper.Refused || e.Upgrade.State == keeper.RolledBack):
		return "WARN"
	}
	return "INFO"
}

func (l *logger) event(e keeper.Event) {
	level := levelOf(e)
	now := time.Now()
	switch l.format {
	case LogForPerson:
		if level == "WARN" { // above the live line, which the worker writes again
			l.lines.put(fmt.Sprintf("\r\x1b[K%s warn: keeper: %s\n", now.Format(time.TimeOnly), e))
		}
		return
	case "text":
		l.lines.put(fmt.Sprintf("time=%s level=%s msg=%q event=%s pid=%d\n", now.Format("2006-01-02T15:04:05.000Z07:00"), level, "keeper: "+e.String(), e.Kind, e.PID))
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
		l.lines.put(string(append(b, '\n')))
	}
}
