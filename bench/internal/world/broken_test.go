//go:build linux

package world

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// brokenRelay is a relay for the tests that can do what a relay must not do.
type brokenRelay struct {
	upstream string
	fault    string
	l        net.Listener
	packets  *net.UDPConn
	all      sync.WaitGroup
	conns    sync.Map
	n        atomic.Int64 // bytes relayed
	done     atomic.Bool  // the fault has been made
	swap     chan net.Conn
}

// startBroken starts a relay with a fault, "" for none, that ends with the test.
func startBroken(t *testing.T, network, upstream, fault string) (*brokenRelay, string) {
	t.Helper()
	b := &brokenRelay{upstream: upstream, fault: fault, swap: make(chan net.Conn, 1)}
	t.Cleanup(b.close)
	if network == "udp" {
		pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		b.packets = pc
		b.all.Go(b.datagrams)
		return b, pc.LocalAddr().String()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.l = l
	b.all.Go(b.accept)
	return b, l.Addr().String()
}

func (b *brokenRelay) close() {
	if b.l != nil {
		b.l.Close()
	}
	if b.packets != nil {
		b.packets.Close()
	}
	b.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
	b.all.Wait()
}

func (b *brokenRelay) accept() {
	for {
		c, err := b.l.Accept()
		if err != nil {
			return
		}
		u, err := net.Dial("tcp", b.upstream)
		if err != nil {
			c.Close()
			return
		}
		b.conns.Store(c, nil)
		b.conns.Store(u, nil)
		b.all.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { b.pass(u, c, true) })
			both.Go(func() { b.pass(c, u, false) })
			both.Wait()
			c.Close()
			u.Close()
			b.conns.Delete(c)
			b.conns.Delete(u)
		})
	}
}

// pass copies one direction, with the fault once.
func (b *brokenRelay) pass(dst, src net.Conn, upward bool) {
	p := make([]byte, 32<<10)
	for moved := 0; ; {
		n, err := src.Read(p)
		if errors.Is(err, io.EOF) && b.fault != "clean" {
			if arrived, _ := finArrived(src.(*net.TCPConn), int64(moved)); !arrived {
				err = syscall.ECONNRESET // of which a write of the other direction was told
			}
		}
		// Behind the prefaces, and once.
		out := p[:n]
		if upward && moved > 64<<10 && n > 4096 {
			switch b.fault {
			case "lose":
				if b.once() {
					out = append(out[:1000:1000], out[1001:]...)
				}
			case "lose many":
				if b.once() {
					out = out[:1000]
				}
			case "twice":
				if b.once() {
					out = append(out[:2000:2000], out[1000:]...)
				}
			case "wrong":
				if b.once() {
					out[n/2] ^= 0x10
				}
			case "end":
				if b.once() {
					dst.(*net.TCPConn).CloseWrite()
					io.Copy(io.Discard, src)
					return
				}
			case "reset":
				if b.once() {
					dst.(*net.TCPConn).SetLinger(0)
					dst.Close()
					src.(*net.TCPConn).SetLinger(0)
					src.Close()
					return
				}
			case "swap":
				// The bytes of one flow go to the next one's upstream.
				if !b.done.Load() {
					select {
					case other := <-b.swap:
						if other != dst && b.once() {
							if _, err := other.Write(out); err == nil {
								out = nil
							} else {
								b.done.Store(false) // that flow has ended meanwhile: the mistake is made later
							}
						}
					case b.swap <- dst:
					default:
					}
				}
			}
		}
		if _, werr := dst.Write(out); werr != nil && err == nil {
			err = werr
		}
		moved += n
		b.n.Add(int64(n))
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			dst.(*net.TCPConn).CloseWrite()
			return
		default:
			if b.fault == "clean" && errors.Is(err, syscall.ECONNRESET) {
				dst.(*net.TCPConn).CloseWrite() // what it must never do
				return
			}
			dst.(*net.TCPConn).SetLinger(0)
			dst.Close()
			src.(*net.TCPConn).SetLinger(0)
			src.Close()
			return
		}
	}
}

func (b *brokenRelay) once() bool { return b.done.CompareAndSwap(false, true) }

// datagrams relays datagrams, with a socket for each client.
func (b *brokenRelay) datagrams() {
	flows := make(map[string]*net.UDPConn)
	var clients []*net.UDPAddr
	p := make([]byte, 2048)
	for n := 0; ; n++ {
		k, from, err := b.packets.ReadFromUDP(p)
		if err != nil {
			return
		}
		key := from.String()
		u := flows[key]
		if b.fault == "replaced" && n > 100 && u != nil && b.once() {
			u = nil
		}
		if u == nil {
			at, err := net.ResolveUDPAddr("udp", b.upstream)
			if err != nil {
				return
			}
			if u, err = net.DialUDP("udp", nil, at); err != nil {
				return
			}
			flows[key] = u
			b.conns.Store(u, nil)
			clients = append(clients, from)
			others := clients
			b.all.Go(func() {
				p := make([]byte, 2048)
				for {
					k, err := u.Read(p)
					if errors.Is(err, net.ErrClosed) {
						return
					}
					if err != nil {
						continue
					}
					to := from
					if b.fault == "other client" && len(others) > 1 && b.once() {
						to = others[0]
					}
					b.packets.WriteToUDP(p[:k], to)
					if b.fault == "answer twice" && b.once() {
						b.packets.WriteToUDP(p[:k], to)
					}
				}
			})
		}
		u.Write(p[:k])
		if b.fault == "request twice" && n > 10 && b.once() {
			u.Write(p[:k])
		}
	}
}
