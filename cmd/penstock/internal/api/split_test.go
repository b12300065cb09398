package api

import (
	"encoding/json"
	"maps"
	"testing"
)

// A value that is not a number is an error, not the weight 0, which would take all clients from a part.
func TestSplitChange(t *testing.T) {
	for _, c := range []struct {
		body string
		want PartWeights // nil: an error
	}{
		{`{"weights": {"blue": 0, "green": 5}}`, PartWeights{"blue": 0, "green": 5}},
		{`{"weights": {"blue": null, "green": 5}}`, nil},
		{`{"weights": {"blue": 1, "blue": null}}`, nil},
		{`{"weights": {"blue": 1.5}}`, nil},
		{`{"weights": {"blue": "1"}}`, nil},
		{`{"weights": {"blue": 99999999999999999999}}`, nil},
		{`{"weights": ["blue"]}`, nil},
		{`{"weights": {}}`, nil},
		{`{"weights": null}`, nil},
		{`null`, nil},
	} {
		var change SplitChange
		err := json.Unmarshal([]byte(c.body), &change)
		if err == nil {
			err = change.Check()
		}
		if (err == nil) != (c.want != nil) || err == nil && !maps.Equal(change.Weights, c.want) {
			t.Errorf("%s: %v, %v", c.body, change.Weights, err)
		}
	}
}
