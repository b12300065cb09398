package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A client of a listener that the loops share waits in its queue until the loop accepts it that serves it: a
// process that is killed before that takes no client with it, and neither does one that hands over.
func TestClientsOfBusyLoop(t *testing.T) {
	for _, how := range []string{"kill", "handover"} {
		t.Run(how, func(t *testing.T) {
			k := newKeptTable(t)
			upstream := echoServer(t, "unix")
			o := keptOrder{Loops: 2, Listen: []string{keptPlace(t, "unix")}, Upstream: upstream.String()}
			proc := k.start(o)
			var all []net.Conn
			enter := func() {
				all = append(all, testnet.Dial(t, toNet(proc.addrs[0])))
			}
			proc.ask("stop the last loop")
			enter() // for the first loop, and the next one is for the second
			say(t, all[0], all[0], "first")
			k.settled(1)
			for range 5 {
				enter()
				proc.ask("turn")
			}
			if how == "handover" {
				proc.ask("start the last loop")
				proc.ask("handover")
			}
			proc.kill()
			proc = k.start(o)
			if r := proc.Restored; r.TotalLost() != 0 {
				t.Errorf("%+v", r)
			}
			for i, c := range all {
				say(t, c, c, fmt.Sprintf("client %d", i))
			}
			s := proc.ask("stats").Stats.Total()
			if n := int64(len(all)); s.Accepted != n || s.Ended[CauseCrashed.String()] != 0 || s.Flows != n {
				t.Errorf("%d clients: %d accepted, %d crashed, %d open", n, s.Accepted, s.Ended[CauseCrashed.String()], s.Flows)
			}
			for _, c := range all {
				c.Close()
			}
			k.settled(0)
		})
	}
}

// A listener that is being closed while the engine hands over accepts nobody after its flows are settled: who is
// not accepted by then waits in the queue for the next process, which may listen there again. Close returns.
func TestHandOverWhileListenerCloses(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			upstream := echoServer(t, "unix")
			o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, network)}, Upstream: upstream.String()}
			proc := k.start(o)
			o.Listen = proc.urls()
			proc.ask("stop the last loop")
			var all []net.Conn
			for range 10 * acceptBurst {
				all = append(all, testnet.Dial(t, toNet(proc.addrs[0])))
			}
			proc.ask("handover, closing")
			proc.kill()
			proc = k.start(o)
			if r := proc.Restored; r.TotalLost() != 0 {
				t.Errorf("%+v", r)
			}
			for i, c := range all {
				say(t, c, c, fmt.Sprintf("client %d", i))
				c.Close()
			}
			k.settled(0)
		})
	}
}

// closeAndHandOver closes the listeners of an engine whose loops do nothing before start, which is called when
// they have been asked, and hands over.
func closeAndHandOver(e *Engine, start func()) error {
	var closing sync.WaitGroup
	closed := make(chan struct{})
	e.mu.Lock()
	for l := range e.listeners {
		closing.Go(func() { l.Close() })
	}
	e.mu.Unlock()
	go func() {
		closing.Wait()
		close(closed)
	}()
	testwait.For(func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.listeners) == 0
	})
	start()
	if err := e.HandOver(context.Background()); err != nil {
		return err
	}
	select {
	case <-closed:
	case <-time.After(patience):
		return errors.New("Close does not return")
	}
	return nil
}
