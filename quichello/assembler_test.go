package quichello

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/clienthello"
)

// The packets of the RFCs: version 1 and version 2.
func TestVectors(t *testing.T) {
	for name, version := range map[string]uint32{"rfc9001-a2.hex": Version1, "rfc9369-a2.hex": Version2} {
		t.Run(name, func(t *testing.T) {
			var a Assembler
			b := vector(t, name)
			before := bytes.Clone(b)
			hello, err := a.Add(b)
			if err != nil || hello.ServerName != "example.com" || !slices.Equal(hello.SupportedProtos, []string{"alpn"}) || a.Version() != version || !bytes.Equal(a.ID(), destID) {
				t.Errorf("%+v, %v; version %#x, ID %x", hello, err, a.Version(), a.ID())
			}
			if !bytes.Equal(b, before) {
				t.Error("the datagram was changed")
			}
		})
	}
}

// A long ClientHello comes in two datagrams, in both orders, and in more, each of its frames anywhere.
func TestParts(t *testing.T) {
	message := clientHello(t, "two.example.com", "h3", strings.Repeat("x", 200), strings.Repeat("y", 255))
	half := len(message) / 2
	one := initial(t, 0, crypto(nil, message, 0, half))
	two := initial(t, 1, crypto(nil, message, half, len(message)))
	for name, datagrams := range map[string][][]byte{
		"in order": {one, two}, "the other way round": {two, one}, "the first twice": {one, one, two}, "the second twice": {two, two, one},
	} {
		t.Run(name, func(t *testing.T) {
			wantHello(t, "two.example.com", datagrams...)
		})
	}
	t.Run("shuffled", func(t *testing.T) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		for range 200 {
			if !t.Run("", func(t *testing.T) { wantHello(t, "two.example.com", shuffled(t, r, message)...) }) {
				t.Fatalf("seed %d", seed)
			}
		}
	})
}

// shuffled divides a message into frames of any size, some of which overlap, in any order, with others between them, in
// packets and datagrams.
func shuffled(t *testing.T, r *rand.Rand, message []byte) (datagrams [][]byte) {
	t.Helper()
	type part struct{ from, to int }
	var parts []part
	for at := 0; at < len(message); {
		to := min(len(message), at+1+r.IntN(300))
		parts = append(parts, part{max(0, at-r.IntN(2)*r.IntN(40)), to})
		at = to
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	version := []uint32{Version1, Version2}[r.IntN(2)]
	next := int64(r.IntN(1000))
	for len(parts) > 0 {
		var datagram []byte
		for range 1 + r.IntN(3) {
			p := packet{version: version, dest: destID, src: srcID, number: next, digits: 1 + r.IntN(4), frames: nil}
			next += int64(1 + r.IntN(3))
			if p.digits == 1 && next > 100 {
				p.digits = 2
			}
			for n := r.IntN(4); n >= 0 && len(parts) > 0; n-- {
				p.frames = crypto(p.frames, message, parts[0].from, parts[0].to)
				p.frames = append(p.frames, [][]byte{nil, {framePing}, {framePadding, framePadding}, {frameACK, 5, 0, 1, 0, 0, 2}, {frameACKECN, 5, 0, 0, 0, 1, 2, 3}}[r.IntN(5)]...)
				parts = parts[1:]
			}
			datagram = p.seal(t, datagram, 0)
		}
		if len(datagram) < MinDatagram {
			datagram = packet{version: version, dest: destID, src: srcID, number: next, digits: 2, frames: []byte{framePing}}.seal(t, datagram, MinDatagram)
			next++
		}
		datagrams = append(datagrams, datagram)
	}
	return datagrams
}

// wantHello wants the ClientHello with the last of the datagrams, and not before.
func wantHello(t *testing.T, name string, datagrams ...[]byte) {
	t.Helper()
	var a Assembler
	for i, b := range datagrams {
		hello, err := a.Add(b)
		switch last := i == len(datagrams)-1; {
		case err == nil && hello.ServerName != name:
			t.Fatalf("datagram %d of %d: %+v", i, len(datagrams), hello)
		case err == nil && !last:
			continue // the last ones had only what came twice, or other frames
		case last && err != nil, !last && !errors.Is(err, ErrIncomplete):
			t.Fatalf("datagram %d of %d: %v", i, len(datagrams), err)
		}
	}
}

// Packets of other kinds come in the same datagram, and before the Initial packet.
func TestCoalesced(t *testing.T) {
	message := clientHello(t, "a.example.com", "h3")
	zero := func(dest []byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte{0xd0}, Version1)
		b = append(append(b, byte(len(dest))), dest...)
		b = append(append(b, byte(len(srcID))), srcID...)
		return append(number(b, 100), make([]byte, 100)...)
	}
	all := packet{dest: destID, src: srcID, frames: crypto(nil, message, 0, len(message))}
	first := packet{dest: destID, src: srcID, frames: crypto(nil, message, 0, 100)}
	second := packet{dest: destID, src: srcID, number: 1, frames: crypto(nil, message, 100, len(message))}
	for name, datagrams := range map[string][][]byte{
		"0-RTT behind":         {all.seal(t, nil, 1200), zero(destID)},
		"0-RTT in front":       {all.seal(t, zero(destID), 1200)},
		"0-RTT first":          {zero(destID), all.seal(t, nil, 1200)},
		"two Initial packets":  {second.seal(t, first.seal(t, nil, 0), 1200)},
		"zeros behind":         {append(all.seal(t, nil, 0), make([]byte, 1200)...)},
		"another ID behind":    {append(all.seal(t, nil, 1200), zero([]byte("somebody"))...)},
		"a token":              {packet{dest: destID, token: make([]byte, 100), frames: all.frames}.seal(t, nil, 1200)},
		"one that is no good":  {first.seal(t, nil, 1200), spoil(second.seal(t, nil, 1200)), second.seal(t, nil, 1200)},
		"one that is too good": {first.seal(t, nil, 1200), second.seal(t, nil, 0), second.seal(t, nil, 1200)},
	} {
		t.Run(name, func(t *testing.T) {
			var a Assembler
			for _, b := range datagrams {
				hello, err := a.Add(b)
				if err == nil {
					if hello.ServerName != "a.example.com" {
						t.Errorf("%+v", hello)
					}
					return
				}
			}
			t.Error("the ClientHello was not found")
		})
	}
}

// After a Retry the client begins again: the ID is the server's now, and the keys follow from it.
func TestRetry(t *testing.T) {
	message := clientHello(t, "a.example.com", "h3")
	frames := crypto(nil, message, 0, len(message))
	again := packet{dest: []byte("server-id"), src: srcID, token: []byte("token"), number: 1, frames: frames}.seal(t, nil, 1200)
	var a Assembler
	if _, err := a.Add(initial(t, 0, crypto(nil, message, 0, 100))); err != ErrIncomplete {
		t.Fatal(err)
	}
	if _, err := a.Add(again); !errors.Is(err, ErrOther) {
		t.Fatal(err)
	}
	a.Reset()
	if hello, err := a.Add(again); err != nil || hello.ServerName != "a.example.com" || string(a.ID()) != "server-id" {
		t.Fatalf("%+v, %v, %q", hello, err, a.ID())
	}
}

// Once a connection has begun, what is of no connection changes nothing for it, whoever has sent it.
func TestStray(t *testing.T) {
	message := clientHello(t, "a.example.com", "h3")
	var a Assembler
	if _, err := a.Add(initial(t, 0, crypto(nil, message, 0, 100))); err != ErrIncomplete {
		t.Fatal(err)
	}
	// They do not count: somebody may send very many.
	for _, stray := range slices.Repeat([]string{"", "\x12\x34\x01\x00", "\x40hello", "\xc0\xff\x00\x00\x1d\x00\x00", "\x80\x00\x00\x00\x00\x00\x00", "\xe0\x00\x00\x00\x01\x08" + string(destID) + "\x00"}, MaxDatagrams) {
		if _, err := a.Add([]byte(stray)); err != ErrOther {
			t.Errorf("%q: %v", stray, err)
		}
	}
	if hello, err := a.Add(initial(t, 1, crypto(nil, message, 100, len(message)))); err != nil || hello.ServerName != "a.example.com" {
		t.Errorf("%+v, %v", hello, err)
	}
}

// Many packets that cannot be decrypted cost little more than one: the keys are made once.
func TestManyForged(t *testing.T) {
	forged := append([]byte("\xc0\x00\x00\x00\x01\x08abcdefgh\x00\x00\x20"), make([]byte, 32)...)
	one := append(bytes.Clone(forged), make([]byte, MinDatagram)...)
	many := append(bytes.Repeat(forged, maxPackets), make([]byte, MinDatagram)...)
	cost := func(datagram []byte) float64 {
		return testing.AllocsPerRun(10, func() {
			var a Assembler
			if _, err := a.Add(datagram); err != errForged {
				t.Error(err)
			}
		})
	}
	if n, m := cost(one), cost(many); m > 3*n {
		t.Errorf("%d packets took %v allocations, one %v", maxPackets, m, n)
	}
}

func spoil(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)-1] ^= 1
	return b
}

func TestErrors(t *testing.T) {
	message := clientHello(t, "a.example.com", "h3")
	other := bytes.Clone(message)
	other[50] ^= 1
	long := make([]byte, 70_000)
	copy(long, "\x01\x01\x00\x00")
	server := bytes.Clone(message)
	server[0] = 2
	valid := initial(t, 0, crypto(nil, message, 0, len(message)))
	for name, c := range map[string]struct {
		datagrams [][]byte
		want      error
	}{
		"nothing":                   {[][]byte{{}}, ErrNotInitial},
		"DNS":                       {[][]byte{[]byte("\x12\x34\x01\x00")}, ErrNotInitial},
		"a short header":            {[][]byte{append([]byte{0x40}, make([]byte, 50)...)}, ErrNotInitial},
		"Handshake":                 {[][]byte{append([]byte("\xe0\x00\x00\x00\x01\x00\x00"), make([]byte, 50)...)}, ErrNotInitial},
		"Retry":                     {[][]byte{append([]byte("\xf0\x00\x00\x00\x01\x00\x00"), make([]byte, 50)...)}, ErrNotInitial},
		"Version Negotiation":       {[][]byte{append([]byte("\x80\x00\x00\x00\x00\x00\x00"), make([]byte, 50)...)}, ErrNotInitial},
		"a draft":                   {[][]byte{append([]byte("\xc0\xff\x00\x00\x1d\x00\x00"), make([]byte, 1300)...)}, ErrVersion},
		"a small datagram":          {[][]byte{packet{dest: destID, frames: crypto(nil, message, 0, 200)}.seal(t, nil, 0)}, errShort},
		"a short ID":                {[][]byte{packet{dest: destID[:7], frames: crypto(nil, message, 0, 200)}.seal(t, nil, 1200)}, errID},
		"forged":                    {[][]byte{spoil(valid)}, errForged},
		"cut off":                   {[][]byte{valid[:1210]}, errHeader},
		"a token that is cut off":   {[][]byte{append([]byte("\xc0\x00\x00\x00\x01\x08abcdefgh\x00\x7f\xff"), make([]byte, 1200)...)}, errHeader},
		"cut off in the sample":     {[][]byte{slices.Clip(append(initial(t, 0, []byte{framePing}), "\xc0\x00\x00\x00\x01\x08\x83\x94\xc8\xf0\x3e\x51\x57\x08\x00\x00\x0aabcdefghij"...))}, ErrIncomplete},
		"shorter than a sample":     {[][]byte{append([]byte("\xc0\x00\x00\x00\x01\x08abcdefgh\x00\x00\x0a"), make([]byte, 1200)...)}, errForged},
		"a STREAM frame":            {[][]byte{initial(t, 0, []byte{0x08, 0, 0})}, errFrame},
		"a frame that is cut off":   {[][]byte{packet{dest: destID, frames: append(bytes.Repeat([]byte{framePing}, 1200), frameCrypto, 0, 9, 1)}.seal(t, nil, 0)}, errFrame},
		"an ACK that is cut off":    {[][]byte{packet{dest: destID, frames: append(bytes.Repeat([]byte{framePing}, 1200), frameACK, 0, 0, 9, 1)}.seal(t, nil, 0)}, errFrame},
		"an ACK with many ranges":   {[][]byte{initial(t, 0, []byte{frameACK, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0})}, errFrame},
		"a ServerHello":             {[][]byte{initial(t, 0, crypto(nil, server, 0, 100))}, errMessage},
		"one byte of a ServerHello": {[][]byte{initial(t, 0, crypto(nil, server, 0, 1))}, errMessage},
		"too long":                  {[][]byte{initial(t, 0, crypto(nil, long, 0, 100))}, errSize},
		"too far":                   {[][]byte{initial(t, 0, crypto(nil, long, 65_000, 66_000))}, errSize},
		"two versions of the same":  {[][]byte{initial(t, 0, crypto(nil, message, 0, 100)), initial(t, 1, crypto(nil, other, 40, 140))}, errDiffers},
		"another connection":        {[][]byte{initial(t, 0, crypto(nil, message, 0, 100)), packet{dest: []byte("somebody"), frames: nil}.seal(t, nil, 1200)}, ErrOther},
		"another version":           {[][]byte{initial(t, 0, crypto(nil, message, 0, 100)), packet{version: Version2, dest: destID}.seal(t, nil, 1200)}, ErrOther},
		"the beginning":             {[][]byte{initial(t, 0, crypto(nil, message, 0, 100))}, ErrIncomplete},
		"the end":                   {[][]byte{initial(t, 0, crypto(nil, message, 100, len(message)))}, ErrIncomplete},
		"no ClientHello":            {[][]byte{initial(t, 0, []byte{framePing})}, ErrIncomplete},
		"a close":                   {[][]byte{initial(t, 0, []byte{frameClose, 0, 0, 2, 'n', 'o'})}, ErrIncomplete},
		"an empty ClientHello":      {[][]byte{initial(t, 0, crypto(nil, []byte{1, 0, 0, 0}, 0, 4))}, clienthello.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			var a Assembler
			var err error
			for _, b := range c.datagrams {
				_, err = a.Add(b)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if c.want != ErrIncomplete && strings.HasPrefix(c.want.Error(), ErrMalformed.Error()) != errors.Is(err, ErrMalformed) {
				t.Errorf("%v: malformed?", err)
			}
		})
	}
}

// What is kept is bounded, whatever a client sends.
func TestBounds(t *testing.T) {
	t.Run("datagrams", func(t *testing.T) {
		var a Assembler
		b := initial(t, 0, []byte{framePing})
		for range MaxDatagrams {
			if _, err := a.Add(b); err != ErrIncomplete {
				t.Fatal(err)
			}
		}
		if _, err := a.Add(b); err != errMany || a.Datagrams() != MaxDatagrams {
			t.Errorf("%v after %d datagrams", err, a.Datagrams())
		}
	})
	t.Run("pieces", func(t *testing.T) {
		var a Assembler
		var err error
		message := make([]byte, 60_000)
		for n := 0; err == nil || err == ErrIncomplete; n++ {
			var frames []byte
			for i := range 60 {
				at := 2 + (n*60+i)*2
				frames = crypto(frames, message, at, at+1)
			}
			_, err = a.Add(initial(t, int64(n), frames))
			if len(a.pieces) > maxPieces {
				t.Fatalf("%d pieces", len(a.pieces))
			}
		}
		if err != errMany {
			t.Error(err)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		var a Assembler
		message := make([]byte, clienthello.MaxSize)
		copy(message, "\x01\x00\xff\xfc") // without its last byte, it is never complete
		for n := range 16 {
			from := n * 4096
			frames := crypto(nil, message, from, min(from+4096, len(message)-1))
			if _, err := a.Add(initial(t, int64(n), frames)); err != ErrIncomplete {
				t.Fatal(err)
			}
		}
		if a.Held() != len(message)-1 {
			t.Errorf("%d bytes are held", a.Held())
		}
		a.Reset()
		if a.Held() != 0 || a.Datagrams() != 0 || len(a.ID()) != 0 {
			t.Errorf("after Reset: %d bytes, %d datagrams, ID %x", a.Held(), a.Datagrams(), a.ID())
		}
	})
	t.Run("packets of a datagram", func(t *testing.T) {
		message := clientHello(t, "a.example.com", "h3")
		var b []byte
		for n := range maxPackets {
			b = packet{dest: destID, number: int64(n), frames: []byte{framePing}}.seal(t, b, 60)
		}
		b = packet{dest: destID, number: 99, frames: crypto(nil, message, 0, len(message))}.seal(t, b, 1200)
		var a Assembler
		if _, err := a.Add(b); err != ErrIncomplete {
			t.Errorf("packet %d was read: %v", maxPackets+1, err)
		}
	})
}

func FuzzAssembler(f *testing.F) {
	message := clientHello(f, "a.example.com", "h3")
	f.Add(vector(f, "rfc9001-a2.hex"), []byte{}, false)
	f.Add(vector(f, "rfc9369-a2.hex"), []byte{0x40}, false)
	f.Add(crypto(nil, message, 0, len(message)), []byte{}, true)
	f.Add(crypto(nil, message, 0, 100), crypto(nil, message, 90, len(message)), true)
	f.Add([]byte{frameACK, 5, 0, 1, 0, 0, 2, frameACKECN, 5, 0, 0, 0, 1, 2, 3, frameClose, 0, 0, 1, 'x'}, []byte{framePing}, true)
	f.Fuzz(func(t *testing.T, one, two []byte, sealed bool) {
		if len(one) > 4096 || len(two) > 4096 {
			return
		}
		var a Assembler
		for n, b := range [][]byte{one, two} {
			if sealed { // what a fuzzer does not find: the frames of a packet that can be decrypted
				b = initial(t, int64(n), b)
			}
			before := bytes.Clone(b)
			hello, err := a.Add(b)
			if !bytes.Equal(b, before) {
				t.Fatal("the datagram was changed")
			}
			if err != nil && (hello.ServerName != "" || hello.SupportedProtos != nil) {
				t.Fatalf("%v, and %+v", err, hello)
			}
			at := 0
			for _, p := range a.pieces {
				if p.off < at || len(p.data) == 0 || p.end() > clienthello.MaxSize {
					t.Fatalf("piece at %d with %d bytes, behind %d", p.off, len(p.data), at)
				}
				at = p.end()
			}
		}
	})
}

func BenchmarkAssembler(b *testing.B) {
	message := clientHello(b, "a.example.com", "h3")
	half := len(message) / 2
	one := initial(b, 0, crypto(nil, message, 0, half))
	two := initial(b, 1, crypto(nil, message, half, len(message)))
	forged := spoil(one)
	b.Run("packets=2", func(b *testing.B) {
		b.ReportAllocs()
		var a Assembler
		for b.Loop() {
			a.Reset()
			a.Add(one)
			if _, err := a.Add(two); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("forged", func(b *testing.B) {
		b.ReportAllocs()
		var a Assembler
		for b.Loop() {
			a.Reset()
			if _, err := a.Add(forged); err != errForged {
				b.Fatal(err)
			}
		}
	})
}
