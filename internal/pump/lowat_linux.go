package pump

// While a TCP source streams in small pieces, it has a low-water mark (SO_RCVLOWAT, socket(7)): the kernel wakes the loop for
// a good splice, and a timer finds what stays below it.

// A source gets a low-water mark after this many bytes, once this many turns in a row have moved
// less than the mark, and loses it after this many empty turns of the timer.
const (
	earned        = earnedMiB << 20
	earnedMiB     = 16
	maxSmallTurns = 16
	maxEmptyTurns = 8
)

// Lagging reports whether the source's low-water mark may delay the last bytes, so that the half
// needs a turn soon even without an event.
func (h *Half) Lagging() bool { return h.lowat }

// wait is called when the source is empty. It asks the kernel not to wake the loop for less than a
// good splice, if the source has been streaming, and if it is worth it because its turns have moved
// less one after the other. The small turns between big ones are the ends of big writes: a mark would
// delay these and save nothing (1 MiB writes: 8% of the CPU time).
func (h *Half) wait(env *Env, src, moved int) {
	switch {
	case h.lowat && moved == 0:
		// A turn by the timer found nothing. A source that pauses for long gets its mark back when
		// it streams again.
		if h.against++; h.against >= maxEmptyTurns {
			h.mark(env, src, 1)
		}
	case h.lowat, moved == 0:
	case moved >= env.Lowat:
		h.against = 0
	case env.Lowat > 1 && h.TCP && h.mib()-h.idleAt >= earnedMiB:
		if h.against++; h.against >= maxSmallTurns {
			h.mark(env, src, env.Lowat)
		}
	}
}

// rescue records that the timer, and not the kernel, found bytes below the mark, which were late
// therefore. A source to which this happens twice within the amount that earns the mark sends
// messages rather than a stream, and must earn the mark again. So last bytes are late at most about
// once in 8 MiB.
func (h *Half) rescue(env *Env, src int) {
	if h.mib()-h.rescuedAt < earnedMiB {
		h.idleAt = h.mib() + 1
		h.mark(env, src, 1)
	}
	h.rescuedAt = h.mib()
}

// mib returns In in MiB, which an int32 holds up to 2 PiB.
func (h *Half) mib() int32 { return int32(h.In >> 20) }

// mark sets the source's SO_RCVLOWAT. If the socket refuses, mark does not try again before the
// source has earned another mark.
func (h *Half) mark(env *Env, src, n int) {
	e := env.Kernel.RcvLowat(src, n)
	if e != 0 {
		h.idleAt = h.mib() + 1
	}
	h.lowat = e == 0 && n > 1
	h.against = 0
}
