//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// Answers of servers, byte by byte as the manuals say.
func TestAnswers(t *testing.T) {
	pg := func(c conn) db { return new(patroni).connect(c) }
	maria := func(c conn) db { return new(galera).connect(c) }
	redis := func(c conn) db { return new(sentinel).connect(c) }
	const ready = "Z\x00\x00\x00\x05I"
	const column = "\x01\x00\x00\x01\x01" + "\x02\x00\x00\x02\x03n" + "\x05\x00\x00\x03\xfe\x00\x00\x02\x00" // what MariaDB says of it is left out
	for name, c := range map[string]struct {
		connect func(conn) db
		bytes   string
		answer  []string
		standby bool
		fails   bool
	}{
		"pg, a password":         {connect: pg, bytes: "R\x00\x00\x00\x08\x00\x00\x00\x03", fails: true},
		"pg, two rows":           {connect: pg, bytes: "D\x00\x00\x00\x0c\x00\x01\x00\x00\x00\x02ab" + "D\x00\x00\x00\x0b\x00\x01\x00\x00\x00\x01c" + "C\x00\x00\x00\x05\x00" + ready, answer: []string{"ab", "c"}},
		"pg, a standby":          {connect: pg, bytes: "E\x00\x00\x00\x1bSERROR\x00C25006\x00Mno way\x00\x00" + ready, standby: true, fails: true},
		"pg, it shuts down":      {connect: pg, bytes: "E\x00\x00\x00\x11C57P01\x00Mbye\x00\x00", fails: true},
		"pg, no value":           {connect: pg, bytes: "D\x00\x00\x00\x0a\x00\x01\xff\xff\xff\xff" + ready, fails: true},
		"pg, too long":           {connect: pg, bytes: "D\x00\x00\x00\x0b\x00\x01\x00\x00\x00\x02a" + ready, fails: true},
		"pg, cut":                {connect: pg, bytes: "D\x00\x00\x00\x0c\x00\x01", fails: true},
		"maria, written":         {connect: maria, bytes: "\x07\x00\x00\x01\x00\x01\x00\x02\x00\x00\x00"},
		"maria, two rows":        {connect: maria, bytes: column + "\x03\x00\x00\x04\x02ab" + "\x02\x00\x00\x05\x01c" + "\x05\x00\x00\x06\xfe\x00\x00\x02\x00", answer: []string{"ab", "c"}},
		"maria, not of cluster":  {connect: maria, bytes: "\x0c\x00\x00\x01\xff\x17\x04#08S01 no", standby: true, fails: true},
		"maria, it shuts down":   {connect: maria, bytes: "\x0c\x00\x00\x01\xff\x1d\x04#08S01 no", fails: true},
		"maria, an error's half": {connect: maria, bytes: "\x02\x00\x00\x01\xff\x17", fails: true},
		"maria, too long":        {connect: maria, bytes: column + "\x02\x00\x00\x04\x02a", fails: true},
		"maria, empty":           {connect: maria, bytes: "\x00\x00\x00\x01", fails: true},
		"redis, written":         {connect: redis, bytes: ":1\r\n", answer: []string{"1"}},
		"redis, two rows":        {connect: redis, bytes: "*2\r\n$2\r\nab\r\n$1\r\nc\r\n", answer: []string{"ab", "c"}},
		"redis, a replica":       {connect: redis, bytes: "-READONLY You can't write\r\n", standby: true, fails: true},
		"redis, no replicas":     {connect: redis, bytes: "-NOREPLICAS Not enough\r\n", standby: true, fails: true},
		"redis, an error":        {connect: redis, bytes: "-ERR unknown\r\n", fails: true},
		"redis, no number":       {connect: redis, bytes: "$-1\r\n", fails: true},
		"redis, cut":             {connect: redis, bytes: "$2\r\na", fails: true},
	} {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			theirs.Read(make([]byte, 100))
			io.WriteString(theirs, c.bytes)
			theirs.Close()
		}()
		answer, err := c.connect(conn{Conn: ours}).ask("ask")
		ours.Close()
		<-done
		if (err != nil) != c.fails || err == nil && !slices.Equal(answer, c.answer) || errors.Is(err, errStandby) != c.standby {
			t.Errorf("%s: %q, %v", name, answer, err)
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
