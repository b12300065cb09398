package keeper

import (
	"context"
	"errors"
	"syscall"
)

// answered is what the keeper said to a request.
type answered struct {
	fd  int
	err error
}

// MayAsk reports whether the keeper answers requests: not if it has no [Config.Broker], or is of an earlier version.
func (w *Worker) MayAsk() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mayAsk
}

// Policy returns the policy of the worker before this one, which the keeper has kept, or an empty text. It is that of the last
// worker that was ready, and was set when that worker had not yet read anything from strangers.
func (w *Worker) Policy() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.inherited)
}

// SetPolicy tells the keeper what this worker may ask for. It is called once, before the worker gives up its privileges and before the
// first [Worker.Ask]: a second policy is refused, and a worker that sends one all the same is ended. An empty text keeps
// that of the worker before ([Worker.Policy]). What a policy says is between the caller and [Config.Broker].
//
// The error is [ErrPolicy], [ErrLost], or [errors.ErrUnsupported] if the keeper does not answer requests ([Worker.MayAsk]).
func (w *Worker) SetPolicy(policy string) error {
	if w == nil {
		return errNilWorker
	}
	w.mu.Lock()
	switch {
	case !w.mayAsk:
		w.mu.Unlock()
		return errors.ErrUnsupported
	case w.sealed || len(policy) > MaxPolicy:
		w.mu.Unlock()
		return ErrPolicy
	}
	w.sealed = true
	w.mu.Unlock()
	all := parts(policy)
	for i, texts := range all {
		if err := w.tell(appendControl(nil, kindPolicy, 0, []uint64{wordOf(i < len(all)-1), wordOf(policy == "")}, texts...)); err != nil {
			return err
		}
	}
	return nil
}

// Ask asks the keeper for a descriptor, and waits for it. It belongs to the caller, and has FD_CLOEXEC set. What a request says is
// between the caller and [Config.Broker]. It may be called by several goroutines; the keeper has up to 32 requests at
// a time, and the others wait. When Ask returns because of ctx, a descriptor that arrives later is closed.
//
// The error is an [*AskError] with what the keeper said, [ErrPolicy] if the request is too long, [ErrLost], that of ctx, or
// [errors.ErrUnsupported] if the keeper does not answer requests. It is an AskError with EMFILE if this process has no
// room for the descriptor.
func (w *Worker) Ask(ctx context.Context, request string) (fd int, err error) {
	if w == nil {
		return -1, errNilWorker
	}
	if len(request) > MaxRequest {
		return -1, ErrPolicy
	}
	if !w.MayAsk() {
		return -1, errors.ErrUnsupported
	}
	select {
	case w.asks <- struct{}{}:
	case <-ctx.Done():
		return -1, ctx.Err()
	case <-w.lost:
		return -1, ErrLost
	}
	got := make(chan answered, 1)
	w.mu.Lock()
	w.lastAsk++
	seq := w.lastAsk
	w.open[seq] = got
	w.mu.Unlock()
	if err := w.tell(appendControl(nil, kindAsk, seq, nil, parts(request)[0]...)); err != nil {
		w.mu.Lock()
		delete(w.open, seq)
		w.mu.Unlock()
		<-w.asks
		return -1, err
	}
	select {
	case a := <-got:
		return a.fd, a.err
	case <-w.lost:
	case <-ctx.Done():
	}
	// The answer may have come meanwhile. If not, answered will close its descriptor. Until then the request keeps
	// its number and its place among the 32, because the keeper counts it, too.
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case a := <-got:
		return a.fd, a.err
	default:
	}
	if w.isLost() {
		return -1, ErrLost
	}
	w.open[seq] = nil
	return -1, ctx.Err()
}

// answered hands an answer to whoever waits for it. The worker's lock is held.
func (w *Worker) answered(msg *message, fds []int) {
	got, ok := w.open[msg.seq]
	if !ok {
		w.closeAll(fds)
		return
	}
	delete(w.open, msg.seq)
	<-w.asks
	var a answered
	switch {
	case len(fds) == 1:
		a.fd = fds[0]
	case msg.word(0) != 0:
		a = answered{-1, &AskError{Text: "no room for the descriptor", Errno: syscall.EMFILE}}
	default:
		a = answered{-1, &AskError{Text: msg.text(0), Errno: syscall.Errno(msg.word(1))}}
	}
	if got == nil {
		w.closeAll(fds)
		return
	}
	got <- a
}
