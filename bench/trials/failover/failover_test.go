//go:build linux

package main

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// Answers of a server, byte by byte as PostgreSQL's manual says.
func TestAnswer(t *testing.T) {
	const ready = "Z\x00\x00\x00\x05I"
	for name, c := range map[string]struct {
		bytes    string
		column   []string
		readOnly bool
		fails    bool
	}{
		"no password":   {bytes: "R\x00\x00\x00\x08\x00\x00\x00\x00" + "S\x00\x00\x00\x08a\x00b\x00" + ready},
		"a password":    {bytes: "R\x00\x00\x00\x08\x00\x00\x00\x03", fails: true},
		"two rows":      {bytes: "D\x00\x00\x00\x0c\x00\x01\x00\x00\x00\x02ab" + "D\x00\x00\x00\x0b\x00\x01\x00\x00\x00\x01c" + "C\x00\x00\x00\x05\x00" + ready, column: []string{"ab", "c"}},
		"a standby":     {bytes: "E\x00\x00\x00\x1bSERROR\x00C25006\x00Mno way\x00\x00" + ready, readOnly: true, fails: true},
		"it shuts down": {bytes: "E\x00\x00\x00\x11C57P01\x00Mbye\x00\x00", fails: true},
		"no value":      {bytes: "D\x00\x00\x00\x0a\x00\x01\xff\xff\xff\xff" + ready, fails: true},
		"too long":      {bytes: "D\x00\x00\x00\x0b\x00\x01\x00\x00\x00\x02a" + ready, fails: true},
		"cut":           {bytes: "D\x00\x00\x00\x0c\x00\x01", fails: true},
	} {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.WriteString(theirs, c.bytes)
			theirs.Close()
		}()
		column, err := (&conn{Conn: ours}).answer()
		ours.Close()
		<-done
		if !slices.Equal(column, c.column) || (err != nil) != c.fails || readOnly(err) != c.readOnly {
			t.Errorf("%s: %q, %v", name, column, err)
		}
	}
}

// Each row counts where it belongs.
func TestJudge(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	acks := []ack{{1, at(-2), "old"}, {2, at(1), "old"}, {4, at(9), "new"}, {5, at(10), "old"}, {6, at(11), "new"}}
	got := judge(acks, map[int]bool{1: true, 4: true, 6: true}, start, at(5), "old")
	if want := (outcome{Resumed: 9, Gap: 8, Promoted: 4, Lost: 2, Stale: 1}); got != want {
		t.Errorf("%+v instead of %+v", got, want)
	}
}
