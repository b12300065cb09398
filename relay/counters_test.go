package relay

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/penstock/penstock/relay/stats"
)

// Each counter is one of package stats, and is added.
func TestCountersAreStats(t *testing.T) {
	var c, twice loopCounters
	n := int64(0)
	var number func(v reflect.Value)
	number = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Struct:
				number(f)
			case reflect.Array:
				n++
				f.Index(int(n % 16)).SetInt(n)
			default:
				n++
				f.SetInt(n)
			}
		}
	}
	number(reflect.ValueOf(&c).Elem())
	twice.add(&c)
	twice.add(&c)
	var same func(name string, in, sum, out reflect.Value)
	same = func(name string, in, sum, out reflect.Value) {
		if in.NumField() != out.NumField() {
			t.Errorf("%s: %d counters, %d in package stats", name, in.NumField(), out.NumField())
		}
		for i := range in.NumField() {
			field := in.Type().Field(i).Name
			is, added, shown := in.Field(i), sum.Field(i), out.FieldByName(field)
			switch is.Kind() {
			case reflect.Struct:
				same(field, is, added, shown)
				continue
			case reflect.Array:
				k := 0
				for is.Index(k).Int() == 0 {
					k++
				}
				if added.Index(k).Int() != 2*is.Index(k).Int() {
					t.Errorf("%s.%s is not added", name, field)
				}
				want := fmt.Sprintf("%v %d", stats.Drop(k), is.Index(k).Int())
				if field == "Ended" {
					want = fmt.Sprintf("map[%v:%d]", Cause(k), is.Index(k).Int())
				}
				if got := fmt.Sprint(shown.Interface()); got != want {
					t.Errorf("%s.%s is %s, want %s", name, field, got, want)
				}
				continue
			}
			want := 2 * is.Int()
			if field == "LongestTurn" {
				want = is.Int()
			}
			if !shown.IsValid() || shown.Int() != is.Int() || added.Int() != want {
				t.Errorf("%s.%s is shown as %v, or twice it is %d", name, field, shown, added.Int())
			}
		}
	}
	same("Loop", reflect.ValueOf(c), reflect.ValueOf(twice), reflect.ValueOf(c.stats()))
}

// There is room for as many values again, before the layout has to change.
func TestCountersHaveRoom(t *testing.T) {
	if room := len(loopCounters{}.Ended); int(causes) > room*3/4 {
		t.Errorf("%d causes, and room for %d", causes, room)
	}
}
