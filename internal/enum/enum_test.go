package enum

import "testing"

type color uint8

var colors = []string{"", "red", "green"}

func TestSet(t *testing.T) {
	for want, name := range colors {
		v := color(200)
		if err := Set(&v, "color", colors, []byte(name)); err != nil || v != color(want) || Name(colors, v) != name {
			t.Errorf("%q is %d, %v", name, v, err)
		}
	}
	v := color(1)
	err := Set(&v, "color", colors, []byte("Red"))
	if err == nil || err.Error() != `unknown color "Red"; known: red, green` || v != 1 {
		t.Errorf("Red is %d, %v", v, err)
	}
	if got := Name(colors, color(3)); got != "unknown" {
		t.Errorf("3 is %q", got)
	}
}
