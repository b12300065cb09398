//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// The listener hashed has the parts of split and always their weights, and chooses by the client's address. This is from how many addresses
// its clients come.
const hashSources = 6

// hashSource returns an address that clients of the listener hashed come from. It is never banned.
func (r *endsRun) hashSource(n int) string { return r.address(200 + n) }

// share is the share of a part that has a weight.
func share(weights [2]int, part int) float64 {
	return float64(weights[part]) / float64(weights[0]+weights[1])
}

// An owner is the part that a client was in, and the weights by which it was.
type owner struct {
	part    string
	weights [2]int
}

// owners sees that clients by their hashes stay in their part, unless its share has fallen, and that one of them is in the part that
// penstock explain says.
func (r *endsRun) owners() error {
	for n := range r.hashed {
		var c *staying
		err := proc.Until("a client of the listener hashed", world.Patience, 50*time.Millisecond, func() (err error) {
			c, err = r.comeFrom("hashed", r.hashSource(n))
			return err
		})
		if err != nil {
			return err
		}
		c.Close()
		was := r.hashed[n]
		r.hashed[n] = owner{c.server, r.weights}
		for i, part := range partNames {
			if was.part == part && c.server != part && share(r.weights, i) >= share(was.weights, i) {
				return fmt.Errorf("the client %s was in the part %s with the weights %v, and is in %s with %v", r.hashSource(n), part, was.weights, c.server, r.weights)
			}
		}
		if !r.serves("split", c.server) {
			return fmt.Errorf("the client %s is in the part %s, whose weight is 0", r.hashSource(n), c.server)
		}
	}
	n := r.now % hashSources
	part, err := r.explained(r.hashSource(n))
	if err == nil && part != r.hashed[n].part {
		err = fmt.Errorf("the client %s is in the part %s, and penstock explain says %s", r.hashSource(n), r.hashed[n].part, part)
	}
	return err
}

// explained returns the part that a client is in as penstock explain says, of a file with the weights that there are.
func (r *endsRun) explained(from string) (part string, err error) {
	now := *r.config.clone()
	now.Ends.Weights = r.weights
	file := filepath.Join(filepath.Dir(r.dir), "explained.yaml")
	if err := os.WriteFile(file, []byte(now.text(&r.places)), 0o644); err != nil {
		return "", err
	}
	text, err := exec.Command(r.binary[0].Path, "explain", "-c", file, "--listener", "hashed", "--from", from, "--json").Output()
	var is struct{ Group string }
	return is.Group, errors.Join(err, json.Unmarshal(text, &is))
}
