//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// Flows that go on are told from those that have ended.
func TestFlows(t *testing.T) {
	u, err := serve("127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	f, err := begin(u.streams.Addr().String(), u.datagrams.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer f.end()
	if seen, err := f.goOn(); err != nil || seen != "TCP: 10 of 10 flows go on; UDP: 10 of 10" {
		t.Errorf("%q, %v", seen, err)
	}
	for _, one := range f.list {
		one.moved.Add(1) // as if the upstream had seen another port
	}
	f.list[0].conn.Close()
	f.list[1].conn.Close()
	seen, err := f.goOn()
	if err == nil || err.Error() != "TCP: 9 of 10 flows go on; UDP: 0 of 10, and 9 clients are answered" {
		t.Errorf("%q, %v", seen, err)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := table(&out, []result{{What: "a", Seen: "b|c"}, {What: "d", Failed: "e\nf"}}); err != nil {
		t.Fatal(err)
	}
	if want := "\n| what is done | what is seen |\n|---|---|\n| a | b\\|c |\n| d | FAILED: e |\n"; out.String() != want {
		t.Errorf("%s", out.String())
	}
}
