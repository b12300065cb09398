package logs

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// The same message is written limitBurst times at once, and then once in limitEvery. The
// number of lines left out is reported with the next line, or after limitSilence if none comes.
const (
	limitBurst   = 50
	limitEvery   = time.Second
	limitSilence = 10 * time.Second
	// maxKeys bounds the number of messages that are limited separately.
	maxKeys = 1024
)

// sameMessage lists the attributes that, with the message and its level, identify a line: lines
// that differ in one of them are limited separately, so that a flood of one does not hide others.
var sameMessage = []string{"cause", "reason", "listener", "group"}

// A limiter bounds how often a message is written. Clients can cause many of them: each
// datagram for a group without members is a failed flow.
type limiter struct {
	slog.Handler
	*messageCounts
}

// messageCounts is shared by the handlers of one log.
type messageCounts struct {
	silence time.Duration

	mu      sync.Mutex
	keys    map[string]*messageCount
	leftOut int64 // lines, since the start
}

type messageCount struct {
	allowedAgain time.Time // when limitBurst lines at once are allowed again
	leftOut      int       // lines left out and not reported yet
	last         slog.Record
}

func newLimiter(h slog.Handler) *limiter {
	return &limiter{h, &messageCounts{silence: limitSilence, keys: map[string]*messageCount{}}}
}

// LeftOut returns the number of lines that the limits of log have left out.
func LeftOut(log *slog.Logger) int64 {
	h, ok := log.Handler().(*limiter)
	if !ok {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leftOut
}

// Unlimited returns log without its limits, for what an operator asked to see in full.
func Unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*limiter); ok {
		return slog.New(h.Handler)
	}
	return log
}

func (h *limiter) WithAttrs(a []slog.Attr) slog.Handler {
	return &limiter{h.Handler.WithAttrs(a), h.messageCounts}
}

func (h *limiter) WithGroup(name string) slog.Handler {
	return &limiter{h.Handler.WithGroup(name), h.messageCounts}
}

func (h *limiter) Handle(ctx context.Context, r slog.Record) error {
	key := messageKey(&r)
	h.mu.Lock()
	c := h.count(key, r.Time)
	if c.allowedAgain.Before(r.Time) {
		c.allowedAgain = r.Time
	}
	if c.allowedAgain.Sub(r.Time) > (limitBurst-1)*limitEvery {
		h.leftOut++
		if c.leftOut++; c.leftOut == 1 {
			c.last = r.Clone()
			time.AfterFunc(h.silence, func() { h.reportLeftOut(c) })
		}
		h.mu.Unlock()
		return nil
	}
	c.allowedAgain = c.allowedAgain.Add(limitEvery)
	left := c.leftOut
	c.leftOut = 0
	h.mu.Unlock()
	if left > 0 {
		r.AddAttrs(slog.Int("left_out", left))
	}
	return h.Handler.Handle(ctx, r)
}

// reportLeftOut writes how many lines of c were left out, unless another line has done so.
func (h *limiter) reportLeftOut(c *messageCount) {
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

// reportAllLeftOut calls reportLeftOut for every message.
func (h *limiter) reportAllLeftOut() {
	h.mu.Lock()
	counts := slices.Collect(maps.Values(h.keys))
	h.mu.Unlock()
	for _, c := range counts {
		h.reportLeftOut(c)
	}
}

// count returns the count of a message. When there are too many counts, idle ones are
// removed; if that does not help, all further messages share one. The caller holds h.mu.
func (h *limiter) count(key string, now time.Time) *messageCount {
	c := h.keys[key]
	if c != nil {
		return c
	}
	if len(h.keys) >= maxKeys {
		for k, c := range h.keys {
			if c.leftOut == 0 && !c.allowedAgain.After(now) {
				delete(h.keys, k)
			}
		}
		if len(h.keys) >= maxKeys {
			if c = h.keys[""]; c != nil {
				return c
			}
			key = ""
		}
	}
	c = &messageCount{}
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
