package loop

import (
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// Request is what another goroutine asks of a loop: to call Do, or else to hand
// the request to a handler, so that it costs no closure.
type Request struct {
	Do  func()
	To  Handler         // if Do is nil
	Ref Ref             // which flow it is about
	Arg any             // what else is to be known: a pointer
	WG  *sync.WaitGroup // notified when the request is done; may be nil
}

// mailbox is how others reach a loop: a slice under a mutex, and an eventfd
// that wakes it.
type mailbox struct {
	kernel   sys.Poller
	mu       sync.Mutex
	incoming []Request
	reserved int       // requests that will certainly come
	settled  sync.Cond // reserved is 0
	shut     bool
	stepper  *Stepper // nil: a goroutine runs the loop
	wake     int      // eventfd
}

// Post puts a request in; false means that the loop has ended or is about to,
// and will not read it.
func (m *mailbox) Post(r Request) bool {
	m.mu.Lock()
	if m.shut {
		m.mu.Unlock()
		return false
	}
	m.put(r)
	m.mu.Unlock()
	m.stepper.posted()
	return true
}

// Ask posts a call of do and waits until it has returned; false means what it
// means for Post.
func (m *mailbox) Ask(do func()) bool {
	var wg sync.WaitGroup
	wg.Add(1)
	if !m.Post(Request{Do: do, WG: &wg}) {
		return false
	}
	wg.Wait()
	return true
}

func (m *mailbox) put(r Request) {
	m.incoming = append(m.incoming, r)
	if len(m.incoming) == 1 {
		m.kernel.EventfdSignal(m.wake)
	}
}

// Reserve makes sure that one request will be read: the loop does not end before
// PostReserved, which must follow. False means what it means for Post.
func (m *mailbox) Reserve() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return false
	}
	m.reserved++
	return true
}

// PostReserved puts in the request that Reserve made room for; nil: none comes.
func (m *mailbox) PostReserved(r *Request) {
	m.mu.Lock()
	if r != nil {
		m.put(*r)
	}
	if m.reserved--; m.reserved == 0 {
		m.settled.Broadcast()
	}
	m.mu.Unlock()
	m.stepper.posted()
}

// take returns the requests in the mailbox, which uses spare's memory from now on.
func (m *mailbox) take(spare []Request) []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.incoming
	m.incoming = spare[:0]
	m.kernel.EventfdClear(m.wake)
	return all
}

// shutdown takes what is left, when all that is reserved has come; no request gets
// in any more.
func (m *mailbox) shutdown() []Request {
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
func (l *Loop) turnRequests() {
	if l.nextRequest == len(l.requests) {
		if !l.mail {
			return
		}
		l.mail = false
		l.requests, l.nextRequest = l.take(l.requests), 0
	}
	for range min(RequestBurst, len(l.requests)-l.nextRequest) {
		r := &l.requests[l.nextRequest]
		l.nextRequest++
		l.handle(r)
		*r = Request{}
	}
}

func (l *Loop) handle(r *Request) {
	if r.Do != nil {
		r.Do()
	} else {
		r.To.Request(r)
	}
	if r.WG != nil {
		r.WG.Done()
	}
}

// InTurns calls do on the loop, some turns later than a request would; or with ended, on any goroutine, if
// the loop ends before.
func (l *Loop) InTurns(n int, do func(ended bool)) {
	step := func() { do(false) }
	if n > 0 {
		step = func() { l.InTurns(n-1, do) }
	}
	if !l.Post(Request{Do: step}) {
		do(true)
	}
}

// Unread returns how many requests are in the mailbox, for tests.
func (m *mailbox) Unread() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.incoming)
}
