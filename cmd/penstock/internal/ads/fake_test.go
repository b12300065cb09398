package ads

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/penstock/penstock/internal/testnet"
)

// A fakeStream is one call of the method at a server that does what the test says.
type fakeStream struct {
	w http.ResponseWriter
	r *http.Request
}

// said is a DeltaDiscoveryRequest.
type said struct {
	url, nonce, refusal    string
	subscribe, unsubscribe []string
	known                  map[string]string
}

// read reads one request.
func (s *fakeStream) read() (q said, err error) {
	b, err := readFrame(s.r.Body, MaxMessage)
	if err != nil {
		return q, err
	}
	q.known = map[string]string{}
	return q, EachField(b, func(n protowire.Number, v RawValue) error {
		switch n {
		case 2:
			q.url = v.text()
		case 3:
			q.subscribe = append(q.subscribe, v.text())
		case 4:
			q.unsubscribe = append(q.unsubscribe, v.text())
		case 5:
			key := ""
			return EachField(v.Bytes, func(n protowire.Number, v RawValue) error {
				if n == 1 {
					key = v.text()
				} else if n == 2 {
					q.known[key] = v.text()
				}
				return nil
			})
		case 6:
			q.nonce = v.text()
		case 7:
			return EachField(v.Bytes, func(n protowire.Number, v RawValue) error {
				if n == 2 {
					q.refusal = string(v.Bytes)
				}
				return nil
			})
		}
		return nil
	})
}

// open sends the headers.
func (s *fakeStream) open() {
	s.w.Header().Set("Content-Type", "application/grpc")
	s.w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	s.w.WriteHeader(http.StatusOK)
	s.flush()
}

func (s *fakeStream) flush() { http.NewResponseController(s.w).Flush() }

func (s *fakeStream) send(message []byte) {
	s.w.Write(appendFrame(nil, message))
	s.flush()
}

func (s *fakeStream) end(status, message string) {
	s.w.Header().Set("Grpc-Status", status)
	s.w.Header().Set("Grpc-Message", message)
}

// response encodes a DeltaDiscoveryResponse.
func response(url, nonce string, removed []string, resources ...Resource) []byte {
	b := appendText(nil, 1, "v")
	for _, r := range resources {
		res := appendText(appendText(nil, 1, r.Version), 3, r.Name)
		b = appendBytes(b, 2, appendBytes(res, 2, appendBytes(appendText(nil, 1, r.URL), 2, r.Value)))
	}
	b = appendText(appendText(b, 4, url), 5, nonce)
	for _, name := range removed {
		b = appendText(b, 6, name)
	}
	return b
}

// newFake starts a server. Each call of the method is a call of serve.
func newFake(t *testing.T, secure bool, serve func(*fakeStream)) *httptest.Server {
	t.Helper()
	h := &fakeHandler{t: t, serve: serve}
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = h.protocols()
	s.Config.Protocols.SetHTTP2(true)
	if s.EnableHTTP2 = secure; secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		h.calls.Wait()
	})
	return s
}

// A fakeHandler is the method.
type fakeHandler struct {
	t     *testing.T
	serve func(*fakeStream)
	calls sync.WaitGroup
}

func (h *fakeHandler) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func (h *fakeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.calls.Add(1)
	defer h.calls.Done()
	if r.URL.Path != method || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" || r.ProtoMajor != 2 {
		h.t.Errorf("%s %s %v", r.Proto, r.URL.Path, r.Header)
	}
	h.serve(&fakeStream{w, r})
}

// A memoryPlane is a network in the test's bubble.
type memoryPlane struct {
	*testing.T
	*testnet.Network
}

// fake starts a server at http://HOST:80.
func (m memoryPlane) fake(host string, serve func(*fakeStream)) (url string) {
	m.Helper()
	l, err := m.Listen(host + ":80")
	if err != nil {
		m.Fatal(err)
	}
	h := &fakeHandler{t: m.T, serve: serve}
	s := &http.Server{Handler: h, Protocols: h.protocols(), ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(l)
	m.Cleanup(func() { s.Close() })
	return "http://" + host + ":80"
}

// options returns those of a client of servers in the network.
func (m memoryPlane) options(urls ...string) Options {
	return Options{Registry: registryOf(urls...), dial: m.DialContext}
}

// drain reads requests until the client ends the stream.
func (s *fakeStream) drain() { io.Copy(io.Discard, s.r.Body) }
