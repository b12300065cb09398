package ads

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// FuzzFrame: frames come out as they went in, and nothing larger than allowed.
func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(appendFrame(nil, []byte("one")), nil))
	f.Add([]byte{0, 255, 255, 255, 255, 0})
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		r := bytes.NewReader(b)
		for {
			message, err := readFrame(r, 1<<10)
			if err != nil {
				if err == io.EOF && !bytes.Equal(again, b) {
					t.Errorf("%x became %x", b, again)
				}
				return
			}
			if len(message) > 1<<10 {
				t.Fatalf("a message of %d bytes", len(message))
			}
			again = appendFrame(again, message)
		}
	})
}

// FuzzResponse: a response that is read has what a reply needs.
func FuzzResponse(f *testing.F) {
	f.Add(response(clusterURL, "1", []string{"a", "b"}, Resource{Name: "web", Version: "3", URL: clusterURL, Value: []byte{1}}))
	f.Add(appendBytes(nil, 2, appendBytes(nil, 6, []byte{8, 1})))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseResponse(b)
		if err == nil && (r.URL == "" || r.nonce == "") {
			t.Errorf("%+v", r)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}
