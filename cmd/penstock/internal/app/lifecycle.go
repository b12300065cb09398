package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
)

// runCmd is the command run.
type runCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"The configuration."`
}

// Help is what penstock run --help says below the flags.
func (runCmd) Help() string {
	return "SIGHUP reads the configuration again, SIGUSR1 opens log files again. The first SIGINT or SIGTERM stops listening and lets flows end; another one ends all at once.\n\n" + exitCodeHelp
}

func (c *runCmd) run(stderr *os.File) int {
	cfg, warnings, err := config.Load(c.Config, rules...)
	if err != nil {
		fmt.Fprintln(stderr, configMessage(err))
		return exitUsage
	}
	return (&lifecycle{file: c.Config, warnings: warnings}).run(cfg, stderr)
}

func (c *relayCmd) run(stderr *os.File) int { return (&lifecycle{}).run(c.config(), stderr) }

// configMessage is what a person is told of a configuration that cannot be used.
func configMessage(err error) string {
	var errs config.Errors
	if errors.As(err, &errs) {
		return errs.Error()
	}
	return "penstock: " + strings.ReplaceAll(err.Error(), "\n", " ")
}

// A life is a daemon from its start to its end, as signals rule it.
//
//	serving ──signal──▶ draining ──no flow left──▶ closed (0)
//	                       ├──deadline──▶ closed (3)
//	                       └──signal──▶ closed (4)
type lifecycle struct {
	file     string // of penstock run, which reads it again; empty: penstock relay
	warnings config.Warnings

	level slog.LevelVar
	log   *slog.Logger
	lines *logWriter
	d     *daemon
}

func (l *lifecycle) run(cfg *spec.Config, stderr *os.File) int {
	l.log, l.lines = newLog(stderr, &cfg.Log, &l.level)
	defer l.lines.close()
	// From here on a signal is this function's. Nobody who reads the log or a
	// socket may end the daemon by going away: SIGPIPE is an error of the write.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE)

	if n, err := raiseFdLimit(); err != nil {
		l.log.Warn("the descriptor limit stays as it is", "limit", n, "error", err)
	} else {
		l.log.Debug("descriptor limit", "limit", n)
	}
	l.warn(l.warnings)
	// A signal ends look-ups too; serve finds it in its channel again.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := l.start(ctx, cfg)
	stop()
	if err != nil {
		l.log.Error("cannot start", "error", err)
		return exitFailed
	}
	return l.serve(signals)
}

func (l *lifecycle) warn(warnings config.Warnings) {
	for _, w := range warnings {
		l.log.Warn("configuration", "warning", w.Error())
	}
}

// start makes a daemon that listens. The end of ctx ends look-ups of names.
func (l *lifecycle) start(ctx context.Context, cfg *spec.Config) (err error) {
	if l.d, err = newDaemon(l.log, &l.level, l.lines.droppedLines, cfg); err != nil {
		return err
	}
	l.d.load = l.load
	switch err = l.d.apply(ctx, cfg); {
	case err != nil:
	case l.file == "":
		err = l.d.waitForLookups(ctx, lookupTimeout) // nobody would correct a name on the command line
	default:
		l.d.waitForLookups(ctx, startLookups) // names that fail are told in the log, and asked for again
	}
	if err == nil {
		err = l.d.serveAdmin()
	}
	if err != nil {
		l.d.close()
	}
	return err
}

// startLookups is how long the start of penstock run waits for the first answers of DNS, so
// that the first clients find members.
const startLookups = time.Second

// serve is the life of a daemon that has started. It closes the daemon.
func (l *lifecycle) serve(signals <-chan os.Signal) int {
	l.d.ready()
	l.logNotifyError(systemd.Ready("serving"))
	watchdog, err := systemd.Watchdog(func() bool { l.d.engine.Stats(); return true })
	if err != nil {
		l.log.Warn("no watchdog", "error", err)
	} else {
		defer watchdog()
	}
	watch, err := watchFile(l.file)
	if err != nil {
		l.log.Warn("the configuration file is not watched", "error", err)
	}
	defer watch.close()
	for {
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				l.reload("signal")
			case syscall.SIGUSR1:
				l.d.reopen()
			default:
				return l.drain(s, signals)
			}
		case <-watch.changed:
			if l.d.active.Load().Reload.Watch {
				l.reload("the file has changed")
			}
		case <-l.d.shutdown.requested:
			return l.drain(nil, signals)
		}
	}
}

// load reads the file again.
func (l *lifecycle) load() (*spec.Config, error) {
	if l.file == "" {
		return nil, errors.New("this daemon has no configuration file: it was started by penstock relay")
	}
	cfg, warnings, err := config.Load(l.file, rules...)
	if err != nil {
		return nil, err
	}
	l.warn(warnings)
	return cfg, nil
}

// reload puts the file in force. A bad one changes nothing, and the log says why.
func (l *lifecycle) reload(why string) {
	l.logNotifyError(systemd.Reloading("reloading"))
	ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
	defer cancel()
	l.d.reload(ctx, why) // which also tells the manager that it is over
}

// reloadTimeout bounds the look-ups of a reload's new listeners.
const reloadTimeout = 20 * time.Second

func (l *lifecycle) logNotifyError(err error) {
	if err != nil {
		l.log.Warn("the service manager was not told", "error", err)
	}
}

// sameSignal is how soon the same signal is not a second one: timeout(1) and some
// managers send one to the process and one to its group.
const sameSignal = 200 * time.Millisecond

// drain ends the life. s is the signal that began it; nil: an operator did by the API.
func (l *lifecycle) drain(s os.Signal, signals <-chan os.Signal) int {
	cfg, by := l.d.active.Load(), "request"
	if s != nil {
		by = s.String()
	}
	began := time.Now()
	drained := l.d.drain()
	l.log.Info("draining", "signal", by, "flows", l.d.Draining().AtStart, "deadline", cfg.Drain)
	l.logNotifyError(systemd.Stopping("draining", cfg.Drain))
	code, how := exitOK, "drained"
wait:
	for {
		select {
		case err := <-drained:
			if err != nil {
				code, how = exitCut, "deadline passed"
			}
			break wait
		case again := <-signals:
			switch {
			case again == syscall.SIGUSR1:
				l.d.reopen()
			case again == syscall.SIGHUP, again == s && time.Since(began) < sameSignal:
			default:
				code, how = exitAtOnce, "second signal"
				break wait
			}
		}
	}
	l.d.engine.Close() // which ends the drain too
	l.d.close()        // which writes what the logs still have of flows
	stats := l.d.engine.Stats()
	total := stats.Total()
	l.log.Info("ended", "how", how, "accepted", total.Accepted, "bytes", total.BytesWritten)
	return code
}
