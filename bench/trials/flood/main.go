//go:build linux

// Flood shows what a flood of datagrams from forged addresses does to the sessions that a relay has,
// and to new clients that are honest: for penstock and nginx, in turn, with the same load.
//
//	go run ./bench/trials/flood -rates 5000,20000,60000,120000 -rounds 3
//	go run ./bench/trials/flood -kinds one,many,all,known -relays penstock,nginx-rcvbuf
//	go run ./bench/trials/flood -initials -listener "routes: [{sni: [a.test], to: upstream}]"
//
// Each round has fresh processes in a network namespace of its own: an upstream that echoes, a relay,
// old sessions that each send a datagram at a steady rate, new clients, and then the flood. A
// datagram has its client's number in each of its bytes' making, so that a reply that went to
// another client is seen. Needs root, and ip(8).
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// A bench is what was asked for on the command line. A child gets the same, as JSON.
type bench struct {
	trial.Run
	Flows    int
	Every    time.Duration // between datagrams of a session
	New      int           // honest new clients a second, of each sort
	Calm     time.Duration // before the flood
	Flood    time.Duration
	Size     int  // bytes of each datagram
	Initials bool // the flood's are Initial packets of QUIC
	Loops    int
	Replies  int
	Engine   string // more keys of the engine
	Listener string // more keys of the listener

	Relay, Kind string // of the round that a child runs
	Rate        int
}

// parts are the children of the program, and those of a round.
var parts = child.Parts{"round": child.Answers(runRound), "echo": child.Does(echo), "forge": child.Does(forge)}

func main() {
	trial.Main("flood", func() error {
		if is, err := parts.Play(os.Args[1:]); is {
			return err
		}
		return command()
	})
}

func command() error {
	b := &bench{}
	rounds := flag.Int("rounds", 1, "rounds")
	relays := flag.String("relays", "penstock,nginx,nginx-rcvbuf", "relays")
	kinds := flag.String("kinds", "all", "where the flood's datagrams come from: "+strings.Join(kindNames(), ", "))
	rates := flag.String("rates", "5000,20000,60000,120000", "datagrams of the flood per second")
	b.Flags(flag.CommandLine)
	flag.IntVar(&b.Flows, "flows", 200, "old flows")
	flag.DurationVar(&b.Every, "every", 100*time.Millisecond, "time between the datagrams of a session")
	flag.IntVar(&b.New, "new", 20, "new clients per second of known networks, and as many of quiet ones")
	flag.DurationVar(&b.Calm, "calm", 2*time.Second, "time before the flood")
	flag.DurationVar(&b.Flood, "flood", 6*time.Second, "length of the flood")
	flag.IntVar(&b.Size, "size", 64, "bytes of each datagram")
	flag.BoolVar(&b.Initials, "initials", false, fmt.Sprintf("the flood's datagrams have %d bytes, and are Initial packets of QUIC with half of a ClientHello, whose client never goes on", load.InitialSize))
	flag.IntVar(&b.Loops, "loops", 1, "event loops of the relay")
	flag.IntVar(&b.Replies, "replies", 0, "a flow ends after this many replies to each datagram; 0: never")
	flag.StringVar(&b.Engine, "engine", "", "further keys of penstock's engine, such as \"max-new-flows: 500\"")
	flag.StringVar(&b.Listener, "listener", "", "further keys of penstock's listener, such as \"amplification: 3\"")
	flag.Parse()
	for kind := range strings.SplitSeq(*kinds, ",") {
		if !slices.Contains(kindNames(), kind) {
			return fmt.Errorf("kind %q: allowed: %s", kind, strings.Join(kindNames(), ", "))
		}
	}
	end, err := b.Begin(60_000)
	if err != nil {
		return err
	}
	defer end()
	return b.run(strings.Split(*relays, ","), strings.Split(*kinds, ","), strings.Split(*rates, ","), *rounds)
}

// run runs all rounds, the relays in turn, and prints a line for each, and the table of medians.
func (b *bench) run(relays, kinds, rates []string, rounds int) error {
	out := b.Out
	fmt.Fprintf(out, "rounds: %d\nold-flows: %d\nevery: %v\nnew-clients: 2 x %d/s\ncalm: %v\nflood: %v\nsize: %d\ninitials: %t\nloops: %d\nreplies: %d\nengine: {%s}\nlistener: {%s}\n",
		rounds, b.Flows, b.Every, b.New, b.Calm, b.Flood, b.Size, b.Initials, b.Loops, b.Replies, b.Engine, b.Listener)
	peers, err := peer.Pick(peer.All(peer.Binaries{Penstock: b.Penstock}), strings.Join(relays, ","))
	if err != nil {
		return err
	}
	for _, p := range peers {
		if err := p.Missing(); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if err := peer.Describe(out, peers); err != nil {
		return err
	}
	var all []result
	for round := range rounds {
		for _, kind := range kinds {
			for _, rate := range rates {
				for i := range relays {
					one := *b
					one.Relay, one.Kind = relays[(i+round)%len(relays)], kind
					if one.Rate, err = strconv.Atoi(rate); err != nil {
						return fmt.Errorf("rate %q: want a number", rate)
					}
					res, err := one.round()
					if err != nil {
						return fmt.Errorf("%s, %s, %s/s: %w", one.Relay, kind, rate, err)
					}
					fmt.Fprintln(out, res.line())
					all = append(all, res)
				}
			}
		}
	}
	table(out, all)
	return nil
}

// round runs one round in a child process, in a network namespace of its own.
func (b *bench) round() (res result, err error) {
	err = trial.Round("round", b, proc.Place{}, &res)
	return res, err
}

// runRound runs one round.
func runRound(b *bench) (res result, err error) {
	if _, err := proc.RaiseFiles(60_000); err != nil {
		return res, err
	}
	return b.measure()
}
