//go:build linux

package main

import (
	"fmt"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/load"
)

// parts are the children that make the load.
var parts = child.Parts{"sink": child.Does(sink), "generate": child.Answers(generate)}

// sinkArgs is what the child at the far end is told.
type sinkArgs struct {
	Spec             load.TLSSpec
	Certificate, Key string // "": plain TCP
}

// generateArgs is what the child at the near end is told.
type generateArgs struct {
	Spec   load.TLSSpec
	Config load.Config
}

// sink prints its address and serves.
func sink(a *sinkArgs) error {
	s, err := load.NewTLSSink(a.Spec, a.Certificate, a.Key)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr)
	return s.Serve()
}

// generate runs the load.
func generate(a *generateArgs) (load.Result, error) { return load.RunTLS(a.Spec, a.Config) }
