//go:build linux

// Canary publishes versions of a configuration to a fleet of daemons under load that varies, each first to a canary: harmless
// ones, which should be promoted, and outages, which should be taken back.
//
//	go run ./bench/trials/canary -publishes 50 -out result.txt
//	go run ./bench/trials/canary -publishes 20 -only "name of a listener|listener removed"
//
// The daemons run on 127.0.0.1 with a real etcd. Clients come at random, in bursts, more and fewer of them with time and
// differently to each relay, over TCP, TLS that passes through, TLS that ends at the relay, and UDP.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
)

// settings are the flags.
type settings struct {
	trial.Run
	publishes int
	relays    int
	rate      float64
	wait      time.Duration
	share     string
	seed      uint64
	only      string
	warm      time.Duration
}

func main() {
	var s settings
	s.Flags(flag.CommandLine)
	flag.IntVar(&s.publishes, "publishes", 50, "versions that are harmless")
	flag.IntVar(&s.relays, "relays", 6, "relays")
	flag.Float64Var(&s.rate, "rate", 20, "clients of a relay in a second, on average")
	flag.DurationVar(&s.wait, "wait", 8*time.Second, "how long a version is tried")
	flag.StringVar(&s.share, "canary", "34%", "the share of the relays that try a version")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of the load")
	flag.StringVar(&s.only, "only", "", "try only harmless versions and outages whose name matches this `REGEXP`")
	flag.DurationVar(&s.warm, "warm", 10*time.Second, "time before the first version")
	flag.Parse()
	wrong := 0
	trial.Main("canary", func() (err error) {
		wrong, err = s.run()
		return err
	})
	if wrong > 0 {
		os.Exit(3)
	}
}

// run does the trial, and returns how many versions ended as they should not.
func (s *settings) run() (wrong int, err error) {
	only, err := regexp.Compile(s.only)
	if err != nil {
		return 0, fmt.Errorf("-only: %w", err)
	}
	end, err := s.Begin(10_000)
	if err != nil {
		return 0, err
	}
	defer end()
	fmt.Fprintf(s.Out, "relays: %d\ncanary: %s\nwait: %v\nrate: %g\n\n", s.relays, s.share, s.wait, s.rate)
	m, err := newMembers(s.Dir)
	if err != nil {
		return 0, err
	}
	defer m.close()
	f, err := newFleet(s, s.Dir, m)
	if err != nil {
		return 0, err
	}
	defer f.close()
	l := startLoad(s, f, m)
	defer l.stop()
	time.Sleep(s.warm)
	try := func(v *version, good bool) {
		before := l.counts()
		begun := time.Now()
		text, code := f.try(v)
		verdict := "as it should be"
		if promoted := code == 0; promoted != good {
			wrong++
			verdict = "WRONG"
		}
		fmt.Fprintf(s.Out, "%-34s %-15s exit %d after %3.0fs; clients %s\n    %s\n", v.name, verdict, code, time.Since(begun).Seconds(), l.counts().since(before), text)
		if code == 0 && !good {
			f.rollback()
		}
	}
	harmless := 0
	for i := 0; harmless < s.publishes && i < kinds*s.publishes; i++ {
		if v := f.harmless(i); only.MatchString(v.name) {
			harmless++
			try(v, true)
		}
	}
	tried := 0
	for i := range outages {
		if o := &outages[i]; only.MatchString(o.name) {
			tried++
			try(f.outage(o, m), false)
		}
	}
	fmt.Fprintf(s.Out, "\n%d harmless versions and %d outages, of which %d ended as they should not\nclients: %s\n", harmless, tried, wrong, l.counts())
	return wrong, nil
}
