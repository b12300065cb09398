package otlp

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	collectorlogs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// collector answers requests in memory. It is used in a bubble.
func collector(t *testing.T, cfg spec.OTLP, answer http.HandlerFunc) *Client {
	t.Helper()
	l := testnet.NewMemory()
	s := &http.Server{Handler: answer}
	go s.Serve(l)
	c := New(cfg)
	c.dial = func(r *remote.Config) {
		r.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c
}

func records(n int) *collectorlogs.ExportLogsServiceRequest {
	var list []*logs.LogRecord
	for i := range n {
		list = append(list, &logs.LogRecord{Body: Text("", fmt.Sprint("record ", i)).Value})
	}
	return Source{}.Logs(list)
}

// A collector gets what is sent, with the token, and what it refuses is counted.
func TestSend(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		refused := int64(0)
		c := collector(t, spec.OTLP{To: "http://collector:4318/base/?tenant=a", TokenFile: token}, func(w http.ResponseWriter, r *http.Request) {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return
			}
			b, err := io.ReadAll(z)
			got := new(collectorlogs.ExportLogsServiceRequest)
			if err = errors.Join(err, proto.Unmarshal(b, got)); err != nil {
				t.Error(err)
			}
			if r.URL.String() != "/base/v1/logs?tenant=a" || r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Content-Type") != "application/x-protobuf" {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			if list := got.ResourceLogs[0].ScopeLogs[0].LogRecords; len(list) != 3 || list[2].Body.GetStringValue() != "record 2" {
				t.Errorf("%v", list)
			}
			w.Header().Set("Content-Type", "application/x-protobuf")
			b, _ = proto.Marshal(&collectorlogs.ExportLogsServiceResponse{PartialSuccess: &collectorlogs.ExportLogsPartialSuccess{RejectedLogRecords: refused, ErrorMessage: "too\nold"}})
			w.Write(b)
		})
		if n, err := c.Logs(t.Context(), records(3)); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		refused = 2
		if n, err := c.Logs(t.Context(), records(3)); n != 2 || err == nil || err.Error() != "the collector has refused records: too old" {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// What a collector answers decides whether it is asked again, and when; no answer makes a client hang or fail in another way.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		header, body string
		again        bool
		after        time.Duration
		want         string // empty: no error
	}{
		"busy":          {429, "Retry-After: 7", "slow down", true, 7 * time.Second, "429 Too Many Requests: slow down"},
		"a year":        {503, "Retry-After: 31536000", "", true, maxPause, "503 Service Unavailable"},
		"a date":        {503, "Retry-After: Fri, 27 Nov 2026 14:00:00 GMT", "", true, 0, "503 Service Unavailable"},
		"negative":      {503, "Retry-After: -5", "", true, 0, "503 Service Unavailable"},
		"wrong":         {400, "", "no such tenant", false, 0, "400 Bad Request: no such tenant"},
		"forbidden":     {401, "Content-Type: application/x-protobuf", "\x08\x10", false, 0, "401 Unauthorized"},
		"elsewhere":     {308, "Location: https://other/", "", false, 0, "leads to https://other/"},
		"huge":          {500, "", strings.Repeat("x", 1<<20), false, 0, "500 Internal Server Error"},
		"huge success":  {200, "Content-Type: application/x-protobuf", strings.Repeat("x", 1<<20), false, 0, ""},
		"other success": {200, "Content-Type: application/x-protobuf", "\xff\xff\xff", false, 0, ""},
		"no content":    {204, "", "", false, 0, ""}, // what Loki answers
		"accepted":      {202, "Content-Type: application/json", "{}", false, 0, ""},
		"a page":        {200, "Content-Type: text/html", "<html>", false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := collector(t, spec.OTLP{To: "http://collector:4318"}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/plain")
					if k, v, ok := strings.Cut(c.header, ": "); ok {
						w.Header().Set(k, v)
					}
					w.WriteHeader(c.status)
					io.WriteString(w, c.body)
				})
				_, err := client.Logs(t.Context(), records(1))
				var again *RetryError
				if errors.As(err, &again) != c.again || again != nil && again.After != c.after {
					t.Errorf("again: %+v", again)
				}
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		})
	}
}

// A collector that hangs is given up after a while, and one that comes back gets what was sent meanwhile.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := collector(t, spec.OTLP{To: "http://collector:4318"}, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // only then the end of the connection ends the context
			switch asked++; asked {
			case 1:
				<-r.Context().Done() // it hangs
			case 2:
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(429)
			}
		})
		began := time.Now()
		err := Retry(t.Context(), time.Minute, func(ctx context.Context) error {
			_, err := c.Logs(ctx, records(1))
			return err
		})
		if took := time.Since(began); err != nil || asked != 3 || took < sendTimeout+3*time.Second || took > sendTimeout+10*time.Second {
			t.Errorf("%v after %v and %d requests", err, took, asked)
		}
		// Nobody is asked for longer than is said, and at least once.
		asked = 0
		began = time.Now()
		err = Retry(t.Context(), 20*time.Second, func(context.Context) error {
			asked++
			return &RetryError{Err: errors.New("away")}
		})
		if took := time.Since(began); err == nil || took > 20*time.Second || asked < 3 {
			t.Errorf("%v after %v and %d attempts", err, took, asked)
		}
		asked = 0
		Retry(t.Context(), 0, func(context.Context) error {
			asked++
			return &RetryError{Err: errors.New("away")}
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		Retry(ctx, time.Hour, func(context.Context) error {
			asked++
			return &RetryError{Err: errors.New("away")}
		})
		if asked != 2 {
			t.Errorf("%d attempts", asked)
		}
	})
}

// A file that cannot be read yet is read by a later attempt.
func TestFilesComeLater(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, spec.OTLP{To: "http://collector:4318", TokenFile: token}, func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer secret" {
				t.Errorf("the token is %q", got)
			}
		})
		attempts := 0
		err := Retry(t.Context(), time.Minute, func(ctx context.Context) error {
			if attempts++; attempts == 2 {
				if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
					t.Error(err)
				}
			}
			_, err := c.Logs(ctx, records(1))
			return err
		})
		if err != nil || attempts != 2 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
	})
}
