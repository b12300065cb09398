package relay

// Preface puts b in front of what the upstream is sent; b may be a PROXY header, for
// instance. Further calls add to it. Preface copies b. The record does not count these
// bytes, and a built-in upstream does not receive them.
//
// Of a stream it is called in Hooks.Connected, after an attempt that succeeded: b is sent
// before anything from the client.
//
// Of a datagram flow it is called in Hooks.Upstream: the first datagram to the upstream
// that the hook returns begins with b, or each one if DialConfig.PrefaceEach is set. The
// first is the first that could be sent. One that is too long with b is dropped
// (stats.DropTooBigWithPreface).
//
// Preface returns [ErrStage] in another hook.
func (f *Flow) Preface(b []byte) error {
	if f.owner == nil {
		return stageError("Preface", "of no flow", "a flow that a hook is called with")
	}
	return f.owner.addPreface(f, b)
}

// preface is what [Flow.Preface] has put in front of the datagrams of a flow to its present upstream.
type preface struct {
	b    []byte // empty: nothing
	each bool   // of each datagram; false: of the first, and nothing is in front once that was sent
}
