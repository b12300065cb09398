package keeper_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// A server whose connections survive kill -9: the same program is the keeper and the worker, and the
// worker has an engine that keeps its flows. This is the whole main function.
func Example() {
	worker, err := keeper.Connect()
	switch {
	case err != nil:
		fail(err)
	case worker == nil: // started by somebody else than a keeper
		code, err := keeper.Run(keeper.Config{
			Log: func(e keeper.Event) { fmt.Fprintln(os.Stderr, e) },
		})
		if err != nil {
			fail(err)
		}
		os.Exit(code)
	default:
		serve(worker)
	}
}

var address = netip.MustParseAddrPort("127.0.0.1:7007")

func serve(worker *keeper.Worker) {
	// Here a program reads its configuration: a new version that cannot exits, and the old one continues.
	if err := worker.Prepared("version 1"); err != nil {
		fail(err)
	}
	var held []hold.Held // what the worker before this one has left
	for _, item := range worker.Held() {
		held = append(held, hold.Held(item))
	}
	engine, err := relay.New(relay.Config{Keep: &hold.Keep{Holder: worker, Held: held, After: -1}})
	if err != nil {
		fail(err)
	}
	// The address has a fixed port, because the next worker finds the listener by it.
	listener, err := engine.Listen(relay.Addr{Network: relay.TCP, AddrPort: address}, relay.ListenConfig{Hooks: relay.Hooks{
		Upstream: func(*relay.Flow, int) *relay.Addr { return &relay.Addr{Network: relay.Echo} },
	}})
	if err != nil {
		fail(err)
	}
	restored, err := engine.Restore(relay.RestoreConfig{})
	if err != nil {
		fail(err)
	}
	fmt.Printf("%v: %d flows continue, %d lost, process %d\n", listener.Addr(), restored.Flows, restored.TotalLost(), os.Getpid())

	handOver := make(chan struct{}, 1)
	worker.OnHandOver(func() { handOver <- struct{}{} })
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	worker.Ready()
	for alive := time.Tick(time.Second); ; {
		select {
		case <-alive:
			engine.Stats() // returns if the event loops are well
			worker.Alive()
		case <-handOver: // to the next version, on SIGUSR2
			if err := engine.HandOver(context.Background()); err != nil {
				fail(err)
			}
			worker.HandedOver()
			os.Exit(0)
		case <-stop:
			worker.Exiting()
			engine.Close()
			os.Exit(0)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
