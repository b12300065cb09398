package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoLease is returned when a lease does not exist, or no longer.
var ErrNoLease = errors.New("the lease has ended")

type leaseRequest struct {
	ID  int64Text `json:"ID,omitempty"`
	TTL int64Text `json:"TTL,omitempty"`
}

type leaseResponse struct {
	Header header    `json:"header"`
	ID     int64Text `json:"ID"`
	TTL    int64Text `json:"TTL"`
}

// Grant makes a lease that ends when it has not been kept alive for ttl, which is rounded up to seconds.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (LeaseID, error) {
	var out leaseResponse
	in := leaseRequest{TTL: int64Text((ttl + time.Second - 1) / time.Second)}
	if err := c.call(ctx, "/v3/lease/grant", in, &out, true); err != nil { // twice: the other one ends by itself
		return 0, err
	}
	if out.ID == 0 {
		return 0, errors.New("the answer has no lease")
	}
	return int64(out.ID), nil
}

// KeepAlive keeps a lease alive, and returns how long it lasts now. Callers call it three times in that
// time. The error is ErrNoLease if the lease has ended.
func (c *Client) KeepAlive(ctx context.Context, id LeaseID) (time.Duration, error) {
	var out struct {
		Result leaseResponse `json:"result"`
	}
	if err := c.call(ctx, "/v3/lease/keepalive", leaseRequest{ID: int64Text(id)}, &out, true); err != nil {
		return 0, err
	}
	if out.Result.TTL <= 0 {
		return 0, ErrNoLease
	}
	return time.Duration(out.Result.TTL) * time.Second, nil
}

// Revoke ends a lease; its keys go. The error is ErrNoLease if it had ended.
func (c *Client) Revoke(ctx context.Context, id LeaseID) error {
	var out struct{}
	err := c.call(ctx, "/v3/lease/revoke", leaseRequest{ID: int64Text(id)}, &out, true)
	if e := (*Error)(nil); errors.As(err, &e) && e.Code == codeNotFound {
		return fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	return err
}
