package tlsconn

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// newInKernel returns what a process has of a connection that the one before has given to the kernel, and the records of its peer.
func newInKernel(t *testing.T) (c *Conn, env *Env, w *wires, peer *simkernel.Records) {
	keys := func() *sys.TLSKeys { return &sys.TLSKeys{Suite: tls.TLS_AES_128_GCM_SHA256, Key: make([]byte, 16)} }
	w = &wires{}
	w.tls[0], peer = simkernel.NewRecords(keys(), keys()), simkernel.NewRecords(keys(), keys())
	w.inbox[1].room = 1 << 20
	return InKernel(tls.ConnectionState{}), &Env{Kernel: w, Buffers: &pool.Buffers{}}, w, peer
}

// A ticket in two records, of which the process before has read the first one, ends nothing; a KeyUpdate still does, and a second message that is
// none.
func TestRestOfTicket(t *testing.T) {
	ticket := append([]byte{4, 0, 0, 200}, make([]byte, 200)...)
	for what, x := range map[string]struct {
		handshake [][]byte
		failed    bool
	}{
		"its rest":                 {[][]byte{ticket[100:]}, false},
		"its rest, and another":    {[][]byte{ticket[100:], ticket}, false},
		"a KeyUpdate":              {[][]byte{{24, 0, 0, 1, 0}}, true},
		"its rest twice":           {[][]byte{ticket[100:], ticket[100:]}, true},
		"its rest behind data":     {[][]byte{nil, ticket[100:]}, true},
		"a ticket byte by byte":    {[][]byte{nil, {4}, {0}, {0}, {2}, {9}, {9}}, false},
		"a header in two records":  {[][]byte{nil, ticket[:3], ticket[3:], ticket}, false},
		"a piece of one, and data": {[][]byte{nil, ticket[:3], nil, ticket}, false},
		"the first byte of what is no ticket, nor a KeyUpdate, behind data, and what would be the rest": {[][]byte{nil, {13}, {0}}, true},
		"data, and the first byte of a KeyUpdate":                                                       {[][]byte{nil, {24}}, true},
		"what looks like a long ticket's beginning, data and a KeyUpdate":                               {[][]byte{{4, 16, 0, 0}, nil, {24, 0, 0, 1, 0}}, true},
	} {
		c, env, w, peer := newInKernel(t)
		put := func(kind uint8, p []byte) {
			record, n := peer.Seal(kind, p)
			if n != len(p) {
				t.Fatal("too long for a record")
			}
			w.put(1, record)
		}
		for _, p := range x.handshake {
			if p == nil {
				put(sys.RecordData, []byte("x"))
				continue
			}
			put(sys.RecordHandshake, p)
		}
		put(sys.RecordData, []byte("y"))
		got := ""
		for range 10 {
			p := make([]byte, 10)
			n, e := c.Recv(env, 0, true, false, p)
			got += string(p[:n])
			if e != 0 && e != sys.EAGAIN {
				break
			}
		}
		if failed := c.Failed(); failed != x.failed || !failed && strings.TrimLeft(got, "x") != "y" {
			t.Errorf("%s: %q, %v", what, got, c.Err)
		}
		if update := strings.HasSuffix(what, "KeyUpdate"); update != (c.Err == ErrKeyUpdate) {
			t.Errorf("%s: %v", what, c.Err)
		}
	}
}
