//go:build linux

package main

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/proc"
)

// An attack is what somebody between the relay and one of its peers does to three records of that peer while the worker is killed.
type attack struct {
	name   string
	before func(r [3][]byte) []byte // what the relay gets of them before the kill
	behind func(r [3][]byte) []byte // what it gets then
	cut    bool                     // and the end of the connection
	wrong  bool                     // there is a record that is not the next one, so that the flow must end with an error, as if it is cut
	whole  int                      // records that arrive before
}

var attacks = []attack{
	{name: "none", before: first, behind: func(r [3][]byte) []byte { return join(r[1], r[2]) }},
	{name: "a record in two pieces", before: func(r [3][]byte) []byte { return r[0][:600] }, behind: func(r [3][]byte) []byte { return join(r[0][600:], r[1], r[2]) }},
	{name: "a header in two pieces", before: func(r [3][]byte) []byte { return r[0][:3] }, behind: func(r [3][]byte) []byte { return join(r[0][3:], r[1], r[2]) }},
	{name: "cut behind a record", before: first, behind: nothing, cut: true, whole: 1},
	{name: "cut within a record", before: func(r [3][]byte) []byte { return join(r[0], r[1][:600]) }, behind: nothing, cut: true, whole: 1},
	{name: "cut within a record, of which a piece comes later", before: func(r [3][]byte) []byte { return join(r[0], r[1][:600]) },
		behind: func(r [3][]byte) []byte { return r[1][600:700] }, cut: true, whole: 1},
	{name: "a record again", before: first, behind: first, whole: 1, wrong: true},
	{name: "an old record again", before: func(r [3][]byte) []byte { return join(r[0], r[1]) }, behind: first, whole: 2, wrong: true},
	{name: "a record left out", before: first, behind: func(r [3][]byte) []byte { return r[2] }, whole: 1, wrong: true},
	{name: "the next record first", before: func(r [3][]byte) []byte { return r[1] }, behind: first, wrong: true},
	{name: "two records swapped", before: first, behind: func(r [3][]byte) []byte { return join(r[2], r[1]) }, whole: 1, wrong: true},
	{name: "pieces of two records", before: func(r [3][]byte) []byte { return r[0][:600] }, behind: func(r [3][]byte) []byte { return r[1][600:] }, wrong: true},
}

func first(r [3][]byte) []byte { return r[0] }
func nothing([3][]byte) []byte { return nil }
func join(all ...[]byte) (b []byte) {
	for _, one := range all {
		b = append(b, one...)
	}
	return b
}

// between is somebody between the relay and a peer: it passes on what they send, and once it is armed, has the peer's records.
type between struct {
	peer, relay *net.TCPConn
	arm         chan struct{}
	records     chan []byte
}

func newBetween(peer, relay net.Conn) *between {
	b := &between{peer: peer.(*net.TCPConn), relay: relay.(*net.TCPConn), arm: make(chan struct{}), records: make(chan []byte, 3)}
	go func() {
		if _, err := io.Copy(b.peer, b.relay); err != nil {
			b.peer.SetLinger(0) // a reset stays one
			b.peer.Close()
			return
		}
		b.peer.CloseWrite()
	}()
	go func() {
		for {
			record := make([]byte, 5, 5+16<<10+256)
			if _, err := io.ReadFull(b.peer, record); err != nil {
				b.relay.CloseWrite()
				return
			}
			record = record[:5+binary.BigEndian.Uint16(record[3:])]
			if _, err := io.ReadFull(b.peer, record[5:]); err != nil {
				return
			}
			select {
			case <-b.arm:
				b.records <- record
			default:
				b.relay.Write(record)
			}
		}
	}()
	return b
}

// attacked is a flow of which one peer's connection is attacked.
type attacked struct {
	*between
	id                   uint64
	sender, receiver     net.Conn // the peer behind the attack, and the other one
	sent                 int64
	atSender, atReceiver chan ended
}

// ended is what came to one end of a flow, and how that ended.
type ended struct {
	n   int64
	err error
}

const (
	greeting = 100  // bytes of each end before the attack
	record   = 1000 // bytes in each record that is attacked
)

// attack has the next attack of the list, at the client's side and then at the upstream's. What follows the kill comes when nobody relays, or later.
func (s *setup) attack() error {
	a, side := &attacks[s.attacked/2%len(attacks)], [...]string{"client", "upstream"}[s.attacked%2]
	s.attacked++
	late := rand.IntN(2) == 0
	if err := s.attackWith(a, side, late); err != nil {
		s.fault("%s, at the %s's side, late %v: %v", a.name, side, late, err)
	}
	return nil
}

func (s *setup) attackWith(a *attack, side string, late bool) error {
	f, err := s.openAttacked(side)
	if err != nil {
		return err
	}
	defer f.close()
	close(f.arm)
	var r [3][]byte
	for i := range r {
		if r[i], err = f.record(s, record); err != nil {
			return err
		}
	}
	if _, err := f.relay.Write(a.before(r)); err != nil {
		return err
	}
	behind := func() {
		f.relay.Write(a.behind(r)) // which may fail if the flow has ended
		if a.cut {
			f.relay.CloseWrite()
		}
	}
	if late {
		err = s.killed(func() {})
		behind()
	} else {
		err = s.killed(behind)
	}
	if err != nil {
		return err
	}
	if !a.cut && !a.wrong {
		return f.goesOn(s)
	}
	for _, end := range []struct {
		name string
		came chan ended
		n    int
	}{{"the other end", f.atReceiver, greeting + a.whole*record}, {"the peer", f.atSender, greeting}} {
		e, err := s.wait(end.came)
		if err == nil && (e.n != int64(end.n) || e.err == nil || e.err == io.EOF || errors.Is(e.err, os.ErrDeadlineExceeded) || errors.Is(e.err, errWrong)) {
			err = fmt.Errorf("%d bytes and %w, where %d and an error were to come", e.n, e.err, end.n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", end.name, err)
		}
	}
	return nil
}

// goesOn ends a flow as its ends should.
func (f *attacked) goesOn(s *setup) error {
	f.sender.(*tls.Conn).CloseWrite()
	last, err := f.next(s)
	if err != nil {
		return err
	}
	if _, err := f.relay.Write(last); err != nil {
		return err
	}
	if e, err := s.wait(f.atReceiver); err != nil || e.err != io.EOF || e.n != greeting+3*record {
		return fmt.Errorf("the other end: %d bytes and %w, %w", e.n, e.err, err)
	}
	f.receiver.(*net.TCPConn).CloseWrite()
	if e, err := s.wait(f.atSender); err != nil || e.err != io.EOF || e.n != greeting {
		return fmt.Errorf("the peer: %d bytes and %w, %w", e.n, e.err, err)
	}
	return nil
}

func (s *setup) wait(came chan ended) (e ended, err error) {
	select {
	case e = <-came:
	case <-time.After(s.patience):
		err = errors.New("it does not end")
	}
	return e, err
}

// openAttacked makes a flow, and waits until the kernel has its TLS.
func (s *setup) openAttacked(side string) (f *attacked, err error) {
	f = &attacked{id: s.ids.Add(1), atSender: make(chan ended, 1), atReceiver: make(chan ended, 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	far, err := l.Accept()
	if err != nil {
		return nil, err
	}
	client, err := net.Dial("tcp", "127.0.0.1:"+s.ports["attacked-"+side])
	if err != nil {
		return nil, err
	}
	s.attackedUpstream.SetDeadline(time.Now().Add(s.patience))
	var secure *tls.Conn
	if side == "client" {
		f.between = newBetween(far, client)
		secure = tls.Client(strict{near}, &tls.Config{RootCAs: s.roots, ServerName: certs.Name})
	} else {
		f.receiver = client
		upstream, err := s.attackedUpstream.Accept()
		if err != nil {
			return nil, err
		}
		f.between = newBetween(far, upstream)
		secure = tls.Server(strict{near}, &tls.Config{Certificates: []tls.Certificate{s.cert}})
	}
	f.sender = secure
	near.SetDeadline(time.Now().Add(s.patience))
	if err := secure.Handshake(); err != nil {
		return nil, err
	}
	near.SetDeadline(time.Time{})
	if side == "client" {
		if f.receiver, err = s.attackedUpstream.Accept(); err != nil {
			return nil, err
		}
	}
	go f.read(f.sender, pattern.Down, f.atSender)
	go f.read(f.receiver, pattern.Up, f.atReceiver)
	if err := f.send(greeting); err != nil {
		return nil, err
	}
	b := make([]byte, greeting)
	pattern.Fill(b, f.id, pattern.Down, 0)
	if _, err := f.receiver.Write(b); err != nil {
		return nil, err
	}
	return f, proc.Until("TLS of the kernel for a flow to attack", s.patience, 50*time.Millisecond, func() error {
		flows, given := 0, false
		err := s.flows(func(detail []byte) error {
			var flow struct {
				Listener string                 `json:"listener"`
				Client   *struct{ Kernel bool } `json:"client_tls"`
				Upstream *struct{ Kernel bool } `json:"upstream_tls"`
			}
			err := json.Unmarshal(detail, &flow)
			if flow.Listener == "attacked-"+side {
				flows++
				given = flow.Client != nil && flow.Client.Kernel || flow.Upstream != nil && flow.Upstream.Kernel
			}
			return err
		})
		if err == nil && (flows != 1 || !given) {
			err = fmt.Errorf("of %d flows, the last one's given: %v", flows, given)
		}
		return err
	})
}

// strict is a connection below TLS that does not end: crypto/tls takes an end between two records for close_notify.
type strict struct{ net.Conn }

func (c strict) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == io.EOF {
		err = errors.New("ended without close_notify")
	}
	return n, err
}

func (f *attacked) close() {
	f.relay.Close()
	f.peer.Close()
	f.sender.Close()
	f.receiver.Close()
}

// read compares what comes to an end with what the other one sends.
func (f *attacked) read(from io.Reader, d pattern.Direction, to chan ended) {
	var e ended
	b, scratch := make([]byte, 4096), make([]byte, 4096)
	for e.err == nil {
		n, err := from.Read(b)
		if _, bad := pattern.Compare(b[:n], scratch, f.id, d, e.n); bad != nil {
			err = fmt.Errorf("%w: %v at %d: %s", errWrong, d, e.n, bad.Text)
		}
		e.n += int64(n)
		e.err = err
	}
	to <- e
}

// send has the peer send n bytes, which are a record.
func (f *attacked) send(n int) error {
	b := make([]byte, n)
	pattern.Fill(b, f.id, pattern.Up, f.sent)
	f.sent += int64(n)
	_, err := f.sender.Write(b)
	return err
}

// record returns the next record of the peer, with n bytes.
func (f *attacked) record(s *setup, n int) ([]byte, error) {
	if err := f.send(n); err != nil {
		return nil, err
	}
	return f.next(s)
}

func (f *attacked) next(s *setup) ([]byte, error) {
	select {
	case r := <-f.records:
		return r, nil
	case <-time.After(s.patience):
		return nil, errors.New("no record comes from the peer")
	}
}
