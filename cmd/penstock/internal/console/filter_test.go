package console

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// The flag --state accepts the states that the API shows, and its help names them.
func TestFilterStates(t *testing.T) {
	field, _ := reflect.TypeFor[Filter]().FieldByName("State")
	if got, want := strings.Split(field.Tag.Get("enum"), ","), append([]string{""}, api.FlowStates...); !slices.Equal(got, want) {
		t.Errorf("--state accepts %q, want %q", got, want)
	}
	for _, state := range api.FlowStates {
		if !strings.Contains(field.Tag.Get("help"), state) {
			t.Errorf("the help of --state does not name %s", state)
		}
	}
}
