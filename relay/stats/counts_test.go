package stats

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

func TestCounts(t *testing.T) {
	var c Counts[Drop]
	if c.String() != "" || c.Total() != 0 {
		t.Errorf("nothing is %q, %d", c, c.Total())
	}
	c.Add(DropTooBig, 1)
	c.Add(DropFull, 12)
	c.Add(DropNotPermitted, 3)
	if got := fmt.Sprint(Datagrams{Dropped: c}.Dropped); got != "full 12, too-big 1, not-permitted 3" || c.Total() != 16 {
		t.Errorf("%q, %d", got, c.Total())
	}
	var all []Drop
	for reason, n := range c.All() {
		if n != c.Get(reason) {
			t.Errorf("%v: %d", reason, n)
		}
		all = append(all, reason)
	}
	if len(all) != int(drops) || all[0] != DropFull || all[len(all)-1] != drops-1 {
		t.Errorf("%v", all)
	}
	for reason := range c.All() {
		if reason == DropTooBig {
			break // and All does not go on
		}
	}
	d, e := CountsOf[Drop]([]int64{1}), CountsOf[Drop]([]int64{DropFull: 2, DropCrashed: 3})
	if d.AddAll(&e); d != CountsOf[Drop]([]int64{DropFull: 3, DropCrashed: 3}) {
		t.Errorf("%v", d)
	}
	for _, k := range []Drop{drops, room - 1, room, 200} {
		if n := d.Get(k); n != 0 {
			t.Errorf("%d, a value that there is not: %d", k, n)
		}
	}
	text, err := json.Marshal(d)
	var again Counts[Drop]
	if err != nil || json.Unmarshal(text, &again) != nil || again != d || len(text) != len("[]")+2*room-1 {
		t.Errorf("%s, %v: %v", text, err, again)
	}
}

// There is room for as many values again, before more is needed.
func TestCountsHaveRoom(t *testing.T) {
	if drops > room*3/4 {
		t.Errorf("%d reasons of drops, and room for %d", drops, room)
	}
}

func TestTotal(t *testing.T) {
	s := Engine{Loops: []Loop{
		{Flows: 1, LongestTurn: 3, Ended: map[string]int64{"end": 2}, Datagrams: Datagrams{Sent: 5}},
		{Flows: 2, LongestTurn: 2, Ended: map[string]int64{"end": 1, "idle": 4}, Datagrams: Datagrams{Sent: 6}},
	}}
	if sum := s.Total(); s.Flows() != 3 || sum.Flows != 3 || sum.LongestTurn != 3 || fmt.Sprint(sum.Ended) != "map[end:3 idle:4]" || sum.Datagrams.Sent != 11 {
		t.Errorf("%+v", sum)
	}
	if sum := (Engine{}).Total(); sum.Ended["end"] != 0 || sum.Flows != 0 {
		t.Errorf("%+v", sum)
	}
}

// Each counter of a loop is in the sum.
func TestTotalHasAll(t *testing.T) {
	var l Loop
	n := int64(0)
	var number func(v reflect.Value)
	number = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Struct:
				if c, ok := f.Addr().Interface().(*Counts[Drop]); ok {
					c.Add(DropFailed, 1)
					continue
				}
				number(f)
			case reflect.Map:
				f.Set(reflect.ValueOf(map[string]int64{"end": 1}))
			default:
				n++
				f.SetInt(n)
			}
		}
	}
	number(reflect.ValueOf(&l).Elem())
	sum := Engine{Loops: []Loop{l, l}}.Total()
	var twice func(name string, one, two reflect.Value)
	twice = func(name string, one, two reflect.Value) {
		for i := range one.NumField() {
			name := name + "." + one.Type().Field(i).Name
			switch f := one.Field(i); {
			case f.Type() == reflect.TypeFor[Counts[Drop]](), f.Kind() == reflect.Map: // TestTotal, and below
			case f.Kind() == reflect.Struct:
				twice(name, f, two.Field(i))
			case name == ".LongestTurn":
				if two.Field(i).Int() != f.Int() {
					t.Errorf("%s is %d, of %d", name, two.Field(i).Int(), f.Int())
				}
			case two.Field(i).Int() != 2*f.Int():
				t.Errorf("%s is %d, of %d twice", name, two.Field(i).Int(), f.Int())
			}
		}
	}
	twice("", reflect.ValueOf(l), reflect.ValueOf(sum))
	if sum.Datagrams.Dropped.Get(DropFailed) != 2 || sum.Ended["end"] != 2 || l.Ended["end"] != 1 {
		t.Errorf("%v dropped, ended %v, of %v", sum.Datagrams.Dropped, sum.Ended, l.Ended)
	}
}

func TestDropNames(t *testing.T) {
	seen := make(map[string]bool)
	for d := range drops {
		name := d.String()
		var again Drop
		if text, err := d.MarshalText(); name == "" || name == "unknown" || seen[name] || string(text) != name || err != nil || again.UnmarshalText(text) != nil || again != d {
			t.Errorf("drop %d is called %q", d, name)
		}
		seen[name] = true
	}
	if drops.String() != "unknown" {
		t.Error("an invalid reason has a name")
	}
}
