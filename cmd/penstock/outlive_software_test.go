package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/quic"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Real clients and real servers: what they have begun goes on while the worker is killed and the
// daemon is upgraded between them.

// program is a client that is talked to line by line.
type program struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
	cmd *exec.Cmd
}

func talk(t *testing.T, argv ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(argv[0], argv[1:]...)}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

func (p *program) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// line returns the next line. A program that says nothing is ended, so that the test does not wait
// for ever.
func (p *program) line() string {
	p.t.Helper()
	stop := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer stop.Stop()
	text, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%s: %q, %v", p.cmd.Path, text, err)
	}
	return strings.TrimRight(text, "\r\n")
}

func (p *program) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("%s: %q, want %q", p.cmd.Path, got, want)
	}
}

// hostPort returns where a listener of 127.0.0.1 is.
func (k *kept) hostPort(listener string) (host, port string) {
	k.t.Helper()
	host, port, err := net.SplitHostPort(k.at(listener).String())
	if err != nil {
		k.t.Fatal(err)
	}
	return host, port
}

// A transaction of PostgreSQL, open over a TCP to a Unix socket: it is committed with everything in
// it, by the same server process; a query that waits for a lock gets its answer, and a large answer
// comes as it was sent.
func TestPostgresOutlives(t *testing.T) {
	need(t, "psql")
	t.Parallel()
	socket, _ := postgres(t)
	k := runKept(t, "listeners: {db: {listen: \"tcp://127.0.0.1:0\", to: \"unix://{0}\"}}", socket)
	host, port := k.hostPort("db")
	psql := func(host, port string) *program {
		return talk(t, "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", host, "-p", port, "-U", "bench", "postgres")
	}
	p := psql(host, port)
	p.say("BEGIN; CREATE TABLE rows(n int); INSERT INTO rows SELECT generate_series(1, 1000); SELECT 'in ' || count(*) FROM rows; SELECT 'by ' || pg_backend_pid();")
	p.expect("in 1000")
	by := p.line()
	k.settled(1)
	for i, disturb := range []func(){k.crash, k.upgrade, k.crash} {
		disturb()
		p.say("INSERT INTO rows SELECT generate_series(1, 1000); SELECT 'in ' || count(*) FROM rows; SELECT 'by ' || pg_backend_pid();")
		p.expect(fmt.Sprint("in ", (i+2)*1000))
		p.expect(by)
	}
	p.say("COMMIT; SELECT 'committed';")
	p.expect("committed")

	// While the worker dies, the query waits in the server for a lock that another client has.
	_, at, _ := strings.Cut(filepath.Base(socket), ".s.PGSQL.")
	other := psql(filepath.Dir(socket), at)
	other.say("SELECT pg_advisory_lock(1), 'mine';")
	other.expect("|mine")
	p.say("SELECT pg_advisory_lock(1), 'at last';")
	testwait.Until(t, "the query waits", func() bool {
		other.say("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted;")
		return other.line() == "1"
	})
	k.crash()
	k.upgrade()
	other.say("SELECT pg_advisory_unlock(1), 'unlocked';")
	other.expect("t|unlocked")
	p.expect("|at last")

	const rows = 300_000
	p.say(fmt.Sprintf("SELECT md5(i::text) FROM generate_series(1, %d) AS i; SELECT md5(string_agg(md5(i::text), '' ORDER BY i)) FROM generate_series(1, %d) AS i;", rows, rows))
	sum := md5.New()
	for i := range rows {
		if i == 1000 {
			k.crash()
		}
		if i == rows/2 {
			k.upgrade()
		}
		io.WriteString(sum, p.line())
	}
	p.expect(fmt.Sprintf("%x", sum.Sum(nil)))
}

// A subscriber of redis gets every message, in order; publisher and subscriber are flows.
func TestRedisOutlives(t *testing.T) {
	need(t, "redis-server", "redis-cli")
	t.Parallel()
	dir := shortDir(t)
	port := testnet.Port(t)
	startRedis(t, filepath.Join(dir, "redis"), "--port", port, "--bind", "127.0.0.1")
	k := runKept(t, "listeners: {redis: {listen: \"tcp://127.0.0.1:0\", to: \"tcp://127.0.0.1:{0}\"}}", port)
	host, at := k.hostPort("redis")
	subscriber := talk(t, "redis-cli", "-h", host, "-p", at, "subscribe", "news")
	for _, want := range []string{"subscribe", "news", "1"} {
		subscriber.expect(want)
	}
	publisher := talk(t, "redis-cli", "-h", host, "-p", at)
	publisher.say("CLIENT ID")
	id := publisher.line()
	k.settled(2)
	for i := range 200 {
		switch i {
		case 50, 150:
			k.crash()
		case 100:
			k.upgrade()
		}
		publisher.say(fmt.Sprint("PUBLISH news ", i))
		publisher.expect("1")
		for _, want := range []string{"message", "news", fmt.Sprint(i)} {
			subscriber.expect(want)
		}
	}
	publisher.say("CLIENT ID") // it has not connected again
	publisher.expect(id)
}

// A session of OpenSSH goes on, whether it is idle or moves data in both directions. SSH itself
// checks every byte.
func TestSSHOutlives(t *testing.T) {
	need(t, "ssh", "ssh-keygen")
	t.Parallel()
	server, key := sshd(t)
	k := runKept(t, "listeners: {ssh: {listen: \"tcp://127.0.0.1:0\", to: \"tcp://127.0.0.1:{0}\"}}", server)
	host, port := k.hostPort("ssh")
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	p := talk(t, "ssh", "-F", "none", "-p", port, "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "BatchMode=yes", "-T", me.Username+"@"+host, "cat")
	p.say("hello")
	p.expect("hello")
	k.settled(1)
	for i, disturb := range []func(){k.crash, k.upgrade, k.crash} {
		disturb()
		p.say(fmt.Sprint("line ", i))
		p.expect(fmt.Sprint("line ", i))
	}
	const size = 24 << 20
	sent, got := sha256.New(), sha256.New()
	failed := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(p.in, sent), mathrand.NewChaCha8([32]byte{1}), size)
		p.in.Close()
		failed <- err
	}()
	for _, disturb := range []func(){k.crash, k.upgrade, k.crash} {
		if _, err := io.CopyN(got, p.out, size/4); err != nil {
			t.Fatal(err)
		}
		disturb()
	}
	if _, err := io.Copy(got, p.out); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil || string(sent.Sum(nil)) != string(got.Sum(nil)) {
		t.Errorf("%v; %x came back, want %x", err, got.Sum(nil), sent.Sum(nil))
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// sshd starts a server for this user and returns its port, and the key of a client.
func sshd(t *testing.T) (port, key string) {
	t.Helper()
	program, err := exec.LookPath("sshd") // which insists on an absolute path
	if err != nil {
		program = "/usr/sbin/sshd"
		if _, err := os.Stat(program); err != nil {
			t.Skip("sshd is not installed")
		}
	}
	dir, port := t.TempDir(), testnet.Port(t)
	for _, name := range []string{"server", "client"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config, log := filepath.Join(dir, "config"), filepath.Join(dir, "log")
	text := fmt.Sprintf("ListenAddress 127.0.0.1:%[2]s\nHostKey %[1]s/server\nAuthorizedKeysFile %[1]s/client.pub\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n", dir, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{program, "-D", "-f", config, "-E", log}
	if _, err := os.Stat("/run/sshd"); err != nil && os.Getuid() == 0 {
		// Started by root it wants this folder, which distributions make when the service starts.
		need(t, "unshare")
		argv = append([]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec "$0" "$@"`}, argv...)
	}
	serve(t, argv...)
	up(t, "sshd", "127.0.0.1:"+port)
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("sshd: %s", text)
		}
	})
	return port, filepath.Join(dir, "client")
}

// A run of iperf3, in each direction: its control connection and its data outlive the workers.
func TestIperfOutlives(t *testing.T) {
	need(t, "iperf3")
	t.Parallel()
	for _, args := range [][]string{{}, {"-R"}} {
		// Small buffers: the sender ends when it has written everything, and what is on its way then is not in the report.
		k := runKept(t, "defaults: {tcp: {recv-buffer: 256KiB, send-buffer: 256KiB}}\nlisteners: {l: {listen: \"tcp://127.0.0.1:0\", to: \"tcp://127.0.0.1:{0}\"}}", iperf(t))
		host, port := k.hostPort("l")
		cmd := exec.Command("iperf3", append([]string{"-c", host, "-p", port, "-b", "400M", "-n", "120M", "-w", "256K", "-J"}, args...)...) // 2.5 s
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		testwait.Until(t, "the flows are held, or have been", func() bool { return len(ended) > 0 || k.status(t).Keeper.Flows >= 2 })
		k.crash()
		k.upgrade()
		k.crash()
		if len(ended) > 0 {
			t.Log("it ended before the last worker came")
		}
		var report struct {
			Error string
			End   struct {
				Sent     struct{ Bytes int64 } `json:"sum_sent"`
				Received struct{ Bytes int64 } `json:"sum_received"`
			}
		}
		err := <-ended
		if json.Unmarshal([]byte(out.String()), &report) != nil || err != nil || report.Error != "" || report.End.Received.Bytes < 110<<20 {
			t.Errorf("iperf3 %v: %v, %+v\n%.500s", args, err, report, out.String())
		}
	}
}

// A QUIC connection, over datagrams, is the same to the end, and its stream comes whole. What
// datagrams a worker had in its hands is sent again.
func TestQUICOutlives(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	serverTLS, clientTLS := certificate(t)
	// While a worker is replaced nobody reads what comes back, and the connection may have nothing to send.
	const idle = 3 * patience
	server := quicEndpoint(t, &quic.Config{TLSConfig: serverTLS, HandshakeTimeout: patience, MaxIdleTimeout: idle})
	client := quicEndpoint(t, nil)
	k := runKept(t, "listeners: {quic: {listen: \"udp://127.0.0.1:0\", to: \"udp://{0}\"}}", server.LocalAddr())

	echoed := make(chan error, 1)
	go func() {
		echoed <- func() error {
			c, err := server.Accept(ctx)
			if err != nil {
				return err
			}
			s, err := c.AcceptStream(ctx)
			if err != nil {
				return err
			}
			if _, err := io.Copy(s, s); err != nil {
				return err
			}
			return s.Close()
		}()
	}()
	c, err := client.Dial(ctx, "udp4", k.at("quic").String(), &quic.Config{TLSConfig: clientTLS, HandshakeTimeout: patience, MaxIdleTimeout: idle})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.SetReadContext(ctx)
	s.SetWriteContext(ctx)
	const size = 16 << 20
	sent, got := sha256.New(), sha256.New()
	written := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(s, sent), mathrand.NewChaCha8([32]byte{2}), size)
		s.CloseWrite()
		written <- err
	}()
	for i, disturb := range []func(){k.crash, k.upgrade, k.crash} {
		if _, err := io.CopyN(got, s, size/4); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			k.settled(1)
		}
		disturb()
	}
	if _, err := io.Copy(got, s); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil || string(sent.Sum(nil)) != string(got.Sum(nil)) {
		t.Errorf("%v; %x came back, want %x", err, got.Sum(nil), sent.Sum(nil))
	}
	if err := <-echoed; err != nil {
		t.Error(err)
	}
	if l, err := k.admin.Listeners(k.ctx()); err != nil || l.Listeners[0].Begun != 1 {
		t.Errorf("%v; flows %+v, want one", err, l)
	}
}

// quicEndpoint returns an endpoint of QUIC at a free port. It is closed at once when the test ends.
func quicEndpoint(t *testing.T, config *quic.Config) *quic.Endpoint {
	t.Helper()
	e, err := quic.Listen("udp4", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel() // at once
		e.Close(over)
	})
	return e
}

// certificate returns the configurations of a server with the name "test" and further names, and of a client that trusts it.
func certificate(t *testing.T, names ...string) (server, client *tls.Config) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: append(names, "test")}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	protocols := []string{"penstock-test"}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: protocols, MinVersion: tls.VersionTLS13},
		&tls.Config{RootCAs: pool, ServerName: "test", NextProtos: protocols, MinVersion: tls.VersionTLS13}
}
