package sandbox_test

import (
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/penstock/penstock/sandbox"
)

// A server that opens its port and then gives up everything but answering on it.
func Example() {
	l, err := net.Listen("tcp", ":80") // needs privileges
	if err != nil {
		log.Fatal(err)
	}
	report, err := sandbox.Enter(sandbox.Policy{
		Read: []string{"/etc/resolv.conf", "/etc/hosts", "/srv/www"},
		User: &sandbox.User{UID: 65534, GID: 65534},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range report.Layers {
		if s.Wanted && !s.Held {
			fmt.Println(s.Layer, "does not hold:", s.Why)
		}
	}
	log.Fatal(http.Serve(l, http.FileServer(http.Dir("/srv/www"))))
}
