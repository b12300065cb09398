package kube

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	apiServer    = flag.String("apiserver", "", "the `program` kube-apiserver")
	fleetServers = flag.String("fleetservers", "", "the `program` fleetservers")
	penstock     = flag.String("penstock", "", "the `program` penstock")
	docs         = flag.String("docs", "", "the `file` docs/fleet.md, whose manifest is used")
)

// prepareNamespace gives addresses to the loopback interface of a network namespace that has nothing else.
func prepareNamespace(t *testing.T, addresses ...string) {
	t.Helper()
	if *apiServer == "" || *fleetServers == "" || *penstock == "" {
		t.Skip("make kube runs this")
	}
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 {
		t.Fatalf("%d interfaces, %v: this must be run in a network namespace of its own, by make kube", len(links), err)
	}
	ip(t, "link", "set", "lo", "up")
	for _, a := range addresses {
		args := []string{"addr", "add", a, "dev", "lo"}
		if strings.Contains(a, ":") {
			args = append(args, "nodad")
		}
		ip(t, args...)
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// serveName listens at an address, tells every client this address, and then echoes.
func serveName(t *testing.T, address string) {
	l, err := net.Listen("tcp", net.JoinHostPort(address, "8080"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintln(c, address)
				io.Copy(c, c)
			}()
		}
	}()
}

// A program runs until the test ends.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string // path
	done chan struct{}
	said int // bytes of the log before what says looks for
}

func run(t *testing.T, log string, stdout io.Writer, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(name, args...), log: log, done: make(chan struct{})}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.cmd.Stderr, p.cmd.Stdout = f, stdout
	if stdout == nil {
		p.cmd.Stdout = f
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // fleetservers ends with it
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			b, _ := os.ReadFile(log)
			t.Logf("%s said:\n%s", name, b[max(0, len(b)-4000):])
		}
	})
	return p
}

// says waits until the log says something since the last time.
func (p *program) says(part string) {
	p.t.Helper()
	eventually(p.t, "the log", func() string {
		b, err := os.ReadFile(p.log)
		if err != nil {
			p.t.Fatal(err)
		}
		i := strings.Index(string(b[p.said:]), part)
		if i < 0 {
			return fmt.Sprintf("it does not say %q", part)
		}
		p.said += i + len(part)
		return ""
	})
}

func (p *program) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

type etcd struct {
	*program
	url string
}

func startEtcd(t *testing.T) *etcd {
	r, w := io.Pipe()
	e := &etcd{program: run(t, filepath.Join(t.TempDir(), "log"), w, *fleetServers, "etcd", "-data", t.TempDir())}
	line, err := bufio.NewReader(r).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 || words[0] != "ready" {
		t.Fatalf("etcd: %q, %v", line, err)
	}
	e.url = words[1]
	return e
}

// compact removes all versions but the present ones.
func (e *etcd) compact() {
	e.t.Helper()
	post := func(path, body string) (answer struct {
		Header struct{ Revision string }
	}) {
		r, err := http.Post(e.url+path, "application/json", strings.NewReader(body))
		if err != nil {
			e.t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &answer); err != nil || r.StatusCode != http.StatusOK {
			e.t.Fatalf("etcd: %s: %s", r.Status, b)
		}
		return answer
	}
	revision := post("/v3/kv/range", `{"key":"AA=="}`).Header.Revision
	post("/v3/kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, revision))
}

// An apiserver is a kube-apiserver. Its only administrator has the token "admin".
type apiserver struct {
	*program
	t       *testing.T
	dir     string
	url, ca string
	args    []string
	client  *http.Client
}

func startAPIServer(t *testing.T, store string) *apiserver {
	a := &apiserver{t: t, dir: t.TempDir(), url: "https://" + host + ":6443"}
	file := func(name, content string) string {
		path := filepath.Join(a.dir, name)
		replaceFile(t, path, content)
		return path
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := file("accounts.pem", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	a.args = []string{
		"--etcd-servers=" + store, "--etcd-compaction-interval=0",
		"--bind-address=" + host, "--advertise-address=" + host, "--secure-port=6443", "--cert-dir=" + a.dir,
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.test", "--service-account-key-file=" + keyFile, "--service-account-signing-key-file=" + keyFile,
		"--token-auth-file=" + file("tokens.csv", "admin,admin,1,system:masters\n"), "--authorization-mode=RBAC",
		"--audit-log-path=" + filepath.Join(a.dir, "audit"),
		"--audit-policy-file=" + file("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, resources: [{group: discovery.k8s.io}]}]\n"),
	}
	a.start()
	return a
}

// start starts the server, and waits until it is ready.
func (a *apiserver) start() {
	a.t.Helper()
	info, _ := os.Stat(filepath.Join(a.dir, "log"))
	a.program = run(a.t, filepath.Join(a.dir, "log"), nil, *apiServer, a.args...)
	if info != nil {
		a.said = int(info.Size()) // of what it said before
	}
	a.ca = filepath.Join(a.dir, "apiserver.crt")
	eventually(a.t, "API server", func() string {
		select {
		case <-a.done:
			a.t.Fatal("the API server has ended")
		default:
		}
		b, err := os.ReadFile(a.ca)
		if err != nil {
			return err.Error()
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(b)
		a.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		status, body := a.do(http.MethodGet, "/readyz", "")
		if status != http.StatusOK {
			return fmt.Sprint(status, " ", string(body))
		}
		return ""
	})
}

func (a *apiserver) do(method, path, body string) (int, []byte) {
	r, err := http.NewRequest(method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Content-Type", "application/json")
	if !strings.HasPrefix(body, "{") {
		r.Header.Set("Content-Type", "application/yaml")
	}
	answer, err := a.client.Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, b
}

// must makes a request that must succeed, and returns its answer.
func (a *apiserver) must(method, path, body string) []byte {
	a.t.Helper()
	status, answer := a.do(method, path, body)
	if status/100 != 2 {
		a.t.Fatalf("%s %s: %d: %s\n%s", method, path, status, answer, body)
	}
	return answer
}

func (a *apiserver) post(path, body string) []byte {
	a.t.Helper()
	return a.must(http.MethodPost, path, body)
}

func (a *apiserver) delete(path string) {
	a.t.Helper()
	a.must(http.MethodDelete, path, "")
}

const endpointSlices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"

// put creates or replaces an EndpointSlice of the service web.
func (a *apiserver) put(name, kind string, endpoints ...string) {
	a.t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"kubernetes.io/service-name":"web"}},"addressType":%q,"ports":[{"name":"http","protocol":"TCP","port":8080}],"endpoints":[%s]}`,
		name, kind, strings.Join(endpoints, ","))
	if status, _ := a.do(http.MethodPut, endpointSlices+"/"+name, body); status != http.StatusOK && status != http.StatusCreated {
		a.post(endpointSlices, body)
	}
}

func (a *apiserver) remove(name string) {
	a.t.Helper()
	a.delete(endpointSlices + "/" + name)
}

// newToken returns a token of a service account.
func (a *apiserver) newToken(account string) string {
	a.t.Helper()
	var answer struct{ Status struct{ Token string } }
	b := a.post("/api/v1/namespaces/shop/serviceaccounts/"+account+"/token", `{"spec":{"expirationSeconds":3600}}`)
	if err := json.Unmarshal(b, &answer); err != nil || answer.Status.Token == "" {
		a.t.Fatalf("token: %v: %s", err, b)
	}
	return answer.Status.Token
}

// requests returns the verbs of the daemon's requests that were allowed, according to the audit log.
func (a *apiserver) requests() (verbs []string) {
	b, err := os.ReadFile(filepath.Join(a.dir, "audit"))
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var e struct {
			Stage, Verb    string
			User           struct{ Username string }
			ResponseStatus struct{ Code int }
		}
		stage := map[string]string{"list": "ResponseComplete", "watch": "ResponseStarted"} // a watch is not complete for minutes
		if json.Unmarshal(line, &e) == nil && e.Stage == stage[e.Verb] && e.ResponseStatus.Code != http.StatusForbidden && strings.HasSuffix(e.User.Username, ":penstock") {
			verbs = append(verbs, e.Verb)
		}
	}
	return verbs
}

func replaceFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".next", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
}
