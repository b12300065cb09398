//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// writer has one connection through a relay, writes a row every few milliseconds, and connects again when that fails.
type writer struct {
	relay  string
	client string // what kind: see kinds
	addr   string
	within time.Duration
	on     func(conn) db // see kind

	mu       sync.Mutex
	acks     []ack
	readOnly int  // writes that a server refused because it is not the primary
	failed   int  // writes and connects that failed otherwise
	again    bool // connect again
	stop     chan struct{}
	work     sync.WaitGroup
}

// kinds are the clients that write through each relay. One gives up what takes longer than a second; the other waits until
// the relay or the server ends its connection.
var kinds = map[string]time.Duration{"hasty": time.Second, "patient": 0}

// ack is a row that a server has acknowledged.
type ack struct {
	row    int
	at     time.Time
	server string // its port
}

// between is the pause after each write, and before a new connection.
const between = 20 * time.Millisecond

func (w *writer) begin() {
	w.stop = make(chan struct{})
	w.work.Go(w.run)
}

func (w *writer) name() string { return w.relay + "/" + w.client }

func (w *writer) run() {
	var server db
	var port string
	defer func() {
		if server != nil {
			server.Close()
		}
	}()
	go func() { // ends what waits for ever
		<-w.stop
		w.mu.Lock()
		defer w.mu.Unlock()
		if server != nil {
			server.Close()
		}
	}()
	for row := 0; ; row++ {
		select {
		case <-w.stop:
			return
		case <-time.After(between):
		}
		var err error
		if server == nil {
			d := net.Dialer{Timeout: w.within}
			nc, bad := d.Dial("tcp", w.addr)
			if err = bad; err == nil {
				w.mu.Lock()
				server = w.on(conn{nc, w.within})
				w.mu.Unlock()
				port, err = server.start()
			}
		}
		if err == nil {
			err = server.write(w.name(), row)
		}
		w.mu.Lock()
		switch {
		case w.again: // it began before
		case err == nil:
			w.acks = append(w.acks, ack{row, time.Now(), port})
		case errors.Is(err, errStandby):
			w.readOnly++
		default:
			w.failed++
		}
		if (err != nil || w.again) && server != nil {
			server.Close()
			server = nil
		}
		w.again = false
		w.mu.Unlock()
	}
}

func (w *writer) end() {
	close(w.stop)
	w.work.Wait()
}

// forget forgets what was counted, and has the writer connect again.
func (w *writer) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acks, w.readOnly, w.failed, w.again = nil, 0, 0, true
}

// wrote reports whether a server has acknowledged a row since then. other: one that is not this server.
func (w *writer) wrote(since time.Time, server string, other bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.acks {
		if a.at.After(since) && (a.server == server) != other {
			return true
		}
	}
	return false
}

// outcome is what a fail-over did to a writer.
type outcome struct {
	Resumed  float64 // seconds from the event to the first row that another server has acknowledged
	Gap      float64 // seconds between the last row that the old primary has acknowledged before and that one
	Promoted float64 // seconds from the moment when the new primary said that it is one to that row; below 0: before
	Lost     float64 // acknowledged rows that are missing
	ReadOnly float64 // see writer
	Failed   float64 // see writer
	Stale    float64 // rows that the old primary has acknowledged after the first of the new one
}

// outcome returns what became of the rows that were acknowledged until now, and describes those that are missing. server is the new primary.
func (w *writer) outcome(event, promoted time.Time, old string, server db) (o outcome, missing []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock() // so that no row is acknowledged meanwhile
	read := time.Now()
	has, err := w.kept(server)
	if err != nil {
		return o, nil, err
	}
	for _, a := range w.acks {
		if !has[a.row] {
			missing = append(missing, fmt.Sprintf("row %d, acknowledged by the server at %s, %.3f s after the event and %.3f s before the rows were read", a.row, a.server, a.at.Sub(event).Seconds(), read.Sub(a.at).Seconds()))
		}
	}
	o = judge(w.acks, has, event, promoted, old)
	o.ReadOnly, o.Failed = float64(w.readOnly), float64(w.failed)
	return o, missing, nil
}

// judge says what became of acknowledged rows, in their order, of which the new primary has some.
func judge(acks []ack, has map[int]bool, event, promoted time.Time, old string) (o outcome) {
	var last, first time.Time
	for _, a := range acks {
		if !has[a.row] {
			o.Lost++
		}
		switch {
		case a.server == old && first.IsZero():
			last = a.at
		case a.server == old:
			o.Stale++
		case first.IsZero():
			first = a.at
		}
	}
	o.Resumed, o.Gap, o.Promoted = first.Sub(event).Seconds(), first.Sub(last).Seconds(), first.Sub(promoted).Seconds()
	return o
}

// kept returns which of its rows a server has.
func (w *writer) kept(server db) (map[int]bool, error) {
	all, err := server.rows(w.name())
	if err != nil {
		return nil, err
	}
	has := map[int]bool{}
	for _, text := range all {
		row, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		has[row] = true
	}
	return has, nil
}
