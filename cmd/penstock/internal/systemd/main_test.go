package systemd

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// childEnv makes the test binary act as a service: it inherits sockets.
const childEnv = "PENSTOCK_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := service(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testnet.Main(m)
}

// service says the names that it was given, and answers one client of each
// socket: with the socket's name.
func service() error {
	s, err := Inherit()
	if err != nil {
		return err
	}
	defer s.Close()
	for _, name := range []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		if v, ok := os.LookupEnv(name); ok {
			return fmt.Errorf("%s=%s is still there", name, v)
		}
	}
	fmt.Println(s.Names())
	for name, all := range s.Streams {
		for _, l := range all {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			fmt.Fprint(c, name)
			c.Close()
		}
	}
	for name, all := range s.Datagrams {
		for _, p := range all {
			if err := answer(p, name); err != nil {
				return err
			}
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the test has read the answers
	return err
}

func answer(p net.PacketConn, name string) error {
	_, from, err := p.ReadFrom(make([]byte, 100))
	if err != nil {
		return err
	}
	_, err = p.WriteTo([]byte(name), from)
	return err
}
