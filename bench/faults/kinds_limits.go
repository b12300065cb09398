//go:build linux

package main

import (
	"net"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// limitKinds are resources that come to their end.
var limitKinds = []*kind{
	{
		name: "descriptors", part: "Limits", title: "Out of descriptors",
		what:  "The relay may have 256 descriptors. 300 clients connect and hold what they have, and 100 new datagram clients come per second, for 4 s.",
		want:  "Flows that are there go on, of streams and of datagrams. A client that is accepted is also served; others wait in the kernel's queue until descriptors are free, and nobody is reset.",
		needs: needs{Files: 256},
		fault: func(w *world) error {
			held := holders(w, 300)
			defer held.free()
			if w.r.udp {
				go strangers(w, 100)
			}
			time.Sleep(w.last(4 * time.Second))
			return nil
		},
		expect: func(o *outcome, v *verdict) {
			v.alive(o)
			v.kept(o)
			v.flowing(o, time.Second, 0.005)
			v.want(o.Notes["holders cut off"] == 0, "%.0f accepted clients cut off", o.Notes["holders cut off"])
			d, a := o.New.During, o.New.After
			v.want(d.Cut+a.Cut+d.Refused+a.Refused == 0, "%d of %d new clients cut off or refused", d.Cut+a.Cut+d.Refused+a.Refused, d.Tried+a.Tried)
			v.back(o, time.Second)
		},
	},
}

// A crowd is clients that hold their connections.
type crowd struct {
	w     *world
	conns []net.Conn
}

// holders connects clients that send a message, wait for its answer, and then only hold the connection.
func holders(w *world, n int) *crowd {
	c := &crowd{w: w}
	for range n {
		conn, err := net.DialTimeout("tcp", relayAddr(streamPort), time.Second)
		if err != nil {
			w.note("holders refused", 1)
			continue
		}
		c.conns = append(c.conns, conn)
		go func() {
			id := w.old.next.Add(1)
			p := pieces.Get().(*piece)
			defer pieces.Put(p)
			conn.Write(preface(wantEcho, id))
			writeMessage(conn, p, 100, id, pattern.Up, 0)
			if _, err := readMessage(conn, p, id, pattern.Down, 0); err == nil {
				w.note("holders served", 1)
				var b [1]byte
				_, err = conn.Read(b[:])
			} else if w.phase() != during {
				return // it was given up, or the fault is over
			}
			if w.phase() == during {
				w.note("holders cut off", 1)
			}
		}()
	}
	return c
}

// free ends the crowd.
func (c *crowd) free() {
	c.w.now.Store(int32(after))
	for _, conn := range c.conns {
		conn.Close()
	}
}

// strangers are datagram clients, so many per second, that send once and are gone.
func strangers(w *world, rate int) {
	b := make([]byte, 200)
	for w.phase() == during {
		c, err := net.Dial("udp", relayAddr(streamPort))
		if err != nil {
			return
		}
		c.Write(pattern.MakeDatagram(b, w.old.next.Add(1), 1, pattern.Up))
		c.Close()
		w.note("datagram clients", 1)
		time.Sleep(time.Second / time.Duration(rate))
	}
}
