package tlsconn

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
)

// recorder makes the records of a client of TLS 1.3, RFC 8446, 5.2 and 7.
type recorder struct {
	t      testing.TB
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// newRecorder goes on where a client's handshake has ended that has written its secrets into log.
func newRecorder(t testing.TB, log []byte) *recorder {
	t.Helper()
	for line := range bytes.Lines(log) {
		f := bytes.Fields(line)
		if string(f[0]) == "CLIENT_TRAFFIC_SECRET_0" && len(f[2]) == 2*sha256.Size {
			secret, _ := hex.DecodeString(string(f[2]))
			r := &recorder{t: t}
			r.use(secret)
			return r
		}
	}
	t.Fatal("the handshake has written no secret")
	return nil
}

func (r *recorder) use(secret []byte) {
	block, err := aes.NewCipher(r.expand(secret, "key", 16))
	if err != nil {
		r.t.Fatal(err)
	}
	r.aead, _ = cipher.NewGCM(block)
	r.secret, r.iv, r.seq = secret, r.expand(secret, "iv", 12), 0
}

func (r *recorder) expand(secret []byte, label string, n int) []byte {
	info := append([]byte{0, byte(n), byte(6 + len(label))}, "tls13 "+label...)
	key, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		r.t.Fatal(err)
	}
	return key
}

// add appends a record.
func (r *recorder) add(to []byte, kind byte, body []byte) []byte {
	inner := append(bytes.Clone(body), kind)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(inner)+16))
	nonce := bytes.Clone(r.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(r.seq >> (56 - 8*i))
	}
	r.seq++
	return append(append(to, head...), r.aead.Seal(nil, nonce, inner, head)...)
}

// addKeyUpdate appends a message that changes the keys, and asks for the same if asks is 1.
func (r *recorder) addKeyUpdate(to []byte, asks byte) []byte {
	to = r.add(to, 22, []byte{24, 0, 0, 1, asks})
	r.use(r.expand(r.secret, "traffic upd", 32))
	return to
}

// established is a server after its handshake, and what makes the client's records.
func established(t testing.TB) (*wires, *Env, *end, *recorder) {
	var log bytes.Buffer
	w := new(wires)
	p := &pairOfConns{w: w, env: &Env{Kernel: w, Buffers: new(pool.Buffers)}}
	p.t, _ = t.(*testing.T)
	p.end = [2]*end{
		{Conn: Server(&tls.Config{Certificates: []tls.Certificate{certificate()}}), fd: 0},
		{Conn: Client(&tls.Config{InsecureSkipVerify: true, KeyLogWriter: &log}), fd: 1},
	}
	p.handshake(false)
	if suite := p.end[0].State().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("without AES in the processor, crypto/tls chooses %s", tls.CipherSuiteName(suite))
	}
	p.end[1].Free(p.env)
	w.inbox[0].bytes = nil
	return w, p.env, p.end[0], newRecorder(t, log.Bytes())
}

// small are kinds of records that cost much beside what is in them: count of them, with a byte each in the end.
var small = map[string]func(r *recorder, count int) []byte{
	"one byte": func(r *recorder, count int) (all []byte) {
		for range count {
			all = r.add(all, 23, []byte("x"))
		}
		return all
	},
	"empty": func(r *recorder, count int) (all []byte) {
		for i := range count {
			if i%8 == 7 {
				all = r.add(all, 23, []byte("x"))
			} else {
				all = r.add(all, 23, nil)
			}
		}
		return all
	},
	"new keys": func(r *recorder, count int) (all []byte) {
		for i := range count {
			if i%8 == 7 {
				all = r.add(all, 23, []byte("x"))
			} else {
				all = r.addKeyUpdate(all, 0)
			}
		}
		return all
	},
}

// A peer whose records have little in them does not hold the loop: a turn reads some of them, and says that there are more.
func TestWorkOfTurn(t *testing.T) {
	const count = 4096
	for name, make := range small {
		t.Run(name, func(t *testing.T) {
			w, env, server, r := established(t)
			all := make(r, count)
			w.inbox[0].bytes, server.Drained = all, false
			got, buf := 0, [64 << 10]byte{}
			turns := 0
			for ; turns < count; turns++ {
				server.Turn()
				n, e := 0, sys.Errno(0)
				for e == 0 {
					if n, e = server.Recv(env, 0, true, false, buf[:]); n > workMost {
						t.Fatalf("%d bytes in a turn", n)
					}
					got += n
				}
				if e != sys.EAGAIN {
					t.Fatal(e, server.Err)
				}
				if !server.More() {
					break
				}
			}
			want := count
			least := count / workMost
			if name != "one byte" {
				want = count / 8
				least = count * 7 / 8 * idleWork / workMost
			}
			if got != want || turns < least {
				t.Errorf("%d bytes of %d after %d turns, want at least %d", got, want, turns, least)
			}
			server.Free(env)
		})
	}
}

// What a turn costs in which a peer's records have little in them.
func BenchmarkTurn(b *testing.B) {
	for name, make := range small {
		b.Run(name, func(b *testing.B) {
			w, env, server, r := established(b)
			buf := [64 << 10]byte{}
			for b.Loop() {
				b.StopTimer()
				if len(w.inbox[0].bytes) < 64<<10 {
					w.inbox[0].bytes = append(bytes.Clone(w.inbox[0].bytes), make(r, 20_000)...)
				}
				server.Drained = false
				server.Turn()
				b.StartTimer()
				for e := sys.Errno(0); e == 0; {
					_, e = server.Recv(env, 0, true, false, buf[:])
				}
			}
		})
	}
}

// A message of TLS that goes on and on is memory of crypto/tls, and is counted.
func TestMemoryOfMessages(t *testing.T) {
	w, env, server, r := established(t)
	before := server.Memory()
	const n = 40 << 10
	message := append([]byte{24, 0, 0xff, 0xff}, make([]byte, n)...) // of 64 KiB
	for len(message) > 0 {
		part := message[:min(len(message), recordSize)]
		w.inbox[0].bytes = r.add(w.inbox[0].bytes, 22, part)
		message = message[len(part):]
	}
	server.Turn()
	server.Drained = false
	if k, e := server.Recv(env, 0, true, false, make([]byte, 100)); k != 0 || e != sys.EAGAIN {
		t.Fatalf("%d bytes, %v, %v", k, e, server.Err)
	}
	if got := server.Memory() - before; got < n-before {
		t.Errorf("%d bytes more are counted, of %d", got, n)
	}
	server.Free(env)
}

// Where little is to be held, little is received: what a read does not ask for stays in the socket.
func TestReceivesLittle(t *testing.T) {
	w, env, server, r := established(t)
	for range 16 {
		w.inbox[0].bytes = r.add(w.inbox[0].bytes, 23, make([]byte, 4<<10))
	}
	all := len(w.inbox[0].bytes)
	server.Turn()
	server.Drained = false
	if n, e := server.Recv(env, 0, true, false, make([]byte, 4<<10)); n == 0 || e != 0 {
		t.Fatal(n, e)
	}
	if taken := all - len(w.inbox[0].bytes); taken > 10<<10 {
		t.Errorf("%d bytes were received for 4 KiB", taken)
	}
	server.Free(env)
}

// A peer that asks for messages of TLS and takes none of them does not fill the memory; then nothing more can be sent to it.
func TestAnswersBounded(t *testing.T) {
	const count = 12_000
	w, env, server, r := established(t)
	for range count / 8 {
		for range 7 {
			w.inbox[0].bytes = r.addKeyUpdate(w.inbox[0].bytes, 1)
		}
		w.inbox[0].bytes = r.add(w.inbox[0].bytes, 23, []byte("x"))
	}
	w.draw = func() byte { return 255 }
	w.inbox[1].room = 0 // it takes nothing
	server.Drained = false
	buf := make([]byte, 1000)
	for more := true; more; more = server.More() {
		server.Turn()
		for e := sys.Errno(0); e == 0; {
			_, e = server.Recv(env, 0, true, false, buf)
		}
	}
	if n := len(server.out); n == 0 || n > outMost {
		t.Errorf("%d bytes wait to be sent", n)
	}
	w.inbox[1].room = 1 << 20
	for range 2 {
		if _, e := server.Send(env, 0, buf); e != Invalid {
			t.Errorf("Send: %v", e)
		}
	}
	server.Free(env)
}

// failingSends are wires that cannot send for a while.
type failingSends struct {
	*wires
	errno sys.Errno
}

func (k *failingSends) Send(fd int, p []byte) (int, sys.Errno) {
	if k.errno != 0 {
		return 0, k.errno
	}
	return k.wires.Send(fd, p)
}

// What was encrypted when a send has failed is not sent by a later call, because Send has not counted it.
func TestNothingAfterFailure(t *testing.T) {
	w, env, server, r := established(t)
	k := &failingSends{wires: w, errno: sys.ENOMEM}
	env.Kernel = k
	before := len(w.inbox[1].bytes)
	if n, e := server.Send(env, 0, []byte("lost")); n != 0 || e != sys.ENOMEM {
		t.Fatal(n, e)
	}
	k.errno = 0
	w.inbox[0].bytes = r.add(w.inbox[0].bytes, 23, []byte("x"))
	server.Turn()
	server.Drained = false
	if n, e := server.Recv(env, 0, true, false, make([]byte, 10)); n != 1 || e != 0 {
		t.Fatal(n, e)
	}
	if e := server.Flush(env, 0); e != sys.ENOMEM {
		t.Errorf("Flush: %v", e)
	}
	if n := len(w.inbox[1].bytes) - before; n != 0 {
		t.Errorf("%d bytes were sent", n)
	}
	server.Free(env)
}
