package keeper_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/keeper"
)

// A server of goroutines, on package net: what a client says, all clients hear. Its listener and its connections survive
// kill -9. What the dead process had read and not passed on is lost; package relay shows how nothing is.
func Example_connections() {
	worker, err := keeper.Connect()
	switch {
	case err != nil:
		fail(err)
	case worker == nil:
		code, err := keeper.Run(keeper.Config{Log: func(e keeper.Event) { fmt.Fprintln(os.Stderr, e) }})
		if err != nil {
			fail(err)
		}
		os.Exit(code)
	}
	if err := worker.Prepared("version 1"); err != nil {
		fail(err)
	}
	r := room{worker: worker, members: make(map[uint64]net.Conn)}
	var listener net.Listener
	for _, item := range worker.Held() { // all of them, before the first one is read: each hears all others
		var err error
		switch item.Label {
		case "listener":
			listener, err = item.Listener()
		case "member":
			r.members[item.Key[1]], err = item.Conn()
			r.last = max(r.last, item.Key[1])
		}
		if err != nil {
			fail(err)
		}
	}
	for id, c := range r.members {
		go r.hear(id, c)
	}
	if listener == nil {
		if listener, err = net.Listen("tcp", address.String()); err != nil {
			fail(err)
		}
		if err := worker.HoldConn([2]uint64{1, 0}, "listener", listener.(syscall.Conn)); err != nil {
			fail(err)
		}
	}
	fmt.Printf("%v: %d members, process %d\n", listener.Addr(), len(r.members), os.Getpid())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		worker.Ready()
		for alive := time.Tick(time.Second); ; {
			select {
			case <-alive:
				worker.Alive()
			case <-stop:
				worker.Exiting()
				os.Exit(0)
			}
		}
	}()
	for {
		c, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		r.enter(c)
	}
}

// room is where the members hear each other.
type room struct {
	worker  *keeper.Worker
	mu      sync.Mutex
	members map[uint64]net.Conn // by the second word of their keys
	last    uint64              // of the ids so far
}

func (r *room) enter(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	if err := r.worker.HoldConn([2]uint64{2, r.last}, "member", c.(syscall.Conn)); err != nil {
		c.Close()
		return
	}
	r.members[r.last] = c
	go r.hear(r.last, c)
}

func (r *room) hear(id uint64, c net.Conn) {
	for lines := bufio.NewScanner(c); lines.Scan(); {
		r.mu.Lock()
		for _, to := range r.members {
			to.SetWriteDeadline(time.Now().Add(time.Second))
			io.WriteString(to, lines.Text()+"\n")
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	delete(r.members, id)
	r.mu.Unlock()
	r.worker.Drop([2]uint64{2, id})
	c.Close()
}
