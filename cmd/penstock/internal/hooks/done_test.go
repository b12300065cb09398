package hooks

import (
	"errors"
	"fmt"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// What a flow has ended with is told by its cause, and where that is not enough, by a reason.
func TestReasonOf(t *testing.T) {
	for _, x := range []struct {
		cause     relay.Cause
		err       error
		datagrams bool
		was, want spec.Reason
	}{
		{cause: relay.CauseEnd},
		{cause: relay.CauseNoUpstream, was: spec.ReasonNoMember, want: spec.ReasonNoMember},
		{cause: relay.CauseNoPorts, was: spec.ReasonRetries},
		{cause: relay.CauseUpstreamRefused, was: spec.ReasonNoMember},
		{cause: relay.CauseRefused, was: spec.ReasonDenied, datagrams: true, want: spec.ReasonDenied},
		{cause: relay.CauseRefused, datagrams: true, want: spec.ReasonProxyHeader},
		{cause: relay.CauseRefused},
		{cause: relay.CauseKilled, want: spec.ReasonKilled},
		{cause: relay.CauseClientTLS, err: fmt.Errorf("client: %w", hold.ErrKeyUpdate), want: spec.ReasonKeyUpdate},
		{cause: relay.CauseUpstreamTLS, err: hold.ErrKeyUpdate, want: spec.ReasonKeyUpdate},
		{cause: relay.CauseClientTLS, err: errors.New("bad record MAC")},
		{cause: relay.CauseClientTLS},
	} {
		p := &State{reason: x.was}
		if got := p.reasonOf(&relay.Record{Cause: x.cause, Err: x.err}, x.datagrams); got != x.want {
			t.Errorf("%v, %v, before %v: %v, want %v", x.cause, x.err, x.was, got, x.want)
		}
	}
}
