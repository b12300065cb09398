//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/admin"
	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

// networksBench is what was asked for on the command line of outlive networks. A child gets the same, as JSON.
type networksBench struct {
	bench
	Times       int
	Every, Away time.Duration
	Network     string // of the round
}

// networkEvents are those of outlive networks, each of which happens several times in a round.
var networkEvents = []event{
	{"kills", "SIGKILL to every process that carries traffic"},
	{"upgrades", "to the same program, as the manual says (nginx: reloads)"},
}

// networkResult is what became of the flows of a round.
type networkResult struct {
	TCP, Alive, Cut, Stalled, Wrong int
	Messages                        int // of the TCP flows, answered
	Longest                         time.Duration
	UDP, UDPAlive                   int
	Asked, Lost, Repeated           int // datagrams, and answers
	Away                            int // of the asked: while the links were away
	Network, Sockets                int // datagrams that netem has dropped, and full sockets
}

// fault says what a relay has done that the network has not; "": nothing.
func (r networkResult) fault(n network) string {
	switch {
	case r.Wrong > 0:
		return "wrong bytes"
	case r.Alive < r.TCP || r.UDPAlive < r.UDP:
		return "flows ended"
	case r.Repeated > 0 && !n.twice:
		return "datagrams repeated"
	case r.Lost > r.Network+r.Sockets+r.Away:
		return "datagrams lost"
	}
	return ""
}

const networksHead = `
| network | event | relay | TCP flows that go on | cut, stalled | messages answered | longest pause | UDP flows that go on | datagrams asked | lost | dropped by the network, by full sockets | asked while away | repeated | wrong | what the network did not do |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

func (r networkResult) row(n network, event, relay string) string {
	udp := "no UDP | - | - | - | - | -"
	if r.UDP > 0 {
		udp = fmt.Sprintf("%d of %d | %d | %d | %d, %d | %d | %d", r.UDPAlive, r.UDP, r.Asked, r.Lost, r.Network, r.Sockets, r.Away, r.Repeated)
	}
	fault := r.fault(n)
	if fault == "" {
		fault = "-"
	}
	return fmt.Sprintf("| %s | %s | %s | %d of %d | %d, %d | %d | %.1f s | %s | %d | %s |\n", n.name, event, relay, r.Alive, r.TCP, r.Cut, r.Stalled, r.Messages,
		r.Longest.Seconds(), udp, r.Wrong, fault)
}

// networksCommand is outlive networks.
func networksCommand(args []string) error {
	b := &networksBench{}
	fs := flag.NewFlagSet("outlive networks", flag.ExitOnError)
	nets := fs.String("networks", strings.Join(names(networks), ","), "networks")
	relays := fs.String("relays", "penstock,haproxy,nginx", "relays")
	events := fs.String("events", strings.Join(names(networkEvents), ","), "what happens to them")
	b.Flags(fs)
	fs.IntVar(&b.TCP, "tcp", 10, "TCP connections")
	fs.IntVar(&b.UDP, "udp", 10, "UDP flows, for relays that have UDP")
	fs.IntVar(&b.Times, "times", 3, "how often the event happens in a round")
	fs.DurationVar(&b.Settle, "settle", 3*time.Second, "time before the first event")
	fs.DurationVar(&b.Every, "every", 4*time.Second, "time from an event to the next, and after the last")
	fs.DurationVar(&b.Away, "away", 10*time.Second, "how long a link is away, or has another MTU")
	fs.Parse(args)
	end, err := b.Begin(8192)
	if err != nil {
		return err
	}
	defer end()
	return b.runAll(strings.Split(*nets, ","), strings.Split(*relays, ","), strings.Split(*events, ","))
}

// runAll runs all rounds, and prints a row for each.
func (b *networksBench) runAll(nets, relayNames, eventNames []string) error {
	fmt.Fprintf(b.Out, "times: %d\nevery: %v\naway: %v\n%s", b.Times, b.Every, b.Away, networksHead)
	faults := 0
	for _, name := range nets {
		n, err := find(networks, name)
		if err != nil {
			return err
		}
		for _, event := range eventNames {
			if _, err := find(networkEvents, event); err != nil {
				return err
			}
			for _, relay := range relayNames {
				if r, err := find(relays, relay); err != nil {
					return err
				} else if r.missing(&b.bench) != nil {
					continue
				}
				one := *b
				one.Network, one.Relay, one.Event = name, relay, event
				var res networkResult
				if err := trial.Round("network-round", one, proc.Place{Host: true}, &res); err != nil {
					return fmt.Errorf("%s, %s, %s: %w", name, event, relay, err)
				}
				io.WriteString(b.Out, res.row(n, event, relay))
				if relay == "penstock" && res.fault(n) != "" {
					faults++
				}
			}
		}
	}
	if faults > 0 {
		return fmt.Errorf("in %d rounds, penstock has done what the network has not", faults)
	}
	return nil
}

// runNetworkRound runs one round, with a host each for clients, relay and upstreams.
func runNetworkRound(b *networksBench) (res networkResult, err error) {
	if _, err := adopt(8192); err != nil {
		return res, err
	}
	n, err := find(networks, b.Network)
	if err != nil {
		return res, err
	}
	r, err := find(relays, b.Relay)
	if err != nil {
		return res, err
	}
	err = proc.Place{Veth: true}.Run(func(h *proc.Hosts) error {
		w := &networkRound{b: b, network: n, relay: r, hosts: h}
		err := w.run()
		res = w.result
		return err
	})
	return res, err
}

// networkRound is one round.
type networkRound struct {
	b       *networksBench
	network network
	relay   *relay
	hosts   *proc.Hosts
	service *service

	streams   world.Talkers
	datagrams world.Senders
	wrong     atomic.Int64
	result    networkResult
}

func (w *networkRound) run() (err error) {
	stream, datagram, err := w.upstreams()
	if err != nil {
		return err
	}
	defer stream.Close()
	defer datagram.Close()
	s := setup{bench: &w.b.bench, upstream: stream.Addr().String(), upstreamUDP: datagram.LocalAddr().String(), listen: net.JoinHostPort(w.hosts.Relay, "7000"),
		start: w.hosts.Start, keeper: "{healthy-after: 1s}"}
	if w.network.loses {
		s.engine = "gso: false" // netem drops a run of datagrams as one
	}
	if w.service, err = w.relay.begin(&s); err != nil {
		return err
	}
	defer func() { err = w.service.end(err) }()
	if err := w.clients(s.listen); err != nil {
		return err
	}
	if err := w.kept(); err != nil {
		return err
	}
	time.Sleep(w.b.Settle)
	w.streams.Mark()
	w.datagrams.Mark()
	if err := errors.Join(w.network.spoil(w.hosts), w.events()); err != nil {
		return err
	}
	return w.end()
}

// upstreams starts them.
func (w *networkRound) upstreams() (stream net.Listener, datagram *net.UDPConn, err error) {
	err = w.hosts.OnUpstream(func() (err error) {
		if stream, err = net.Listen("tcp", net.JoinHostPort(w.hosts.Upstream, "0")); err != nil {
			return err
		}
		datagram, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(w.hosts.Upstream)})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	go world.ServeAnswers(stream, &w.wrong)
	go world.AnswerDatagrams(datagram, &w.datagrams)
	return stream, datagram, nil
}

// clients makes them, and waits until each has had an answer.
func (w *networkRound) clients(addr string) error {
	w.streams.Size = func(r *rand.Rand, _ int) int {
		if r.IntN(8) == 0 {
			return 16 << 10
		}
		return 1 + r.IntN(1000)
	}
	w.streams.Rest = func(*rand.Rand) time.Duration { return 5 * pace }
	w.streams.Wait = trial.Patience + 3*w.b.Away // TCP sends again after twice as long each time
	w.datagrams.Size = func(r *rand.Rand) int { return pattern.DatagramHeader + r.IntN(1000) }
	w.datagrams.Rest = w.streams.Rest
	w.datagrams.Wait = time.Second
	w.datagrams.Wrong = func(error) { w.wrong.Add(1) }
	udp := w.b.UDP
	if !w.relay.udp {
		udp = 0
	}
	first := make(chan error, w.b.TCP+udp)
	err := w.hosts.OnClient(func() error {
		for i := range w.b.TCP + udp {
			network := "tcp"
			if i >= w.b.TCP {
				network = "udp"
			}
			c, err := net.Dial(network, addr)
			if err != nil {
				return err
			}
			if network == "tcp" {
				w.streams.Begin(c, first)
			} else {
				w.datagrams.Begin(c, first)
			}
		}
		return nil
	})
	for range w.b.TCP + udp {
		if err == nil {
			err = <-first
		}
	}
	return err
}

// events lets the event happen, as often as it should, over a network that changes if it does.
func (w *networkRound) events() error {
	before := w.asked()
	begun := time.Now()
	if err := w.network.change(w.hosts, w.network.begin); err != nil {
		return err
	}
	if w.network.begin == "" {
		begun = begun.Add(-w.b.Away) // nothing to wait for
	}
	for i := range w.b.Times {
		time.Sleep(w.b.Every)
		if err := w.happen(); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		time.Sleep(w.b.Away - time.Since(begun))
		if err := w.back(before); err != nil {
			return err
		}
	}
	time.Sleep(w.b.Every)
	return nil
}

// back ends what the network's begin was.
func (w *networkRound) back(before int) error {
	if err := w.network.change(w.hosts, w.network.end); err != nil {
		return err
	}
	if w.network.away {
		w.result.Away = w.asked() - before + len(w.datagrams.All) // those on their way then, too
	}
	return nil
}

func (w *networkRound) happen() error {
	switch v := w.service; {
	case w.b.Event == "kills":
		v.Signal(syscall.SIGKILL)
		return w.ready()
	case w.relay.reload != nil:
		return w.relay.reload(v.s, v.First())
	default:
		return w.relay.upgrade(v.s, v.First())
	}
}

// kept waits until all flows of a penstock outlive its worker.
func (w *networkRound) kept() error {
	if w.relay.name != "penstock" {
		return nil
	}
	return proc.Until("all flows to be kept", patience, 100*time.Millisecond, func() error {
		n, err := peer.Settled(w.admin())
		if err == nil && n < int64(w.b.TCP+w.b.UDP) {
			err = fmt.Errorf("%d of %d are", n, w.b.TCP+w.b.UDP)
		}
		return err
	})
}

// ready waits until a worker relays; before, the next kill would be of the keeper.
func (w *networkRound) ready() error {
	if w.relay.name != "penstock" {
		return proc.Wait("a worker", patience, func() bool { return len(w.service.Workers()) > 0 })
	}
	return proc.Until("a worker to be ready", patience, 10*time.Millisecond, func() error {
		_, err := (&admin.Client{Socket: w.admin()}).Get("/readyz")
		return err
	})
}

// admin is the socket of a penstock's admin listener.
func (w *networkRound) admin() string { return filepath.Join(w.service.s.dir, "admin.sock") }

func (w *networkRound) asked() (n int) {
	for _, f := range w.datagrams.All {
		asked, _, _ := f.Measured()
		n += asked
	}
	return n
}

// end ends the load, and says what became of it. A flow of datagrams goes on if one of its last ones is answered, and the upstream saw none
// of it come from another port.
func (w *networkRound) end() error {
	res := &w.result
	w.datagrams.Pause()
	w.streams.Stop()
	var last sync.WaitGroup
	var alive atomic.Int64
	for _, f := range w.datagrams.All {
		last.Go(func() {
			for range 5 {
				if f.LastIsAnswered(pattern.DatagramHeader, 3*time.Second) && !w.datagrams.Moved(f.ID) {
					alive.Add(1)
					return
				}
			}
		})
	}
	last.Wait()
	time.Sleep(time.Second) // for the last answers
	res.TCP, res.UDP, res.UDPAlive, res.Asked = len(w.streams.All), len(w.datagrams.All), int(alive.Load()), w.asked()
	for _, f := range w.datagrams.All {
		asked, answered, _ := f.Measured()
		res.Lost += asked - answered
		res.Repeated += f.Repeated()
	}
	for _, t := range w.streams.All {
		waits, gap := t.Measured()
		res.Messages += len(waits)
		var timeout net.Error
		switch _, err := t.Ended(); {
		case err == nil:
			res.Alive++
			res.Longest = max(res.Longest, gap)
		case errors.Is(err, world.ErrWrong):
			res.Wrong++
		case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
			res.Stalled++
		default:
			res.Cut++
		}
	}
	res.Wrong += int(w.wrong.Load())
	w.datagrams.Stop()
	var err error
	res.Network, res.Sockets, err = dropped(w.hosts)
	return err
}
