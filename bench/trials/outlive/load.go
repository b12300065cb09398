//go:build linux

package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/world"
)

const (
	messageSize = 64                    // of a stream with its head
	pace        = 20 * time.Millisecond // between an answer and the next message of a flow
	lossAfter   = 200 * time.Millisecond
)

// load is the traffic of a round, and its upstreams.
type load struct {
	addr      string
	stream    net.Listener
	datagram  *net.UDPConn
	streams   world.Talkers
	datagrams world.Senders
	fresh     world.Newcomers
	every     time.Duration // between new clients
	wrong     atomic.Int64  // messages at the upstream
	marked    time.Time     // when the event began
}

func newLoad(every time.Duration) (*load, error) {
	l := &load{every: every}
	rest := func(*rand.Rand) time.Duration { return pace }
	l.streams.Size, l.streams.Rest = func(*rand.Rand, int) int { return messageSize - world.MessageHead }, rest
	l.datagrams.Size, l.datagrams.Rest = func(*rand.Rand) int { return messageSize }, rest
	l.datagrams.Wait = lossAfter
	l.datagrams.Wrong = func(error) { l.wrong.Add(1) }
	var err error
	if l.stream, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if l.datagram, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	go world.ServeAnswers(l.stream, &l.wrong)
	go world.AnswerDatagrams(l.datagram, &l.datagrams)
	return l, nil
}

// begin opens all flows, and returns when each has had an answer, so that the event meets all of them.
func (l *load) begin(addr string, streams, datagrams int) error {
	l.addr = addr
	first := make(chan error, streams+datagrams)
	for range streams {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		l.streams.Begin(c, first)
	}
	for range datagrams {
		c, err := net.Dial("udp", addr)
		if err != nil {
			return err
		}
		l.datagrams.Begin(c, first)
	}
	end := time.After(patience)
	for range streams + datagrams {
		select {
		case err := <-first:
			if err != nil {
				return err
			}
		case <-end:
			return errors.New("not each flow has had an answer")
		}
	}
	return nil
}

// mark is the begin of the event: only what happens after it is of interest, to flows and to new clients.
func (l *load) mark() {
	l.marked = time.Now()
	l.streams.Mark()
	l.datagrams.Mark()
	l.fresh.Dial, l.fresh.Within, l.fresh.Size = world.Dial(l.addr), patience, messageSize-world.MessageHead
	l.fresh.Begin(l.every)
}

// end ends the load. A flow of datagrams is alive if its last one is answered, and if the upstream saw none come from another port.
func (l *load) end() (res result) {
	l.datagrams.Pause()
	l.streams.Stop()
	l.fresh.Stop()
	var pauses []time.Duration
	for _, t := range l.streams.All {
		switch _, err := t.Ended(); {
		case err == nil:
			res.Alive++
			_, gap := t.Measured()
			pauses = append(pauses, gap)
		case errors.Is(err, world.ErrWrong):
			res.Wrong++
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
			res.CleanEnds++
		case errors.Is(err, syscall.ECONNRESET):
			res.Resets++
		default:
			res.Stalled++
		}
	}
	var last sync.WaitGroup
	var alive atomic.Int64
	for _, f := range l.datagrams.All {
		last.Go(func() {
			if f.LastIsAnswered(pattern.DatagramHeader, 10*lossAfter) && !l.datagrams.Moved(f.ID) {
				alive.Add(1)
			}
		})
	}
	last.Wait()
	for _, f := range l.datagrams.All {
		sent, answered, _ := f.Measured()
		res.DatagramsLost += sent - answered
	}
	l.datagrams.Stop()
	l.stream.Close()
	l.datagram.Close()
	fresh, _ := l.fresh.Read(0)
	res.TCP, res.UDP, res.UDPAlive = len(l.streams.All), len(l.datagrams.All), int(alive.Load())
	res.New, res.NewFailed = fresh.Tried, fresh.Tried-fresh.Served
	res.Wrong += int(l.wrong.Load())
	res.setPauses(pauses)
	return res
}
