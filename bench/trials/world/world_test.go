//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// One seed is one script, which is the same when it was written and read.
func TestDraw(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		one := draw(seed, 8, true)
		if !reflect.DeepEqual(one, draw(seed, 8, true)) {
			t.Fatalf("seed %d draws two scripts", seed)
		}
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		back := &script{}
		if err := json.Unmarshal(text, back); err != nil || !reflect.DeepEqual(one, back) {
			t.Fatalf("seed %d is read as another script: %v\n%s", seed, err, text)
		}
		for _, e := range one.Events {
			seen[e.Do] = true
		}
	}
	for _, d := range deeds {
		if !seen[d.name] {
			t.Errorf("%s never happens", d.name)
		}
	}
}

// A run with one event of each kind is good, and does not rot.
func TestEachEvent(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("under the race detector: chaos runs the same load")
	}
	binary, err := trial.Penstock("", t.TempDir(), trial.Released...)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "world") // short: Unix sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := draw(1, 0, false)
	s.Events = []event{
		{Do: "kill", Value: "killed"}, // first: a worker forgets what it was told in its last second, however long that is on this machine
		{Do: "add", Group: "tcp", Member: addedMember}, {Do: "drain", Group: "tcp", Member: addedMember},
		{Do: "enable", Group: "tcp", Member: addedMember}, {Do: "upgrade"}, {Do: "remove", Group: "tcp", Member: addedMember},
		{Do: "loops", Value: "3"}, {Do: "balance", Group: "udp", Value: "random"}, {Do: "file", Group: "udp", Member: fileMember},
		{Do: "sandbox", Value: "log"}, {Do: "listener", Group: "tcp", Value: "22001"},
	}
	world.Patience = testwait.Patience
	var out bytes.Buffer
	begun := time.Now()
	if good, err := play(s, binary, dir, &out); err != nil || !good {
		t.Errorf("%v after %v\n%s", err, time.Since(begun), out.String())
	}
}

// A run changes a copy of what was drawn.
func TestClone(t *testing.T) {
	c := draw(1, 0, false).Config
	changed := c.clone()
	changed.group("tcp").Members[0] = 7
	changed.Listeners[0] = &listener{Name: "other"}
	if c.group("tcp").Members[0] == 7 || c.Listeners[0].Name == "other" {
		t.Error("a copy of a configuration shares what can be changed")
	}
}
