package hooks

import (
	"testing"

	"github.com/penstock/penstock/relay/hold"
)

// What a worker that was going wrong has left of a flow is an error, or state of a bounded size.
func FuzzFlow(f *testing.F) {
	encoded := func(flags uint64, more func(e *hold.Encoder)) []byte {
		var e hold.Encoder
		e.Uint(flags)
		e.Uint(1)
		e.Uint(2)
		for range 5 {
			e.String("name")
		}
		more(&e)
		return append([]byte(nil), e.Encoded()...)
	}
	f.Add(encoded(encodedConnected, func(*hold.Encoder) {}))
	f.Add(encoded(encodedMember|encodedLocal, func(e *hold.Encoder) {
		e.Bytes([]byte("tcp://192.0.2.1:80"))
		e.Bytes([]byte("tcp://[::1]:1"))
	}))
	f.Add(encoded(encodedHello, func(e *hold.Encoder) {
		e.Bytes([]byte("example.com"))
		e.Uint(1 << 60)
		e.Bytes([]byte("h2"))
	}))
	f.Add(encoded(encodedHeader|encodedRemoved|encodedNames, func(e *hold.Encoder) {
		e.String("\x00\x04kill\x01\x02")
		for range 4 {
			e.String("x")
		}
		e.Uint(1)
		e.Bytes([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"))
	}))
	f.Add(encoded(encodedStart|encodedConnected, func(e *hold.Encoder) { e.Uint(uint64(startRequest)) }))
	f.Add(encoded(encodedStart, func(e *hold.Encoder) { e.Uint(uint64(startClear) + 1) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > hold.MaxEncoded {
			return
		}
		var e encodedFlow
		p := new(State)
		if e.decode(hold.NewDecoder(b), p) != nil {
			return
		}
		if h := p.hello.Load(); h != nil && len(h.SupportedProtos) > maxEncodedALPN {
			t.Errorf("%d protocols", len(h.SupportedProtos))
		}
		_ = p.start.String() // of a start that there is
		if p.header != nil {
			if _, err := p.header.Append(nil); err != nil && p.header.Version == 2 {
				t.Errorf("a header that was received cannot be sent: %v", err)
			}
		}
	})
}
