package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// settleTimeout bounds how long an operator tries to find out what has become of a write.
const settleTimeout = 15 * time.Second

// settle finds out what has become of a transaction that got no answer. A server that was stopped with the request in
// its socket may still do it, long after others have been asked and have not seen it: looking is not enough. fence is
// a transaction that changes something that the first one compares, on condition that the first one could still be
// done. Once fence was answered, the first one has been done or never will be, and what fence reads says which.
//
// A transaction that does the same when it is done twice is its own fence.
func (o *Operator) settle(ctx context.Context, fence etcd.Txn) (etcd.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	wait := remote.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for {
		r, err := o.Client.Do(ctx, fence)
		if err == nil || wait.Wait(ctx) != nil {
			return r, err
		}
	}
}

// unanswered reports whether a write that has failed may still be done.
func unanswered(err error) bool {
	var answered *etcd.Error
	return err != nil && !(errors.As(err, &answered) && answered.Refused())
}

// unknownError is returned if etcd does not answer at all.
type unknownError struct {
	what, where string // what may happen, and where to see it
	failed      error
}

func (e *unknownError) Error() string {
	return fmt.Sprintf("etcd does not answer: %s, or may still be; %s shows it: %v", e.what, e.where, e.failed)
}

func (e *unknownError) Unwrap() error { return e.failed }
