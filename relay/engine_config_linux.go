package relay

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// maxLoops is what keys of [hold.Holder] and IDs of flows have room for.
const maxLoops = 256

// field is one that must lie between two bounds.
type field struct {
	name             string
	is, least, great int64
}

func checkFields(fields ...field) error {
	for _, f := range fields {
		switch {
		case f.is < f.least && f.least == 0:
			return fmt.Errorf("relay: %s is %d; it must not be negative", f.name, f.is)
		case f.is < f.least || f.is > f.great:
			return fmt.Errorf("relay: %s is %d; %d to %d are allowed", f.name, f.is, f.least, f.great)
		}
	}
	return nil
}

// check finds what makes no sense.
func (c *Config) check() error {
	if c.Keep != nil && c.Keep.Holder == nil {
		return errors.New("relay: Keep.Holder is nil")
	}
	return checkFields(
		field{"Config.Loops", int64(c.Loops), 0, maxLoops},
		field{"Config.MaxPipes", int64(max(c.MaxPipes, -1)), -1, maxPipes},
		field{"Config.PipeSize", int64(c.PipeSize), 0, math.MaxInt32},
		field{"Config.LowWaterMark", int64(c.LowWaterMark), math.MinInt32, math.MaxInt32},
		field{"Config.MaxHandshakes", int64(c.MaxHandshakes), 0, mostHandshakes},
		field{"Config.User", int64(c.User), 0, math.MaxUint32 - 1},
		field{"Config.MaxDatagramFlows", int64(c.MaxDatagramFlows), 0, math.MaxInt32},
	)
}

// check finds what no kernel would take, or would take for something else: an
// option has 32 bits.
func (o *SocketOptions) check() error {
	const seconds, millis = int64(math.MaxInt32 * time.Second), math.MaxInt32 * int64(time.Millisecond)
	return checkFields(
		field{"SocketOptions.DSCP", int64(o.DSCP), 0, 63},
		field{"SocketOptions.FastOpen", int64(o.FastOpen), 0, math.MaxInt32},
		field{"SocketOptions.KeepAlive", int64(o.KeepAlive), 0, seconds},
		field{"SocketOptions.KeepAliveInterval", int64(o.KeepAliveInterval), 0, seconds},
		field{"SocketOptions.KeepAliveCount", int64(o.KeepAliveCount), 0, math.MaxInt32},
		field{"SocketOptions.UserTimeout", int64(o.UserTimeout), 0, millis},
		field{"SocketOptions.RecvBuffer", int64(o.RecvBuffer), 0, math.MaxInt32},
		field{"SocketOptions.SendBuffer", int64(o.SendBuffer), 0, math.MaxInt32},
	)
}

// check finds what makes no sense in the configuration of a listener.
func (c *ListenConfig) check() error {
	if c.Hooks.Upstream == nil {
		return errors.New("relay: ListenConfig.Hooks.Upstream is nil")
	}
	if err := checkFields(
		field{"ListenConfig.Backlog", int64(c.Backlog), 0, math.MaxInt32},
		field{"ListenConfig.Mode", int64(c.Mode), 0, 0o777},
		field{"DatagramConfig.Replies", int64(c.Datagram.Replies), 0, math.MaxInt32},
		field{"DatagramConfig.Amplification", int64(c.Datagram.Amplification), 0, math.MaxInt32},
		field{"DatagramConfig.OnUnreachable", int64(c.Datagram.OnUnreachable), 0, int64(UnreachableIgnore)},
		field{"DatagramConfig.TOS", int64(c.Datagram.TOS), 0, int64(TOSCopy)},
	); err != nil {
		return err
	}
	if err := c.Socket.check(); err != nil || c.Dial == nil {
		return err
	}
	for _, a := range c.Dial.Source {
		if !a.IsValid() {
			return errors.New("relay: DialConfig.Source has an address that is the zero Addr")
		}
	}
	return c.Dial.Socket.check()
}
