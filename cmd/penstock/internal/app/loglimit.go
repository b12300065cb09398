package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// How often the same message may be written: logBurst times at once, and then
// once in logEvery. What was left out is told with the next line, and after
// logSilence if none comes.
const (
	logBurst   = 50
	logEvery   = time.Second
	logSilence = 10 * time.Second
	// maxLogKeys bounds the messages that are told apart.
	maxLogKeys = 1024
)

// sameMessage are the attributes that, with the message and its level, make two lines the
// same one: a flood of one does not hide others.
var sameMessage = []string{"cause", "reason", "listener", "group"}

// A logLimiter bounds how often a message is written, whoever writes it. Strangers cause
// many of them: a datagram for a group without members is a failed flow.
type logLimiter struct {
	slog.Handler
	*logCounts
}

// logCounts are what handlers of one log share.
type logCounts struct {
	silence time.Duration

	mu   sync.Mutex
	keys map[string]*logCount
}

type logCount struct {
	allowedAgain time.Time // when the message may be written logBurst times at once again
	leftOut      int       // lines that were left out and not told of
	last         slog.Record
}

func newLogLimiter(h slog.Handler) *logLimiter {
	return &logLimiter{h, &logCounts{silence: logSilence, keys: map[string]*logCount{}}}
}

// unlimited is a log without the limits of log, for what an operator asked to see in full.
func unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*logLimiter); ok {
		return slog.New(h.Handler)
	}
	return log
}

func (h *logLimiter) WithAttrs(a []slog.Attr) slog.Handler {
	return &logLimiter{h.Handler.WithAttrs(a), h.logCounts}
}

func (h *logLimiter) WithGroup(name string) slog.Handler {
	return &logLimiter{h.Handler.WithGroup(name), h.logCounts}
}

func (h *logLimiter) Handle(ctx context.Context, r slog.Record) error {
	key := messageKey(&r)
	h.mu.Lock()
	c := h.count(key, r.Time)
	if c.allowedAgain.Before(r.Time) {
		c.allowedAgain = r.Time
	}
	if c.allowedAgain.Sub(r.Time) > (logBurst-1)*logEvery {
		if c.leftOut++; c.leftOut == 1 {
			c.last = r.Clone()
			time.AfterFunc(h.silence, func() { h.reportLeftOut(c) })
		}
		h.mu.Unlock()
		return nil
	}
	c.allowedAgain = c.allowedAgain.Add(logEvery)
	left := c.leftOut
	c.leftOut = 0
	h.mu.Unlock()
	if left > 0 {
		r.AddAttrs(slog.Int("left_out", left))
	}
	return h.Handler.Handle(ctx, r)
}

// settle tells of lines that were left out when no other line has done so.
func (h *logLimiter) reportLeftOut(c *logCount) {
	h.mu.Lock()
	left, of := c.leftOut, c.last
	c.leftOut = 0
	h.mu.Unlock()
	if left == 0 {
		return
	}
	r := slog.NewRecord(time.Now(), of.Level, of.Message, 0)
	of.Attrs(func(a slog.Attr) bool {
		if slices.Contains(sameMessage, a.Key) {
			r.AddAttrs(a)
		}
		return true
	})
	r.AddAttrs(slog.Int("left_out", left))
	h.Handler.Handle(context.Background(), r)
}

// settleAll tells of everything that was left out and not told of.
func (h *logLimiter) reportAllLeftOut() {
	h.mu.Lock()
	counts := slices.Collect(maps.Values(h.keys))
	h.mu.Unlock()
	for _, c := range counts {
		h.reportLeftOut(c)
	}
}

// count finds the count of a message. Those that say nothing are forgotten when there are
// too many, and if that does not help, all further messages are one. Under the lock.
func (h *logLimiter) count(key string, now time.Time) *logCount {
	c := h.keys[key]
	if c != nil {
		return c
	}
	if len(h.keys) >= maxLogKeys {
		for k, c := range h.keys {
			if c.leftOut == 0 && !c.allowedAgain.After(now) {
				delete(h.keys, k)
			}
		}
		if len(h.keys) >= maxLogKeys {
			if c = h.keys[""]; c != nil {
				return c
			}
			key = ""
		}
	}
	c = &logCount{}
	h.keys[key] = c
	return c
}

func messageKey(r *slog.Record) string {
	var b strings.Builder
	b.WriteString(r.Level.String())
	b.WriteByte(0)
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if slices.Contains(sameMessage, a.Key) {
			b.WriteByte(0)
			b.WriteString(a.Key)
			b.WriteByte(0)
			b.WriteString(a.Value.String())
		}
		return true
	})
	return b.String()
}
