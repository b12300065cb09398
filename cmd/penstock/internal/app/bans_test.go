package app

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/lists"
)

// Bans of a service before are there again, those that are over are not, and a file that cannot be read is said, once, and replaced.
func TestBansOnDisk(t *testing.T) {
	dir := t.TempDir()
	var a bans
	if err := a.restore(dir, true, nil); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	one, two := netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")
	if _, err := a.Change(now, []lists.Ban{{Network: one, At: now}, {Network: two, Until: now.Add(time.Hour)}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/bans.json"); !os.IsNotExist(err) {
		t.Errorf("written although nobody has said that something has changed: %v", err)
	}
	a.unsaved.Store(true)
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	var b bans
	if err := b.restore(dir, true, nil); err != nil || !b.Contains(one.Addr()) || !b.Contains(two.Addr()) {
		t.Errorf("%v, %v", b.All(now), err)
	}
	if b.Change(now.Add(time.Hour), nil, nil); b.Contains(two.Addr()) || len(b.All(now)) != 1 {
		t.Error("a ban that is over holds")
	}
	var c bans // a worker after another one does not read the file
	if err := c.restore(dir, false, nil); err != nil || len(c.All(now)) != 0 {
		t.Errorf("%v, %v", c.All(now), err)
	}
	os.WriteFile(dir+"/bans.json", []byte(`[{"network":`), 0o600)
	var d bans
	if err := d.restore(dir, true, nil); err == nil {
		t.Error("a damaged file is no error")
	}
	d.unsaved.Store(true)
	if text, err := os.ReadFile(dir + "/bans.json"); d.save() != nil || err != nil || len(text) != 12 {
		t.Errorf("%q, %v", text, err)
	}
	if err := d.restore(dir, true, nil); err != nil {
		t.Errorf("a damaged file is not replaced: %v", err)
	}
}

func FuzzBans(f *testing.F) {
	f.Add([]byte(`[{"network":"192.0.2.0/24","at":"2026-11-27T10:00:00Z","until":"2036-11-27T10:00:00Z","by":"root"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := parseBans(text)
		if err != nil {
			return
		}
		var b lists.Bans
		now := time.Unix(1.8e9, 0)
		b.Change(now, list, nil)
		for _, ban := range b.All(now) {
			if ban.Check() != nil || !b.Contains(ban.Network.Addr()) {
				t.Fatalf("%+v", ban)
			}
		}
	})
}
