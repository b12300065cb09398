package haproxy

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// HAProxy pads abstract names with zero bytes, unless they are abnsz.
func TestAbstractNames(t *testing.T) {
	for family, notes := range map[string]int{"abns": 2, "abnsz": 0} {
		text := "listen l\n bind " + family + "@a\n server s " + family + "@b\n"
		r, err := testconvert.Text(Reader, "f", text)
		if err != nil {
			t.Fatal(err)
		}
		testconvert.Valid(t, family, r)
		if !strings.Contains(string(r.YAML), "listen: unix:@a") || !strings.Contains(string(r.YAML), "to: unix:@b") || len(r.Notes) != notes {
			t.Errorf("%s: %v\n%s", family, r.Notes, r.YAML)
		}
	}
}
