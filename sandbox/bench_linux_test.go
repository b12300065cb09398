package sandbox

import (
	"math"
	"testing"
)

// BenchmarkCall measures what the sandbox adds to a system call: getppid and read are always allowed, send has an argument that is
// looked at when ports are restricted, socket has three. Each operation is two processes that measure, some inside and one
// outside, in turns; the least is reported.
func BenchmarkCall(b *testing.B) {
	for _, call := range []string{"getppid", "read", "send", "socket"} {
		b.Run("call="+call, func(b *testing.B) {
			r := newRig(b)
			p := r.policy()
			p.Unix = true
			p.Read = append(p.Read, "/dev/zero")
			free := p
			free.AnyConnect = true
			inside, outside, anyPort := math.Inf(1), math.Inf(1), math.Inf(1)
			for b.Loop() {
				outside = min(outside, r.run(order{Bench: call}).Bench)
				inside = min(inside, r.run(order{Policy: p, Enter: true, Bench: call}).Bench)
				anyPort = min(anyPort, r.run(order{Policy: free, Enter: true, Bench: call}).Bench)
			}
			b.ReportMetric(outside, "ns-outside")
			b.ReportMetric(inside, "ns-inside")
			b.ReportMetric(anyPort, "ns-inside-any-port")
		})
	}
}
