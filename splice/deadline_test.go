package splice

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// TestDeadlineBesideIoCopy is what the README says of write deadlines: the source goes on behind bytes that io.Copy has
// counted nowhere, and behind those that Copy has counted. What io.Copy forgets is logged and not asserted.
func TestDeadlineBesideIoCopy(t *testing.T) {
	const rounds = 5
	for name, copy := range map[string]func(io.Writer, io.Reader) (int64, error){"io.Copy": io.Copy, "Copy": Copy} {
		for range rounds {
			r := newRig(t, line{tcp, tcp})
			stop := make(chan struct{})
			go func() { // without a pause, as an upload does
				defer close(stop)
				for {
					n, err := r.from.Write(pattern().At(r.sent, 256<<10))
					if r.sent += int64(n); err != nil {
						return
					}
				}
			}()
			r.dst.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := copy(r.dst, r.src) // nobody reads
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%s = %d, %v", name, n, err)
			}
			known := n + lost(err)

			r.dst.Close()
			if err := r.drain(t); err != nil || r.received != n {
				t.Errorf("%s = %d, but %d bytes arrived, %v", name, n, r.received, err)
			}
			r.from.SetWriteDeadline(time.Unix(1, 0))
			<-stop
			endWriting(r.from)
			rest, err := io.ReadAll(r.src)
			if err != nil {
				t.Fatal(err)
			}
			forgotten := r.sent - int64(len(rest)) - known
			t.Logf("%s: %d bytes delivered, %d counted as undelivered, %d in neither place", name, n, known-n, forgotten)
			if name == "Copy" && (forgotten != 0 || pattern().Check(known, rest) != nil) {
				t.Errorf("%d bytes of %d are not accounted for: %v", forgotten, r.sent, pattern().Check(known, rest))
			}
		}
	}
}
