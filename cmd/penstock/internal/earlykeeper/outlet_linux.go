package earlykeeper

import (
	"strconv"
	"time"
)

// outlet hands texts to somebody who may not take them: a pipe that nobody reads, a service manager that is busy.
// The keeper never waits for it: what does not fit is left out.
type outlet struct {
	texts chan string
	done  chan struct{}
}

// outletSize bounds the texts that wait.
const outletSize = 256

// newOutlet returns an outlet that calls write with each text, on a goroutine of its own.
func newOutlet(write func(text string)) *outlet {
	o := &outlet{texts: make(chan string, outletSize), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		for text := range o.texts {
			write(text)
		}
	}()
	return o
}

// put reports whether there was room for a text. It does not wait.
func (o *outlet) put(text string) bool {
	select {
	case o.texts <- text:
		return true
	default:
		return false
	}
}

// close waits until all texts are written, but not forever.
func (o *outlet) close(most time.Duration) {
	close(o.texts)
	select {
	case <-o.done:
	case <-time.After(most):
	}
}

// pingEvery returns how often the service manager wants to hear that this process is alive: twice in the
// time that it has set. 0: it does not want to. sd_watchdog_enabled(3).
func pingEvery(usec, pid string, own int) time.Duration {
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(time.Hour*24*365/time.Microsecond) || pid != "" && pid != strconv.Itoa(own) {
		return 0
	}
	return max(time.Duration(n)*time.Microsecond/2, time.Millisecond)
}
