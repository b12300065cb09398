package ads

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A server that alternates between contents that are all refused is told as slowly as one that repeats one of them.
func TestRefusedInTurns(t *testing.T) {
	testnet.CheckLeaks(t)
	var mu sync.Mutex
	var delays []time.Duration
	s := newFake(t, false, func(f *fakeStream) {
		f.read()
		f.open()
		for i := range 12 {
			bad := []byte(fmt.Sprint("other", i%3))
			f.send(response(endpointsURL, "n", nil, Resource{Name: "web", Version: fmt.Sprint(i), URL: endpointsURL, Value: bad}))
			if _, err := f.read(); err != nil {
				return
			}
		}
		f.drain()
	})
	subscribed(t, Options{Registry: registryOf(s.URL), after: func(d time.Duration, do func()) {
		mu.Lock()
		delays = append(delays, d)
		mu.Unlock()
		go do()
	}})
	testwait.Until(t, "11 delays", func() bool { mu.Lock(); defer mu.Unlock(); return len(delays) == 11 })
	half := 500 * time.Millisecond
	want := []time.Duration{half, half, half, 2 * half, 4 * half, 8 * half, 16 * half, 32 * half, 30 * time.Second, 30 * time.Second, 30 * time.Second}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(delays, want) {
		t.Errorf("delays %v, want %v", delays, want)
	}
}

// A response that has a resource twice, or with its removal, is refused, and changes nothing.
func TestTwice(t *testing.T) {
	testnet.CheckLeaks(t)
	good := []byte("web")
	web := Resource{Name: "web", Version: "1", URL: endpointsURL, Value: good}
	answers := make(chan said, 10)
	s := newFake(t, false, func(f *fakeStream) {
		f.read()
		f.open()
		f.send(response(endpointsURL, "a", nil, web, web))
		for i, next := range [][]byte{response(endpointsURL, "b", []string{"web"}, web), response(endpointsURL, "c", []string{"web", "web"}), response(endpointsURL, "d", nil, web)} {
			q, err := f.read()
			if err != nil {
				return
			}
			answers <- q
			if i == 0 {
				f.send(response(endpointsURL, "x", nil))
				f.read() // so that the next refusal is not delayed
			}
			f.send(next)
		}
		q, _ := f.read()
		answers <- q
		f.drain()
	})
	subscribed(t, Options{Registry: registryOf(s.URL), after: func(_ time.Duration, do func()) { go do() }})
	for _, nonce := range []string{"a", "b", "c", "d"} {
		select {
		case q := <-answers:
			if q.nonce != nonce || strings.Contains(q.refusal, "web is there twice") != (nonce != "d") {
				t.Errorf("%+v", q)
			}
		case <-time.After(patience):
			t.Fatal("no answer")
		}
	}
}

// A sign of life of a resource is not the resource: its version is not claimed.
func TestSignOfLifeIsNotClaimed(t *testing.T) {
	testnet.CheckLeaks(t)
	firsts := make(chan said, 100)
	s := newFake(t, false, func(f *fakeStream) {
		q, _ := f.read()
		firsts <- q
		f.open()
		b := appendBytes(nil, 2, appendText(appendText(nil, 1, "7"), 3, "web"))
		f.send(appendText(appendText(b, 4, endpointsURL), 5, "n"))
		f.read()
		f.end("14", "")
	})
	subscribed(t, Options{Registry: registryOf(s.URL)})
	<-firsts
	if q := <-firsts; len(q.known) != 0 {
		t.Errorf("%+v", q)
	}
}

// A server that sends and does not read, or stops in the middle of a message, is left.
func TestDeafAndSlow(t *testing.T) {
	for _, tt := range []struct {
		want  string
		serve func(*fakeStream)
	}{
		{"does not read the replies", func(f *fakeStream) {
			f.open()
			for i := 0; f.r.Context().Err() == nil; i++ {
				f.send(response(endpointsURL, fmt.Sprintf("%04000d", i), nil))
			}
		}},
		{"takes too long to send a message", func(f *fakeStream) {
			f.open()
			f.w.Write([]byte{0, 0, 0, 0, 9, 1})
			f.flush()
			f.drain()
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			plane := memoryPlane{t, testnet.NewNetwork()}
			url := plane.fake("plane", func(f *fakeStream) {
				f.read()
				tt.serve(f)
			})
			_, errs := subscribed(t, plane.options(url))
			select {
			case err := <-errs:
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v; want %s", err, tt.want)
				}
			case <-time.After(patience):
				t.Errorf("not left: %s", tt.want)
			}
		})
	}
}

// A stream on which nothing comes for long, between messages, goes on.
func TestSilentIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := memoryPlane{t, testnet.NewNetwork()}
		url := plane.fake("plane", func(f *fakeStream) {
			f.read()
			f.open()
			for i := range 2 {
				f.send(response(endpointsURL, fmt.Sprint(i), nil, Resource{Name: "web", URL: endpointsURL, Value: []byte("web")}))
				f.read()
				if i == 0 {
					time.Sleep(slowTime + slowTime/4) // longer than a message may take
				}
			}
			f.end("9", "the end")
		})
		_, errs := subscribed(t, plane.options(url))
		if err := <-errs; !strings.Contains(err.Error(), "the end") {
			t.Errorf("%v", err)
		}
	})
}

// A reply that comes after the end of its stream says nothing on the next one, whose nonces are others.
func TestReplyAfterTheEnd(t *testing.T) {
	c := newTestClient(t, Options{Registry: registryOf("http://127.0.0.1:1")})
	of := &Subscription{versions: map[string]string{"web": ""}}
	r := &Response{client: c, stream: &stream{}, of: of, nonce: "n", Resources: []Resource{{Name: "web", Version: "1", URL: endpointsURL}}}
	r.Reply(nil)
	r.Reply(errors.New("wrong"))
	if len(of.replies) != 0 || of.refusals != 0 || of.versions["web"] != "" {
		t.Errorf("%+v", of)
	}
}

// What was accepted ends a row of refusals: the next one is told at once.
func TestAcceptedEndsTheRow(t *testing.T) {
	delays := 0
	c := newTestClient(t, Options{Registry: registryOf("http://127.0.0.1:1"), after: func(time.Duration, func()) { delays++ }})
	s := &stream{wake: make(chan struct{}, 1)}
	c.begin(s)
	of := &Subscription{}
	for i, want := range []int{0, 1, 1, 1, 2} {
		var err error
		if i != 2 {
			err = errors.New("wrong")
		}
		(&Response{client: c, stream: s, of: of, nonce: "n"}).Reply(err)
		if delays != want {
			t.Errorf("reply %d: %d were delayed, want %d", i, delays, want)
		}
	}
}

// Resources of a type that this stream has not asked for yet, because nobody needs one, end it.
func TestNotAskedFor(t *testing.T) {
	c := newTestClient(t, Options{Registry: registryOf("http://127.0.0.1:1")})
	c.Subscribe(Type{URL: endpointsURL})
	if err := c.received(&stream{}, &Response{URL: endpointsURL, nonce: "n"}); err == nil || !strings.Contains(err.Error(), "not asked for") {
		t.Errorf("%v", err)
	}
}

// The reason of a refusal is short, and text.
func TestReason(t *testing.T) {
	text := shortReason(errors.New("x" + strings.Repeat("ü", maxReason))) // cut in the middle of one
	if !utf8.ValidString(text) || len(text) > maxReason+10 {
		t.Errorf("%d bytes, valid: %v", len(text), utf8.ValidString(text))
	}
}
