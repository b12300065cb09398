package echo

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestAsk(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		Serve(l, func(c net.Conn) {
			var b [4]byte
			io.ReadFull(c, b[:])
			if b[0] == 'w' {
				b[3]++
			}
			c.Write(b[:])
		})
	}()
	for message, want := range map[string]error{"good": nil, "wrong": ErrOther} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(testnet.Patience))
		if err := Ask(c, []byte(message)[:4]); !errors.Is(err, want) {
			t.Errorf("%s: %v", message, err)
		}
		c.Close()
	}
	l.Close()
	<-served
}
