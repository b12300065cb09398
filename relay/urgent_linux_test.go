package relay

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

// urgent is what a client says: runs of letters, and an urgent byte after each
// run but the last.
type urgent []int

// say writes all of it, and the end of the stream if ends.
func (u urgent) say(c net.Conn, ends bool) error {
	for i := range u {
		if i > 0 {
			if err := testkernel.Urgent(c, '!'); err != nil {
				return err
			}
		}
		if _, err := c.Write(u.run(i)); err != nil {
			return err
		}
	}
	if ends {
		return c.(interface{ CloseWrite() error }).CloseWrite()
	}
	return nil
}

// run returns run i. No run has the same byte as the next one.
func (u urgent) run(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, u[i]) }

// check wants got to be the runs. The kernel hands the last urgent byte out of
// band only, so that nobody reads it from the stream; one that a later one has
// overtaken is part of the stream (tcp(7)), if it had not been passed over yet.
func (u urgent) check(got []byte) error {
	for i := range u {
		run := u.run(i)
		if !bytes.HasPrefix(got, run) {
			return fmt.Errorf("run %d of %d bytes is not whole", i, len(run))
		}
		got = bytes.TrimPrefix(got[len(run):], []byte("!"))
	}
	if len(got) > 0 {
		return fmt.Errorf("%d bytes too many", len(got))
	}
	return nil
}

// total is how many bytes are certain.
func (u urgent) total() (n int) {
	for _, run := range u {
		n += run
	}
	return n
}

// TCP urgent data stops nothing and ends nothing: all else arrives, whether the
// stream ends behind it or goes on. The urgent byte itself is left out, as it is
// for whoever reads the stream without asking for it.
func TestUrgent(t *testing.T) {
	for name, u := range map[string]urgent{
		"first":   {0, 300 << 10},
		"last":    {4 << 20, 0},
		"middle":  {4 << 20, 300 << 10},
		"many":    {200 << 10, 1, 1 << 20, 0, 0, 3000, 2 << 20, 10},
		"small":   {1, 1},
		"alone":   {0, 0},
		"stalled": {12 << 20, 300 << 10, 100},
	} {
		for mode, cfg := range map[string]Config{"splice": {}, "copy": {MaxPipes: -1}} {
			for _, ends := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/ends=%v", name, mode, ends), func(t *testing.T) {
					eachPair(t, cfg, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
						said := make(chan error, 1)
						go func() { said <- u.say(a, ends) }()
						if name == "stalled" { // the reader lets it come to that
							testwait.Until(t, "the writer waits, or buffers have room for all of it", func() bool {
								_, blocked := testwait.Goroutines("relay.urgent.say(")
								return blocked == 1 || len(said) == 1
							})
						}
						var got bytes.Buffer
						b.SetReadDeadline(time.Now().Add(patience))
						if ends {
							if _, err := io.Copy(&got, b); err != nil {
								t.Fatal(err)
							}
						} else if _, err := io.CopyN(&got, b, int64(u.total())); err != nil {
							t.Fatalf("%d of %d bytes, %v", got.Len(), u.total(), err)
						}
						if err := <-said; err != nil {
							t.Fatal(err)
						}
						if !ends {
							say(t, b, a, "an answer")
							io.WriteString(a, "zzz")
							closeWrite(t, a)
							if _, err := io.Copy(&got, b); err != nil {
								t.Fatal(err)
							}
							if !bytes.HasSuffix(got.Bytes(), []byte("zzz")) {
								t.Fatalf("%d bytes, the last are %q", got.Len(), got.Bytes()[max(0, got.Len()-5):])
							}
							got.Truncate(got.Len() - 3)
						}
						if err := u.check(got.Bytes()); err != nil {
							t.Error(err)
						}
						b.Close()
						rec := r.expect(CauseEnd)
						if !ends {
							rec.Up.Written -= 3
						}
						if rec.Up.Written != int64(got.Len()) || rec.Up.BytesDropped() != 0 && ends {
							t.Errorf("%d bytes arrived: %+v", got.Len(), rec.Up)
						}
					})
				})
			}
		}
	}
}

// The built-in upstream that drops everything meets the end behind urgent data too.
func TestUrgentDiscarded(t *testing.T) {
	r := newRig(t, Config{})
	u := urgent{100_000, 20_000, 0}
	a := dial(t, r.listen("tcp4", ListenConfig{}, &Addr{Network: Discard}))
	if err := u.say(a, true); err != nil {
		t.Fatal(err)
	}
	if rec := r.expect(CauseEnd); rec.Up.Read < int64(u.total()) || rec.Up.BytesDropped() != 0 {
		t.Errorf("%+v", rec.Up)
	}
}
