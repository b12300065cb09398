package testport_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testport"
)

// childEnv makes this test binary one of the processes of TestProcesses.
const childEnv = "PENSTOCK_TESTPORT_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(reserveAll())
	}
	testnet.Main(m)
}

// each is how many ports a process reserves: with all processes, a tenth of all that there are.
const each, processes = 60, 16

// reserveAll reserves ports, listens at each, and prints them. It keeps them until its standard input ends.
func reserveAll() int {
	io.ReadFull(os.Stdin, make([]byte, 1)) // all begin at the same time
	for range each {
		port, _, err := testport.Reserve()
		if err == nil {
			err = use(port)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(port)
	}
	fmt.Println("done")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// use listens at a port in all the ways that tests do, and leaves it free.
func use(port string) error {
	for _, at := range []string{"127.0.0.1:", "127.0.54.1:", ":"} {
		l, err := net.Listen("tcp", at+port)
		if err != nil {
			return err
		}
		l.Close()
		u, err := net.ListenPacket("udp", at+port)
		if err != nil {
			return err
		}
		u.Close()
	}
	return nil
}

// Many processes that reserve and use ports at the same time never get the same one, and each port can be used
// again and again.
func TestProcesses(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var starts []io.Writer
	var outs []*bufio.Scanner
	for range processes {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			cmd.Wait()
		})
		starts, outs = append(starts, in), append(outs, bufio.NewScanner(out))
	}
	for _, in := range starts {
		if _, err := in.Write([]byte{'\n'}); err != nil {
			t.Fatal(err)
		}
	}
	owner := map[string]int{}
	for i, out := range outs {
		for n := 0; ; n++ {
			if !out.Scan() {
				t.Fatalf("process %d ends after %d ports: %v", i, n, out.Err())
			}
			port := out.Text()
			if port == "done" && n == each {
				break
			}
			if other, taken := owner[port]; taken || strings.Trim(port, "0123456789") != "" {
				t.Fatalf("process %d: %s; process %d has it (%v)", i, port, other, taken)
			}
			owner[port] = i
		}
	}
}

// A reservation ends once, and leaves nothing behind.
func TestRelease(t *testing.T) {
	testnet.CheckLeaks(t)
	port, release, err := testport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if err := use(port); err != nil {
		t.Error(err)
	}
	release()
	release()
}
