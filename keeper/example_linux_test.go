package keeper_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/keeper"
)

func init() {
	keeper.ExampleProgram = func() {
		name, at, _ := strings.Cut(os.Getenv(keeper.ExampleEnv), " ")
		address = netip.MustParseAddrPort(at)
		if name == "connections" {
			Example_connections()
		}
		Example()
	}
}

// program is an example that runs.
type program struct {
	*testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner // what the workers say
	ready  chan bool      // a worker is ready
	worker int            // process id of the last one that has said something
	ended  bool
}

// start runs an example on an address of its own, with the example's port.
func start(t *testing.T, name string) *program {
	p := &program{T: t, cmd: exec.Command(os.Args[0]), ready: make(chan bool, 100)}
	pid := os.Getpid()
	own := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(1 + pid>>16), byte(pid >> 8), byte(pid)}), 7007)
	p.cmd.Env = append(os.Environ(), keeper.ExampleEnv+"="+name+" "+own.String(), "GORACE=atexit_sleep_ms=0")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	said := make(chan bool)
	t.Cleanup(func() {
		if !p.ended {
			p.cmd.Process.Kill()
			sys.Signal(p.worker, syscall.SIGKILL)
			p.cmd.Wait()
		}
		<-said
	})
	go func() {
		defer close(said)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			t.Log(s.Text())
			if strings.HasSuffix(s.Text(), "is ready") {
				p.ready <- true
			}
		}
	}()
	return p
}

// next returns the address that the next worker tells with what is wanted.
func (p *program) next(want string) (addr string) {
	p.Helper()
	if !p.lines.Scan() {
		p.Fatal("the example has ended")
	}
	if !strings.Contains(p.lines.Text(), want) {
		p.Fatalf("%q, want %q", p.lines.Text(), want)
	}
	addr, rest, _ := strings.Cut(p.lines.Text(), ": ")
	fmt.Sscanf(rest[strings.LastIndex(rest, " ")+1:], "%d", &p.worker)
	return strings.TrimPrefix(addr, "tcp://")
}

// kill ends the worker once it is ready.
func (p *program) kill() {
	<-p.ready
	sys.Signal(p.worker, syscall.SIGKILL)
}

// stop ends the program.
func (p *program) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.Error(err)
	}
}

// The example's connections survive kills and an upgrade of both processes.
func TestExample(t *testing.T) {
	p := start(t, "relay")
	addr := p.next("0 flows continue")
	files := func() int {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
		return len(names)
	}
	before := files()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	ping := func(text string) {
		t.Helper()
		io.WriteString(conn, text)
		b := make([]byte, len(text))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != text {
			t.Fatalf("%q, %v, want %q", b, err, text)
		}
	}
	ping("hello")
	testwait.Until(t, "the flow is held", func() bool { return files() > before })
	for range 3 {
		p.kill()
		io.WriteString(conn, "nobody is there ")
		p.next("1 flows continue, 0 lost")
		b := make([]byte, len("nobody is there "))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "nobody is there " {
			t.Fatalf("%q, %v", b, err)
		}
		ping("again")
	}
	<-p.ready
	p.cmd.Process.Signal(syscall.SIGUSR2)
	p.next("1 flows continue, 0 lost")
	ping("upgraded")
	<-p.ready
	p.stop()
}

// The members of the other example's room go on hearing each other, old ones and new ones, whoever the worker is.
func TestExampleConnections(t *testing.T) {
	p := start(t, "connections")
	addr := p.next(": 0 members")
	var members []net.Conn
	heard := make(map[net.Conn]*bufio.Reader)
	round := func() {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		heard[c] = bufio.NewReader(c)
		members = append(members, c)
		// Its first line comes back when it is held and a member.
		for i := range members {
			from := members[len(members)-1-i]
			text := fmt.Sprintf("%d of %d\n", i, len(members))
			io.WriteString(from, text)
			for _, m := range members {
				if got, err := heard[m].ReadString('\n'); got != text {
					t.Fatalf("%q, %v, want %q", got, err, text)
				}
			}
		}
	}
	round()
	for i := range 3 {
		p.kill()
		p.next(fmt.Sprintf(": %d members", i+1))
		round()
	}
	<-p.ready
	p.stop()
}
