//go:build linux

package main

import (
	"fmt"
	"strconv"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
)

// parts are the children that make the load.
var parts = child.Parts{"sink": child.Does(sink), "generate": child.Answers(generate)}

// sinkArgs is what the child at the far end is told.
type sinkArgs struct {
	Spec   load.Spec
	Host   string // the address at which it listens
	Verify bool   // read and check every byte
}

// sink prints its address and serves.
func sink(a *sinkArgs) error {
	s, err := load.NewSink(a.Spec, a.Host, a.Verify)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr)
	return s.Serve()
}

// generateArgs is what the child at the near end is told.
type generateArgs struct {
	Spec   load.Spec
	Config load.Config
	Admin  string // the admin socket of a relay with a keeper
}

// generate runs the load.
func generate(a *generateArgs) (load.Result, error) {
	if a.Admin != "" {
		a.Config.Settled = func() (int64, error) { return peer.Settled(a.Admin) }
	}
	return load.Run(a.Spec, a.Config)
}

// goCopy runs the relay that is part of this program; its arguments are threads, listener and
// upstream.
func goCopy(args []string) error {
	threads, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	return peer.GoCopy(threads, args[1], args[2])
}
