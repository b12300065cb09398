package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// An Order asks one relay to do something, once. It is at KEY/orders/NODE/ID, with a lease: when that ends,
// the order is void.
type Order struct {
	ID   string    `json:"id"`
	Kind string    `json:"kind"` // one of OrderKinds
	By   string    `json:"by"`   // who asks, for the log
	At   time.Time `json:"at"`

	Group  string `json:"group,omitempty"`  // of flows: only those of this group
	Member string `json:"member,omitempty"` // of flows: only those of the member with this name or address
	Limit  int    `json:"limit,omitempty"`  // of flows: at most this many, those with the most bytes; at most MaxFlows
	Every  int    `json:"every,omitempty"`  // of report: seconds between reports while the order is there
}

// The kinds of orders.
const (
	OrderReload = "reload" // read the configuration again
	OrderFlows  = "flows"  // list flows
	OrderReport = "report" // report more often, as long as the order is there
)

// OrderKinds are the kinds of orders that a relay knows.
var OrderKinds = []string{OrderReload, OrderFlows, OrderReport}

// A DrainOrder is at KEY/orders/NODE/drain, for as long as the relay shall take no new flows.
type DrainOrder struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Why string    `json:"why,omitempty"`
}

// MaxFlows is the maximum number of flows in an answer.
const MaxFlows = 100

// An Answer is what a relay says to an order, at KEY/answers/ID/NODE.
type Answer struct {
	Order string    `json:"order"`
	Node  string    `json:"node"`
	State string    `json:"state"` // one of AnswerStates
	Error string    `json:"error,omitempty"`
	At    time.Time `json:"at"`

	Changes int    `json:"changes,omitempty"` // of reload: what differs from the configuration before
	Matched int64  `json:"matched,omitempty"` // of flows: how many there are
	Flows   []Flow `json:"flows,omitempty"`
}

// AnswerStates are the values of Answer.State. A relay that begins to carry out an order says so first, so that
// it never does it twice.
var AnswerStates = []string{"begun", "done", "failed", "refused"}

// Final reports whether nothing more will come.
func (a *Answer) Final() bool { return a.State != "begun" }

// A Flow is an open flow in an answer.
type Flow struct {
	ID       uint64  `json:"id,string"`
	Client   string  `json:"client"`
	Upstream string  `json:"upstream"`
	Listener string  `json:"listener"`
	Group    string  `json:"group"`
	Member   string  `json:"member"`
	Age      float64 `json:"age"` // seconds
	Up       int64   `json:"up"`  // bytes
	Down     int64   `json:"down"`
}

const (
	maxOrder  = 4 << 10
	maxAnswer = 256 << 10
)

// ParseOrder reads an order. The error says why a relay refuses it.
func ParseOrder(text []byte) (Order, error) {
	var o Order
	if len(text) > maxOrder {
		return o, fmt.Errorf("an order of %d bytes; allowed: %d", len(text), maxOrder)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return Order{}, err
	}
	o.By, o.Group, o.Member = shorten(o.By), shorten(o.Group), shorten(o.Member)
	switch {
	case !slices.Contains(OrderKinds, o.Kind):
		return o, fmt.Errorf("unknown order %q; this relay knows %v", shorten(o.Kind), OrderKinds)
	case o.Limit < 0 || o.Limit > MaxFlows:
		return o, fmt.Errorf("limit %d; allowed: 0 to %d", o.Limit, MaxFlows)
	case o.Every < 0 || o.Every > 60:
		return o, fmt.Errorf("every %d; allowed: 1 to 60", o.Every)
	}
	return o, nil
}

// ParseDrain reads an order to drain.
func ParseDrain(text []byte) (DrainOrder, error) {
	var o DrainOrder
	if len(text) > maxOrder {
		return o, fmt.Errorf("an order of %d bytes; allowed: %d", len(text), maxOrder)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return DrainOrder{}, err
	}
	o.By, o.Why = shorten(o.By), shorten(o.Why)
	return o, nil
}

// ParseAnswer reads an answer.
func ParseAnswer(text []byte) (Answer, error) {
	var a Answer
	if len(text) > maxAnswer {
		return a, fmt.Errorf("an answer of %d bytes; allowed: %d", len(text), maxAnswer)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return Answer{}, err
	}
	if !slices.Contains(AnswerStates, a.State) {
		return Answer{}, fmt.Errorf("an answer in the state %q", shorten(a.State))
	}
	a.Flows = a.Flows[:min(len(a.Flows), MaxFlows)]
	a.Error = shorten(a.Error)
	return a, nil
}

// validID reports whether a text can be the id of an order.
func validID(s string) bool { return len(s) == idLength && !notHex(s) }

const idLength = 16

func notHex(s string) bool {
	for _, c := range []byte(s) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return true
		}
	}
	return false
}
