package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// lookupTimeout bounds all name look-ups at the start.
const lookupTimeout = 10 * time.Second

// run is the life of the command relay, and returns the exit code. It owns the
// engine, the journal and the signals.
func (c *relayCmd) run(stderr *os.File) int {
	log := newLog(stderr, c.LogFormat, c.LogLevel)

	// From here on a signal is this function's. Nobody who reads the log or a
	// socket may end the daemon by going away: SIGPIPE is an error of the write.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE)

	if n, err := raiseFdLimit(); err != nil {
		log.Warn("the descriptor limit stays as it is", "limit", n, "error", err)
	} else {
		log.Debug("descriptor limit", "limit", n)
	}

	journal := account.NewJournal(log, c.LogFlows)
	defer journal.Close()
	// A signal ends look-ups too; wait finds it in its channel again.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	set := upstream.NewSet(upstream.Options{})
	defer set.Close()
	engine, err := c.start(ctx, log, journal, set)
	stop()
	if err != nil {
		log.Error("cannot start", "error", err)
		return exitFailed
	}
	return c.wait(log, engine, signals)
}

// start makes an engine that listens. The caller closes it. The end of ctx ends
// look-ups of names.
func (c *relayCmd) start(ctx context.Context, log *slog.Logger, journal *account.Log, set *upstream.Set) (*relay.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	at, err := upstream.Resolve(ctx, net.DefaultResolver, c.Listen.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("listen on %w", err)
	}
	cfg := c.group()
	set.Apply([]*spec.Group{cfg})
	if err := set.Wait(ctx); err != nil {
		return nil, fmt.Errorf("upstream %w", err)
	}
	group := set.Group(cfg.Name)
	engine, err := relay.New(c.engineConfig())
	if err != nil {
		return nil, err
	}
	l, err := listen(engine, at[0], c.listenConfig(path(group, journal)))
	if err != nil {
		engine.Close()
		return nil, err
	}
	log.Info("ready", "listener", l.Addr().String(), "upstreams", group.Len())
	return engine, nil
}

// group is all upstreams, in turn, and after a failure each of the others.
func (c *relayCmd) group() *spec.Group {
	g := &spec.Group{Name: "upstreams", Balance: "round-robin", Retries: maxCount}
	for i, u := range c.Upstreams { // an upstream that is named twice has two turns
		g.Members = append(g.Members, spec.Member{Name: strconv.Itoa(i + 1), To: u.Endpoint, Weight: 1})
	}
	return g
}

// engineConfig also sets GOMAXPROCS to one more than the loops, so that they may
// keep theirs while they are busy.
func (c *relayCmd) engineConfig() relay.Config {
	loops := int(c.Loops)
	if loops == 0 {
		loops = runtime.GOMAXPROCS(0)
	}
	runtime.GOMAXPROCS(loops + 1)
	pipes := int(c.Pipes)
	if c.NoSplice {
		pipes = -1
	}
	return relay.Config{
		Loops: loops, Dedicated: true, MaxPipes: pipes,
		NoGSO: c.NoGSO, NoGRO: c.NoGRO, MaxDatagramFlows: int(c.MaxFlows), MaxNewFlows: int(c.MaxNewFlows),
	}
}

func (c *relayCmd) listenConfig(hooks relay.Hooks) relay.ListenConfig {
	halfClosed := time.Duration(c.HalfClosedTimeout)
	if halfClosed == 0 {
		halfClosed = -1 // the engine's "never"
	}
	cfg := relay.ListenConfig{
		Hooks: hooks,
		Timeouts: relay.Timeouts{
			Connect:    time.Duration(c.ConnectTimeout),
			Idle:       c.idle(),
			HalfClosed: halfClosed,
		},
		Socket: relay.SocketOptions{
			Delay:       c.Nagle,
			KeepAlive:   time.Duration(c.KeepAlive),
			UserTimeout: time.Duration(c.UserTimeout),
			RecvBuffer:  int(c.RecvBuffer),
			SendBuffer:  int(c.SendBuffer),
		},
		Datagram: c.datagrams(),
		Backlog:  int(c.Backlog),
		Mode:     uint32(c.SocketMode),
	}
	if len(c.Source) > 0 {
		cfg.Dial = &relay.DialConfig{Socket: cfg.Socket}
		for _, s := range c.Source {
			cfg.Dial.Source = append(cfg.Dial.Source, s.Addr)
		}
	}
	return cfg
}

// idle is the engine's idle timeout: 0 is its default, and "never" is negative.
func (c *relayCmd) idle() time.Duration {
	switch {
	case c.IdleTimeout == nil:
		return 0
	case *c.IdleTimeout == 0:
		return -1
	}
	return time.Duration(*c.IdleTimeout)
}

func (c *relayCmd) datagrams() relay.DatagramConfig {
	d := relay.DatagramConfig{Replies: int(c.Replies)}
	switch c.Unreachable {
	case "end":
		d.Unreachable = relay.UnreachableEnd
	case "ignore":
		d.Unreachable = relay.UnreachableIgnore
	}
	return d
}

// listen falls back to all IPv4 addresses where "all addresses" finds no IPv6.
func listen(e *relay.Engine, at relay.Addr, cfg relay.ListenConfig) (*relay.Listener, error) {
	l, err := e.Listen(at, cfg)
	if errors.Is(err, syscall.EAFNOSUPPORT) && at.IP.Addr() == netip.IPv6Unspecified() {
		at.IP = netip.AddrPortFrom(netip.IPv4Unspecified(), at.IP.Port())
		return e.Listen(at, cfg)
	}
	return l, err
}

// wait is the life of a started engine: until a signal, then draining, then
// closed.
//
//	serving ──signal──▶ draining ──no flow left──▶ closed (0)
//	                       ├──deadline──▶ closed (3)
//	                       └──signal──▶ closed (4)
func (c *relayCmd) wait(log *slog.Logger, engine *relay.Engine, signals <-chan os.Signal) int {
	first := <-signals
	stats := engine.Stats()
	log.Info("draining", "signal", first.String(), "flows", stats.Flows(), "deadline", time.Duration(c.DrainTimeout))

	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.DrainTimeout))
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- engine.Drain(ctx) }()
	code := exitOK
	select {
	case err := <-drained:
		if err != nil {
			code = exitCut
		}
	case <-signals:
		code = exitAtOnce
	}
	engine.Close() // which ends Drain too
	how := map[int]string{exitOK: "drained", exitCut: "deadline passed", exitAtOnce: "second signal"}
	stats = engine.Stats()
	total := stats.Total()
	log.Info("ended", "how", how[code], "accepted", total.Accepted, "bytes", total.BytesWritten)
	return code
}
