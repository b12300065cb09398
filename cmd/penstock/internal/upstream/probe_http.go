package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

const (
	// maxInterim bounds the answers that say that another one follows (RFC 9110, 15.2).
	maxInterim = 5
	// maxEncoded bounds what is read for a body: a chunk may be a byte long.
	maxEncoded = 4 * maxAnswer
)

// httpCheck sends an HTTP/1.1 request and reads the response: its head, and of its body what the check asks for.
func httpCheck(conn net.Conn, m *probed) error {
	c := m.group.Check
	req, err := request(m)
	if err != nil {
		return err
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	source := &errorReader{r: conn}
	limit := &io.LimitedReader{R: source, N: maxAnswer}
	from := bufio.NewReader(limit)
	switch first, err := from.Peek(1); {
	case err == io.EOF:
		return errors.New("the member has ended the connection without an answer")
	case err == nil && first[0] == 21 && m.group.CheckTLS() == nil: // a record with an alert (RFC 8446, 5.1)
		return errors.New("the member speaks TLS; allowed: tls in the check, or in the group")
	}
	var res *http.Response
	for i := 0; ; i++ {
		if res, err = http.ReadResponse(from, req); err != nil {
			switch {
			case limit.N <= 0:
				return fmt.Errorf("the head of the answer is more than %d bytes long", maxAnswer)
			case source.err != nil && source.err != io.EOF:
				return source.err // a line that is cut by it would be called malformed
			}
			return err
		}
		if res.StatusCode >= 200 || res.StatusCode == http.StatusSwitchingProtocols || i == maxInterim {
			break
		}
	}
	if err := checkStatus(res.StatusCode, c.Statuses); err != nil || c.Body == "" && m.body == nil {
		return err // the body ends with the connection
	}
	limit.N = maxEncoded
	return checkBody(res.Body, m)
}

// An errorReader remembers the error of the reader.
type errorReader struct {
	r   io.Reader
	err error
}

func (r *errorReader) Read(b []byte) (n int, err error) {
	n, err = r.r.Read(b)
	r.err = err
	return n, err
}

// request returns the request of a check.
func request(m *probed) (*http.Request, error) {
	c := m.group.Check
	req := &http.Request{
		Method: c.Method, Host: c.Host, URL: &url.URL{Path: "/"}, Close: true,
		Header: http.Header{"User-Agent": {"penstock"}},
	}
	if c.Path != "" {
		u, err := url.ParseRequestURI(c.Path)
		if err != nil {
			return nil, err
		}
		req.URL = u
	}
	if t := m.group.CheckTLS(); t != nil && req.Host == "" {
		req.Host = hostName(t.ServerName)
		if t.ServerName == "" {
			req.Host = hostName(m.host)
		}
	}
	if req.Host == "" {
		req.Host = "localhost"
		if m.addr.Path == "" {
			req.Host = m.addr.AddrPort.String()
		}
	}
	return req, nil
}

// hostName returns a name unless it is an address, which stands for no site.
func hostName(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return ""
	}
	return name
}

// checkStatus returns an error if a status is in none of the ranges.
func checkStatus(status int, ranges [][2]int) error {
	if len(ranges) == 0 {
		ranges = [][2]int{{200, 399}}
	}
	want := make([]string, len(ranges))
	for i, s := range ranges {
		if s[0] <= status && status <= s[1] {
			return nil
		}
		want[i] = fmt.Sprintf("%d-%d", s[0], s[1])
		if s[0] == s[1] {
			want[i] = fmt.Sprint(s[0])
		}
	}
	return fmt.Errorf("status %d; expected: %s", status, strings.Join(want, ", "))
}

// checkBody reads a body until it is known whether it is the expected one: to its end, or up to maxAnswer bytes. What a body must contain
// may come before the end of one that never ends.
func checkBody(body io.Reader, m *probed) error {
	c := m.group.Check
	got, found, err := make([]byte, 0, 4096), c.Body == "", error(nil)
	for len(got) < maxAnswer && err == nil && (!found || m.body != nil) {
		if len(got) == cap(got) {
			got = append(got, 0)[:len(got)]
		}
		n := 0
		n, err = body.Read(got[len(got):min(cap(got), maxAnswer)])
		from := max(0, len(got)-len(c.Body))
		got = got[:len(got)+n]
		found = found || bytes.Contains(got[from:], []byte(c.Body))
	}
	whole := err == nil || errors.Is(err, io.EOF)
	switch {
	case !whole && (!found || m.body != nil):
		return fmt.Errorf("the body did not end after %d bytes (%w); it begins with %.60q", len(got), err, got)
	case !found:
		return fmt.Errorf("the body begins with %.60q; expected in it: %.60q", got, c.Body)
	case m.body != nil && !m.body.Match(got):
		return fmt.Errorf("the body begins with %.60q; expected to match: %.60q", got, c.BodyRE)
	}
	return nil
}
