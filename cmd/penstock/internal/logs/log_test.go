package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testwait"
)

// A log whose reader does not read makes nobody wait, not at its end either; what was lost
// is counted, and told when the reader reads again.
func TestLogNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var level slog.LevelVar
	log, lines, _ := New(w, &spec.Log{Level: "info", Format: "json"}, &level, func(err error) error { return err })
	long := strings.Repeat("x", 10_000)
	logged := 3 * maxQueued / len(long)
	for i := range logged {
		log.Info(fmt.Sprint(i), "long", long)
	}
	lost := lines.DroppedLines()
	if lost == 0 {
		t.Fatal("nothing was lost")
	}
	lines.Close() // returns although nobody reads
	read := make(chan string)
	go func() {
		var all bytes.Buffer
		io.Copy(&all, r)
		read <- all.String()
	}()
	<-lines.done
	w.Close()
	text := <-read
	if n := int64(strings.Count(text, `"long"`)); n+lost != int64(logged) {
		t.Errorf("%d lines were written and %d lost, of %d", n, lost, logged)
	}
	if want := fmt.Sprintf(`"msg":"the log dropped lines","dropped":%d`, lost); !strings.Contains(text, want) {
		t.Errorf("there is no %s", want)
	}
}

type failing struct{ n int }

func (f failing) Write(b []byte) (int, error) { return f.n, errors.New("no space left") }

// Lines that cannot be written are counted as lost; those that were before the error are not.
func TestLogFails(t *testing.T) {
	w := newWriter(failing{n: 4})
	w.Write([]byte("abc\n"))
	w.Close()
	w2 := newWriter(failing{})
	w2.Write([]byte("abc\n"))
	w2.Close()
	if w.DroppedLines() != 0 || w2.DroppedLines() != 1 {
		t.Errorf("%d and %d lines are lost, want 0 and 1", w.DroppedLines(), w2.DroppedLines())
	}
}

// records is a handler that keeps what it is given.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
	slog.Handler
}

func newRecords() *records {
	r := &records{}
	r.Handler = slog.NewTextHandler(r, nil)
	return r
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// A message that comes very often is left out and counted, and hides no other one.
func TestLogLimit(t *testing.T) {
	to := newRecords()
	h := newLimiter(to)
	h.silence = 10 * time.Millisecond
	now := time.Unix(1000, 0)
	say := func(after time.Duration, listener string) {
		r := slog.NewRecord(now.Add(after), slog.LevelWarn, "flow", 0)
		r.AddAttrs(slog.String("listener", listener), slog.String("client", "other each time"))
		h.Handle(t.Context(), r)
	}
	for range 10 * limitBurst {
		say(0, "flooded")
	}
	say(0, "calm")
	// The flood has ended: a while later its count is told. On a slow machine a part
	// of it is told earlier.
	leftOut := func() (sum int) {
		for _, m := range regexp.MustCompile(`msg=flow listener=flooded left_out=(\d+)\n`).FindAllStringSubmatch(to.String(), -1) {
			n, _ := strconv.Atoi(m[1])
			sum += n
		}
		return sum
	}
	testwait.For(func() bool { return leftOut() >= 9*limitBurst })
	if n := leftOut(); n != 9*limitBurst {
		t.Fatalf("%d lines are told of as left out, want %d: %s", n, 9*limitBurst, to)
	}
	if n := strings.Count(to.String(), "client="); n != limitBurst+1 {
		t.Errorf("%d lines, want %d and one", n, limitBurst)
	}
	if !strings.Contains(to.String(), "listener=calm") {
		t.Error("the flood hides another message")
	}
	// Once in limitEvery there is room for one, which tells what was left out.
	h.silence = time.Hour
	say(limitEvery, "flooded")
	say(limitEvery, "flooded")
	say(2*limitEvery, "flooded")
	if !strings.Contains(to.String(), `client="other each time" left_out=1`) {
		t.Errorf("what was left out is not told: %s", to)
	}
	log := slog.New(h)
	if Unlimited(log).Handler() != slog.Handler(to) {
		t.Error("an unlimited log has limits")
	}
	if h.mu.Lock(); len(h.keys) != 2 {
		t.Errorf("%d keys", len(h.keys))
	}
	h.mu.Unlock()
	for i := range 3 * maxKeys { // no memory without bound
		say(time.Duration(i), fmt.Sprint("l", i))
	}
	if h.mu.Lock(); len(h.keys) > maxKeys+1 {
		t.Errorf("%d keys", len(h.keys))
	}
	h.mu.Unlock()
}
