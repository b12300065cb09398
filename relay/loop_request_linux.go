package relay

import (
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// request is what another goroutine asks of a loop: to call do, or else to hand
// the request to a handler, so that it costs no closure.
type request struct {
	do  func()
	to  handler         // if do is nil
	ref ref             // which flow it is about
	arg any             // what else is to be known: a pointer
	wg  *sync.WaitGroup // notified when the request is done; may be nil
}

// mailbox is how others reach a loop: a slice under a mutex, and an eventfd
// that wakes it.
type mailbox struct {
	mu       sync.Mutex
	incoming []request
	reserved int       // requests that will certainly come
	settled  sync.Cond // reserved is 0
	shut     bool
	wake     int // eventfd
}

// post puts a request in; false means that the loop has ended or is about to,
// and will not read it.
func (m *mailbox) post(r request) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return false
	}
	m.put(r)
	return true
}

// ask posts a call of do and waits until it has returned; false means what it
// means for post.
func (m *mailbox) ask(do func()) bool {
	var wg sync.WaitGroup
	wg.Add(1)
	if !m.post(request{do: do, wg: &wg}) {
		return false
	}
	wg.Wait()
	return true
}

func (m *mailbox) put(r request) {
	m.incoming = append(m.incoming, r)
	if len(m.incoming) == 1 {
		sys.EventfdSignal(m.wake)
	}
}

// reserve makes sure that one request will be read: the loop does not end before
// postReserved, which must follow. False means what it means for post.
func (m *mailbox) reserve() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return false
	}
	m.reserved++
	return true
}

// postReserved puts in the request that reserve made room for; nil: none comes.
func (m *mailbox) postReserved(r *request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r != nil {
		m.put(*r)
	}
	if m.reserved--; m.reserved == 0 {
		m.settled.Broadcast()
	}
}

// take returns the requests in the mailbox, which uses spare's memory from now on.
func (m *mailbox) take(spare []request) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.incoming
	m.incoming = spare[:0]
	sys.EventfdClear(m.wake)
	return all
}

// shutdown takes what is left, when all that is reserved has come; no request gets
// in any more.
func (m *mailbox) shutdown() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = true
	for m.reserved > 0 {
		m.settled.Wait()
	}
	all := m.incoming
	m.incoming = nil
	return all
}

// turnRequests handles what others ask for, in the order in which they asked.
func (l *loop) turnRequests() {
	if l.nextRequest == len(l.requests) {
		if !l.mail {
			return
		}
		l.mail = false
		l.requests, l.nextRequest = l.take(l.requests), 0
	}
	for range min(requestBurst, len(l.requests)-l.nextRequest) {
		r := &l.requests[l.nextRequest]
		l.nextRequest++
		l.handle(r)
		*r = request{}
	}
}

func (l *loop) handle(r *request) {
	if r.do != nil {
		r.do()
	} else {
		r.to.request(r)
	}
	if r.wg != nil {
		r.wg.Done()
	}
}

// inTurns calls do on the loop, some turns later than a request would; or with ended, on any goroutine, if
// the loop ends before.
func (l *loop) inTurns(n int, do func(ended bool)) {
	step := func() { do(false) }
	if n > 0 {
		step = func() { l.inTurns(n-1, do) }
	}
	if !l.post(request{do: step}) {
		do(true)
	}
}
