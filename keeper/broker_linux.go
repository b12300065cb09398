package keeper

import (
	"errors"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// request is what a worker asked for.
type request struct {
	id     int // of the worker
	seq    uint32
	policy string
	text   string
}

// brokered is what the broker said to it.
type brokered struct {
	request
	fd  int
	err error
}

// maxBrokers bounds the goroutines of the broker. One may hang, in a file system of the network for example.
const maxBrokers = 4

// broker implements port. If all goroutines hang, requests are answered late, and wait here for nothing: they are thrown away
// when there are more than two workers can have.
func (r *runner) broker(id int, seq uint32, policy, text string) {
	q := request{id, seq, policy, text}
	if r.brokers < maxBrokers {
		r.brokers++
		go r.openFor(q)
		return
	}
	if len(r.requests) >= 2*maxAsks {
		r.requests = slices.DeleteFunc(r.requests, func(q request) bool { return !r.m.waitsFor(q.id, q.seq) })
	}
	r.requests = append(r.requests, q)
}

var errPanicked = errors.New("the broker failed")

// openFor runs the broker for one request.
func (r *runner) openFor(q request) {
	b := brokered{request: q, fd: -1, err: errPanicked}
	defer func() {
		recover() // a mistake there must not cost the keeper, and with it all flows
		select {
		case r.brokered <- b:
		case <-r.over:
			if b.err == nil && b.fd >= 0 {
				sys.Linux{}.Close(b.fd)
			}
		}
	}()
	b.fd, b.err = r.cfg.Broker(q.policy, q.text)
}

func (r *runner) onBrokered(b brokered) {
	r.m.brokered(b.id, b.seq, b.fd, b.err)
	r.brokers--
	for len(r.requests) > 0 && r.brokers < maxBrokers {
		q := r.requests[0]
		r.requests = r.requests[1:]
		if !r.m.waitsFor(q.id, q.seq) { // the worker has gone, or was told that it takes too long
			continue
		}
		r.brokers++
		go r.openFor(q)
	}
}
