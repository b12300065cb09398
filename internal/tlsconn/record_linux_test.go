package tlsconn

import (
	"crypto/tls"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// However the bytes of records are cut, each piece ends with a record or earlier, and none is empty.
func TestRecord(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []byte
	ends := map[int]bool{}
	for range 1000 {
		n := r.IntN(2000) * r.IntN(2) // of the body
		all = binary.BigEndian.AppendUint16(append(all, 23, 3, 3), uint16(n))
		all = append(all, make([]byte, n)...)
		ends[len(all)] = true
	}
	var rec record
	seen := 0
	for at := 0; at < len(all); {
		most := min(len(all)-at, 1+r.IntN(3)*r.IntN(1000))
		n := rec.rest(all[at : at+most])
		if n == 0 || n > most {
			t.Fatalf("%d of %d bytes", n, most)
		}
		for i := at + 1; i < at+n; i++ {
			if ends[i] {
				t.Fatalf("a piece goes on behind the end of a record")
			}
		}
		at += n
		if ends[at] {
			seen++
		} else if n < most {
			t.Fatalf("%d of %d bytes, and the record goes on", n, most)
		}
	}
	if seen != len(ends) {
		t.Errorf("pieces ended with %d of %d records", seen, len(ends))
	}
}

// What crypto/tls keeps to read into has room for one record, after any number of them; if they grew slowly,
// as Go's do, it has doubled until one found room.
func TestReadMemory(t *testing.T) {
	for _, c := range []struct {
		version uint16
		grow    bool // the records do
		most    int
	}{{tls.VersionTLS12, false, 18 << 10}, {tls.VersionTLS13, false, 18 << 10}, {tls.VersionTLS13, true, 32 << 10}} {
		w := &wires{}
		env := &Env{Kernel: w, Buffers: new(pool.Buffers)}
		server := &tls.Config{Certificates: []tls.Certificate{certificate()}, MaxVersion: c.version}
		p := &pairOfConns{t: t, w: w, env: env}
		p.end = [2]*end{{Conn: Server(server), fd: 0}, {Conn: Client(&tls.Config{InsecureSkipVerify: true, DynamicRecordSizingDisabled: !c.grow}), fd: 1}}
		p.handshake(false)
		from, to := p.end[1], p.end[0]
		b := make([]byte, 1<<20)
		for sent, got := 0, 0; got < len(b); {
			n, e := from.Send(env, 1, b[sent:])
			if sent += n; e != 0 && e != sys.EAGAIN {
				t.Fatal(e)
			}
			to.Drained = false
			for e = 0; e == 0; got += n {
				to.Turn()
				n, e = to.Recv(env, 0, true, false, b)
			}
			if e != sys.EAGAIN {
				t.Fatal(e)
			}
		}
		buf := reflect.ValueOf(to.tls).Elem().FieldByName("rawInput").FieldByName("buf")
		if buf.Cap() > c.most {
			t.Errorf("%+v: it keeps %d bytes", c, buf.Cap())
		}
		for _, e := range p.end {
			e.Free(env)
		}
	}
}
