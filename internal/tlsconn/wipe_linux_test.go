package tlsconn

import (
	"crypto/tls"
	"reflect"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// What crypto/tls has of the keys of a connection is overwritten when the kernel gets it, with this release of Go.
func TestGivenIsWiped(t *testing.T) {
	w := &wires{}
	for i := range w.inbox {
		w.inbox[i].room = 1 << 20
	}
	server := &tls.Config{Certificates: []tls.Certificate{certificate()}, KeyLogWriter: Marked{}}
	client := &tls.Config{InsecureSkipVerify: true, ServerName: "relay.example", KeyLogWriter: Marked{}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	p := &pairOfConns{t: t, w: w, env: &Env{Kernel: w, Buffers: new(pool.Buffers)}}
	p.end = [2]*end{{Conn: Server(server), fd: 0}, {Conn: Client(client), fd: 1}}
	p.handshake(false)
	if _, e := p.end[1].Recv(p.env, 1, true, false, make([]byte, 1)); e != sys.EAGAIN { // the ticket
		t.Fatal(e)
	}
	for i, e := range p.end {
		before := e.tls
		if n := numbers(before); n < 2*(32+12+16) {
			t.Fatalf("end %d has only %d bytes of keys before, which are not all", i, n)
		}
		if _, now := e.Givable(); !now || !e.Give(w, e.fd) {
			t.Fatalf("end %d was not given to the kernel", i)
		}
		if n := numbers(before); n > 0 {
			t.Errorf("end %d has %d bytes of keys left", i, n)
		}
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
