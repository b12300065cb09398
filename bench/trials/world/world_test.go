//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	for _, d := range slices.Concat(deeds, probedDeeds, endsDeeds, fleetDeeds) {
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
	binary, err := trial.Penstock("", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "world") // short: Unix sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := drawn(false)
	s.Events = []event{
		{Do: "kill", Value: "killed"}, // first: a worker forgets what it was told in its last second, however long that is on this machine
		{Do: "add", Group: "tcp", Member: addedMember}, {Do: "drain", Group: "tcp", Member: addedMember, Close: true},
		{Do: "enable", Group: "tcp", Member: addedMember}, {Do: "upgrade"}, {Do: "remove", Group: "tcp", Member: addedMember},
		{Do: "loops", Value: "3"}, {Do: "balance", Group: "udp", Value: "random"}, {Do: "file", Group: "udp", Member: fileMember},
		{Do: "sandbox", Value: "log"}, {Do: "listener", Group: "tcp", Value: "22001"},
	}
	world.Patience = testwait.Patience
	probed := drawn(true)
	probed.Config.Loops, probed.Config.User, probed.Config.Probed = 1, "", nil
	for i, kind := range probedKinds[1:] { // without a Unix listener, of which there cannot be two at once
		probed.Config.Probed = append(probed.Config.Probed, &probedListener{Kind: kind, Port: 22440 + i, Balance: balances[0], Offers: protocols, Routes: protocols[:1]})
	}
	probed.Events = []event{{Do: "loops", Value: "3"}, {Do: "kill", Value: "killed", Oldest: true, Close: true}, {Do: "cpus", Value: "1"}, {Do: "upgrade"},
		{Do: "cpus", Value: "all"}, {Do: "sandbox", Value: "log"}, {Do: "restart"}}
	gram := drawn(true)
	gram.Config.User, gram.Config.Probed, gram.Events = "", []*probedListener{{Kind: "gram", Balance: balances[0]}}, []event{{Do: "kill", Value: "aborted"}}
	fleet := &script{Seed: 1, Config: config{Fleet: &fleetConfig{Relays: 3, Kept: true, Sandbox: "on", Share: "50%", Wait: 2 * time.Second}}}
	fleet.Events = []event{{Do: "publish", Value: "random"}, {Do: "relay", Member: 1, Value: "killed", Close: true}, {Do: "relay", Member: 2, Value: "worker killed"},
		{Do: "link", Value: "lost", Group: "tool", For: time.Second}, {Do: "rollback", Close: true}, {Do: "relay", Member: 3, Value: "stopped"},
		{Do: "registry", For: 100 * time.Millisecond}, {Do: "link", Value: "cut", Group: "relay", Member: 1, For: 200 * time.Millisecond}}
	ends := &script{Seed: 1, Config: config{Loops: 1, Sandbox: "on", Ends: &endsConfig{Down: "close", Up: "close", Weights: [2]int{1, 0}, Header: "first"}}}
	ends.Events = []event{{Do: "leave", Member: 1}, {Do: "stop", Member: 1}, {Do: "join", Member: 1}, {Do: "weights", Value: "0 1"}, {Do: "list", Member: 1}, {Do: "kill", Value: "killed"}, {Do: "start", Member: 1},
		{Do: "down", Value: "drain"}, {Do: "stop", Member: 2}, {Do: "upgrade"}, {Do: "down", Value: "close", Rest: 300 * time.Millisecond}, {Do: "unlist", Member: 1}, {Do: "ban-and-end", Member: 2},
		{Do: "stop", Member: 1}, {Do: "stop", Member: 3}, {Do: "ban", Member: 3}, {Do: "start", Member: 3}, {Do: "loops", Value: "2"}, {Do: "start-all"}, {Do: "stop-all"},
		{Do: "unban", Member: 3}, {Do: "file-weights", Value: "50 50"}, {Do: "up", Value: "keep"}, {Do: "start-all"}, {Do: "stop-primaries"}}
	for name, s := range map[string]*script{"ends": ends, "load": s, "probed": probed, "gram": gram, "fleet": fleet} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			begun, own := time.Now(), filepath.Join(dir, name)
			if err := os.Mkdir(own, 0o755); err != nil {
				t.Fatal(err)
			}
			if good, err := play(s, binary, "", own, &out); err != nil || !good {
				t.Errorf("%v after %v\n%s", err, time.Since(begun), out.String())
			}
		})
	}
}

// drawn returns a script that has probed listeners, or has not.
func drawn(probed bool) *script {
	for seed := uint64(1); ; seed++ {
		if s := draw(seed, 0, false); s.Config.Fleet == nil && s.Config.Ends == nil && (len(s.Config.Probed) > 0) == probed {
			return s
		}
	}
}

// A run changes a copy of what was drawn.
func TestClone(t *testing.T) {
	c := drawn(false).Config
	changed := c.clone()
	changed.group("tcp").Members[0] = 7
	changed.Listeners[0] = &listener{Name: "other"}
	if c.group("tcp").Members[0] == 7 || c.Listeners[0].Name == "other" {
		t.Error("a copy of a configuration shares what can be changed")
	}
}
