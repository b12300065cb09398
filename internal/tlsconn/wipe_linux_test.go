package tlsconn

import (
	"crypto/tls"
	"reflect"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// newGivable returns two ends of a connection that may be given to the kernel.
func newGivable(t *testing.T, tickets bool) *pairOfConns {
	w := &wires{}
	for i := range w.inbox {
		w.inbox[i].room = 1 << 20
	}
	server := &tls.Config{Certificates: []tls.Certificate{certificate()}, KeyLogWriter: Marked{}, SessionTicketsDisabled: !tickets}
	client := &tls.Config{InsecureSkipVerify: true, ServerName: "relay.example", KeyLogWriter: Marked{}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	p := &pairOfConns{t: t, w: w, env: &Env{Kernel: w, Buffers: new(pool.Buffers)}}
	p.end = [2]*end{{Conn: Server(server), fd: 0}, {Conn: Client(client), fd: 1}}
	p.handshake(false)
	return p
}

// What crypto/tls has of the keys of a connection is overwritten when the kernel gets it, with this release of Go.
func TestGivenIsWiped(t *testing.T) {
	p := newGivable(t, true)
	if _, e := p.end[1].Recv(p.env, 1, true, false, make([]byte, 1)); e != sys.EAGAIN { // the ticket
		t.Fatal(e)
	}
	for i, e := range p.end {
		before := e.tls
		if n := numbers(before); n < 2*(32+12+16) {
			t.Fatalf("end %d has only %d bytes of keys before, which are not all", i, n)
		}
		if _, now := e.Givable(); !now || !e.Give(p.w, e.fd) {
			t.Fatalf("end %d was not given to the kernel", i)
		}
		if n := numbers(before); n > 0 {
			t.Errorf("end %d has %d bytes of keys left", i, n)
		}
	}
}

// A connection is given to the kernel behind tickets, which the client keeps, and behind data, and goes on there.
func TestGivenBehindData(t *testing.T) {
	p := newGivable(t, true)
	exchange := func(text string) {
		t.Helper()
		for i, from := range p.end {
			to, b := p.end[1-i], make([]byte, 100)
			if n, e := from.Send(p.env, from.fd, []byte(text)); n != len(text) || e != 0 {
				t.Fatal(n, e)
			}
			if n, e := to.Recv(p.env, to.fd, true, false, b); e != 0 || string(b[:n]) != text {
				t.Fatalf("%q, %v", b[:n], e)
			}
		}
	}
	exchange("before")
	if _, ok := p.end[1].give.cache.Get("relay.example"); !ok {
		t.Error("the client has not kept its ticket")
	}
	for i, e := range p.end {
		if _, now := e.Givable(); !now || !e.Give(p.w, e.fd) {
			t.Fatalf("end %d was not given to the kernel", i)
		}
	}
	exchange("behind")
}

// A connection whose peer has changed its keys is never given to the kernel, whatever crypto/tls says of its secrets.
func TestKeyUpdateIsNoticed(t *testing.T) {
	p := newGivable(t, false)
	sealed, _ := serverRecords(t, p).Seal(sys.RecordHandshake, []byte{24, 0, 0, 1, 0})
	p.w.put(0, sealed)
	if _, e := p.end[1].Recv(p.env, 1, true, false, make([]byte, 1)); e != sys.EAGAIN {
		t.Fatal(e)
	}
	if ever, _ := p.end[1].Givable(); ever {
		t.Error("it may be given later")
	}
}

// serverRecords makes what comes next from the server of a connection.
func serverRecords(t *testing.T, p *pairOfConns) *simkernel.Records {
	t.Helper()
	server := p.end[0]
	suite := server.tls.ConnectionState().CipherSuite
	out, ok := keys(suite, server.give.secret[0], server.give.sent)
	in, ok2 := keys(suite, server.give.secret[1], server.give.read)
	if !ok || !ok2 {
		t.Fatal("no keys")
	}
	return simkernel.NewRecords(&out, &in)
}

// A connection whose peer has changed its keys behind a ticket, in one record, is not given to the kernel, and goes on.
func TestKeyUpdateBehindTicket(t *testing.T) {
	p := newGivable(t, false)
	client := p.end[1]
	ticket := []byte{4, 0, 0, 14, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 9, 0, 0} // RFC 8446, 4.6.1: a lifetime, an age, no nonce, one byte, no extensions
	keyUpdate := []byte{24, 0, 0, 1, 0}
	sealed, _ := serverRecords(t, p).Seal(sys.RecordHandshake, slices.Concat(ticket, keyUpdate))
	p.w.put(0, sealed)
	if _, e := client.Recv(p.env, 1, true, false, make([]byte, 1)); e != sys.EAGAIN || client.Err != nil {
		t.Fatal(e, client.Err)
	}
	if client.Give(p.w, 1) || client.Failed() {
		t.Errorf("it was given to the kernel, or has failed: %v", client.Err)
	}
	if ever, _ := client.Givable(); ever {
		t.Error("it may be given later")
	}
}

// numbers returns how many bytes of the keys of a connection are not 0: traffic secrets, masks of nonces, and what the ciphers have in themselves.
func numbers(c *tls.Conn) (n int) {
	var count func(v reflect.Value)
	count = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			count(v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				count(v.Field(i))
			}
		case reflect.Array, reflect.Slice:
			for i := range v.Len() {
				count(v.Index(i))
			}
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			for u := v.Uint(); u != 0; u >>= 8 {
				if byte(u) != 0 {
					n++
				}
			}
		}
	}
	for _, half := range []string{"in", "out"} {
		h := reflect.ValueOf(c).Elem().FieldByName(half)
		count(h.FieldByName("trafficSecret"))
		count(h.FieldByName("cipher"))
	}
	return n
}
