package sources

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// fetchPatience bounds how long a registry may take to answer a command.
const fetchPatience = 10 * time.Second

// Fetch returns a function that returns the version of a text in a registry that a relay with the name of this host would run
// now. It is config.Source.Remote of commands. program is the version of this one.
func Fetch(program string) func(path string) (spec.Layer, error) {
	return func(path string) (spec.Layer, error) { return fetch(path, program) }
}

func fetch(path, program string) (spec.Layer, error) {
	registry, key, err := spec.ParseRemote(path)
	if err != nil {
		return spec.Layer{}, err
	}
	host, _ := os.Hostname()
	client, err := newRemoteClient(registry, key, spec.Node{ID: host}, spec.Layer{}, program)
	if err != nil {
		return spec.Layer{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchPatience)
	defer cancel()
	layer, failed := spec.Layer{}, errors.New("no answer in time")
	client.follow(ctx, func(l spec.Layer, err error) {
		if ctx.Err() == nil {
			layer, failed = l, err
			cancel()
		}
	})
	layer.Path = path
	return layer, failed
}
