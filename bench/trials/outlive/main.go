//go:build linux

// Outlive shows what becomes of long-lived flows when the process that carries them is killed or
// upgraded: for penstock with and without its keeper, HAProxy and nginx, under the same load.
//
//	go run ./bench/trials/outlive -rounds 5
//	go run ./bench/trials/outlive pause -rounds 20
//	go run ./bench/trials/outlive networks
//
// Each round has fresh processes in a network namespace of their own: TCP connections and UDP flows
// that send a message and wait for its echo again and again, and new clients all the time. Then the
// relay's worker is killed, or the relay is upgraded as its manual says.
//
// Outlive pause measures how long the clients of a penstock with a keeper wait then, if the daemon
// has thousands of connections.
//
// Outlive networks does the same to flows over links that lose, repeat, reorder and delay packets, are slow, get another MTU, or go
// away. It needs root, and a kernel with netem: make kernels has one.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// A bench is what was asked for on the command line. A child gets the same, as JSON.
type bench struct {
	trial.Run
	TCP, UDP int
	New      time.Duration // between new clients
	Settle   time.Duration // before the event
	Watch    time.Duration // after it
	Deadline time.Duration // of a process that lingers, in the event that has one

	Relay, Event string // of the round that a child runs
}

// parts are the children that rounds run in.
var parts = child.Parts{"round": child.Answers(runRound), "pause-round": child.Answers(runPauseRound), "network-round": child.Answers(runNetworkRound)}

func main() {
	trial.Main("outlive", func() error {
		if is, err := parts.Play(os.Args[1:]); is {
			return err
		}
		if len(os.Args) > 1 && os.Args[1] == "pause" {
			return pauseCommand(os.Args[2:])
		}
		if len(os.Args) > 1 && os.Args[1] == "networks" {
			return networksCommand(os.Args[2:])
		}
		return command()
	})
}

func command() error {
	b := &bench{}
	rounds := flag.Int("rounds", 3, "rounds")
	relays := flag.String("relays", strings.Join(names(relays), ","), "relays")
	events := flag.String("events", strings.Join(names(events), ","), "what happens to them")
	host := flag.Bool("host", os.Geteuid() != 0, "do not make network namespaces, for which root is needed")
	b.Flags(flag.CommandLine)
	flag.IntVar(&b.TCP, "tcp", 500, "TCP connections")
	flag.IntVar(&b.UDP, "udp", 100, "UDP flows, for relays that have UDP")
	flag.DurationVar(&b.New, "new", 5*time.Millisecond, "time between new clients")
	flag.DurationVar(&b.Settle, "settle", 3*time.Second, "time before the event")
	flag.DurationVar(&b.Watch, "watch", 6*time.Second, "time after the event")
	flag.DurationVar(&b.Deadline, "deadline", 3*time.Second, "in the event upgrade-deadline, how long an old process may linger")
	flag.Parse()
	end, err := b.Begin(8192)
	if err != nil {
		return err
	}
	defer end()
	return b.run(strings.Split(*relays, ","), strings.Split(*events, ","), *rounds, *host)
}

// run runs all rounds and prints a line for each, and the table of medians.
func (b *bench) run(relayNames, eventNames []string, rounds int, host bool) error {
	out := b.Out
	fmt.Fprintf(out, "rounds: %d\ntcp-flows: %d\nudp-flows: %d\nnew-client-every: %v\nbefore: %v\nafter: %v\ndeadline: %v\nfresh-network-namespace: %v\n",
		rounds, b.TCP, b.UDP, b.New, b.Settle, b.Watch, b.Deadline, !host)
	for _, name := range relayNames {
		r, err := find(relays, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s (%s)\n", name, r.version(b), r.note)
	}
	results := map[[2]string][]result{}
	var keys [][2]string
	for round := range rounds {
		for _, event := range eventNames {
			e, err := find(events, event)
			if err != nil {
				return err
			}
			for i := range relayNames {
				name := relayNames[(i+round)%len(relayNames)]
				r, _ := find(relays, name)
				if r.missing(b) != nil || !r.has(e) {
					continue
				}
				res, err := b.round(name, event, host)
				if err != nil {
					fmt.Fprintf(out, "# %s, %s: FAILED: %v\n", name, event, err)
					return fmt.Errorf("%s, %s: %w", name, event, err)
				}
				key := [2]string{event, name}
				if results[key] == nil {
					keys = append(keys, key)
				}
				results[key] = append(results[key], res)
				fmt.Fprintf(out, "BenchmarkOutlive/event=%s/relay=%s\t1\t%s\n", event, name, res.line())
			}
		}
	}
	table(out, keys, results)
	return nil
}

// round runs one round in a child, which is in a network namespace of its own unless host is true.
func (b *bench) round(relay, event string, host bool) (res result, err error) {
	one := *b
	one.Relay, one.Event = relay, event
	err = trial.Round("round", one, proc.Place{Host: host}, &res)
	return res, err
}

type named interface{ called() string }

func names[T named](all []T) (names []string) {
	for _, v := range all {
		names = append(names, v.called())
	}
	return names
}

func find[T named](all []T, name string) (T, error) {
	i := slices.IndexFunc(all, func(v T) bool { return v.called() == name })
	if i < 0 {
		var none T
		return none, fmt.Errorf("%q: allowed: %s", name, strings.Join(names(all), ", "))
	}
	return all[i], nil
}
