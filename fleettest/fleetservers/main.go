// Fleetservers runs a real server for tests, as a child process of the test.
//
//	fleetservers etcd -data DIR [flags]
//	fleetservers ads -resources FILE [flags]
//	fleetservers fields MESSAGE...
//
// A server writes one line to its standard output when it is ready, "ready URL", and ends when its
// standard input does, so that it never outlives the test. Its log goes to standard error.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// servers are the subcommands. Each runs until its server has failed.
var servers = map[string]func(args []string) error{
	"ads":  runADS,
	"etcd": runEtcd,
}

func main() {
	var name string
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if name == "fields" {
		if err := printFields(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "fleetservers fields:", err)
			os.Exit(1)
		}
		return
	}
	run, ok := servers[name]
	if !ok {
		var names []string
		for n := range servers {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: fleetservers %s [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the test has ended, or killed this process's parent
	}()
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "fleetservers %s: %v\n", name, err)
		os.Exit(1)
	}
}

// ready tells the parent where the server listens.
func ready(url string) { fmt.Println("ready", url) }
