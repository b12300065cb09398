package account

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay"
)

// field is one value of an access-log line. Its put function appends the value to b,
// or nothing if the flow has none. The caller escapes it.
type field struct {
	name string
	text bool // quoted in JSON; otherwise a number
	put  func(b []byte, e *Entry) []byte
}

// fields lists every field, in the order of a JSON line. The names are an interface:
// docs/observing.md documents them, and they do not change.
var fields = []field{
	{"time", true, func(b []byte, e *Entry) []byte {
		return e.Start.UTC().Truncate(time.Microsecond).AppendFormat(b, time.RFC3339Nano)
	}},
	{"id", true, func(b []byte, e *Entry) []byte { return strconv.AppendUint(b, e.ID, 10) }},
	{"listener", true, func(b []byte, e *Entry) []byte { return append(b, e.ListenerName...) }},
	{"route", true, func(b []byte, e *Entry) []byte { return append(b, e.Route...) }},
	{"group", true, func(b []byte, e *Entry) []byte { return append(b, e.Group...) }},
	{"member", true, func(b []byte, e *Entry) []byte { return append(b, e.Member...) }},
	{"client", true, func(b []byte, e *Entry) []byte { return appendAddr(b, &e.Client) }},
	{"client_ip", true, func(b []byte, e *Entry) []byte { return appendIP(b, e.Client.AddrPort) }},
	{"peer", true, func(b []byte, e *Entry) []byte {
		if e.Peer == e.Client {
			return b
		}
		return appendAddr(b, &e.Peer)
	}},
	{"local", true, func(b []byte, e *Entry) []byte { return appendAddr(b, &e.Local) }},
	{"upstream", true, func(b []byte, e *Entry) []byte { return appendAddr(b, &e.Upstream) }},
	{"sni", true, func(b []byte, e *Entry) []byte { return append(b, e.SNI...) }},
	{"alpn", true, func(b []byte, e *Entry) []byte { return append(b, e.ALPN...) }},
	{"ja4", true, func(b []byte, e *Entry) []byte { return append(b, e.JA4...) }},
	{"quic_version", true, func(b []byte, e *Entry) []byte { return append(b, e.QUIC.Version...) }},
	{"quic_id", true, func(b []byte, e *Entry) []byte { return append(b, e.QUIC.ID...) }},
	{"quic_came", true, func(b []byte, e *Entry) []byte { return append(b, e.QUIC.Came...) }},
	{"protocol", true, func(b []byte, e *Entry) []byte { return append(b, e.Protocol...) }},
	{"starttls", true, func(b []byte, e *Entry) []byte { return append(b, e.StartTLS...) }},
	{"client_subject", true, func(b []byte, e *Entry) []byte { return append(b, e.Identity.Subject...) }},
	{"client_names", true, func(b []byte, e *Entry) []byte { return append(b, e.Identity.Names...) }},
	{"client_serial", true, func(b []byte, e *Entry) []byte { return append(b, e.Identity.Serial...) }},
	{"cause", true, func(b []byte, e *Entry) []byte { return append(b, e.Cause.String()...) }},
	{"reason", true, func(b []byte, e *Entry) []byte { return append(b, e.Reason.String()...) }},
	{"error", true, func(b []byte, e *Entry) []byte {
		if e.Err == nil {
			return b
		}
		return append(b, e.Err.Error()...)
	}},
	{"bytes_up", false, func(b []byte, e *Entry) []byte { return strconv.AppendInt(b, e.Up.Written, 10) }},
	{"bytes_down", false, func(b []byte, e *Entry) []byte { return strconv.AppendInt(b, e.Down.Written, 10) }},
	{"bytes_dropped", false, func(b []byte, e *Entry) []byte { return appendCount(b, e.Up.BytesDropped()+e.Down.BytesDropped()) }},
	{"datagrams_up", false, func(b []byte, e *Entry) []byte { return appendCount(b, e.Up.Datagrams) }},
	{"datagrams_down", false, func(b []byte, e *Entry) []byte { return appendCount(b, e.Down.Datagrams) }},
	{"datagrams_dropped", false, func(b []byte, e *Entry) []byte { return appendCount(b, e.Up.DatagramsDropped+e.Down.DatagramsDropped) }},
	{"queued", false, func(b []byte, e *Entry) []byte { return appendTime(b, e.Queued) }},
	{"connect", false, func(b []byte, e *Entry) []byte { return appendTime(b, e.Connect) }},
	{"first_byte", false, func(b []byte, e *Entry) []byte { return appendTime(b, e.FirstByte) }},
	{"duration", false, func(b []byte, e *Entry) []byte { return appendSeconds(b, e.Duration) }},
	{"retries", false, func(b []byte, e *Entry) []byte { return appendCount(b, int64(e.Retries())) }},
	{"path_up", true, func(b []byte, e *Entry) []byte { return append(b, e.Up.Path.String()...) }},
	{"why_up", true, func(b []byte, e *Entry) []byte { return appendWhy(b, e.Up) }},
	{"path_down", true, func(b []byte, e *Entry) []byte { return append(b, e.Down.Path.String()...) }},
	{"why_down", true, func(b []byte, e *Entry) []byte { return appendWhy(b, e.Down) }},
	{"tls", true, func(b []byte, e *Entry) []byte { return appendTLSVersion(b, e.ClientTLS) }},
	{"tls_cipher", true, func(b []byte, e *Entry) []byte { return appendCipher(b, e.ClientTLS) }},
	{"tls_protocol", true, func(b []byte, e *Entry) []byte { return appendProtocol(b, e.ClientTLS) }},
	{"tls_resumed", false, func(b []byte, e *Entry) []byte { return appendResumed(b, e.ClientTLS) }},
	{"tls_handshake", false, func(b []byte, e *Entry) []byte { return appendHandshake(b, e.ClientTLS) }},
	{"tls_wire_up", false, func(b []byte, e *Entry) []byte { return appendWire(b, e.ClientTLS, true) }},
	{"tls_wire_down", false, func(b []byte, e *Entry) []byte { return appendWire(b, e.ClientTLS, false) }},
	{"upstream_tls", true, func(b []byte, e *Entry) []byte { return appendTLSVersion(b, e.UpstreamTLS) }},
	{"upstream_tls_cipher", true, func(b []byte, e *Entry) []byte { return appendCipher(b, e.UpstreamTLS) }},
	{"upstream_tls_protocol", true, func(b []byte, e *Entry) []byte { return appendProtocol(b, e.UpstreamTLS) }},
	{"upstream_tls_resumed", false, func(b []byte, e *Entry) []byte { return appendResumed(b, e.UpstreamTLS) }},
	{"upstream_tls_handshake", false, func(b []byte, e *Entry) []byte { return appendHandshake(b, e.UpstreamTLS) }},
	{"upstream_tls_wire_up", false, func(b []byte, e *Entry) []byte { return appendWire(b, e.UpstreamTLS, false) }},
	{"upstream_tls_wire_down", false, func(b []byte, e *Entry) []byte { return appendWire(b, e.UpstreamTLS, true) }},
}

// appendCount appends n unless it is 0.
func appendCount(b []byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(b, n, 10)
}

// appendTime appends d unless it is 0, which means that it did not happen.
func appendTime(b []byte, d time.Duration) []byte {
	if d == 0 {
		return b
	}
	return appendSeconds(b, d)
}

// appendSeconds appends d in seconds, such as 1.500000.
func appendSeconds(b []byte, d time.Duration) []byte {
	us := max(d.Microseconds(), 0)
	b = strconv.AppendInt(b, us/1e6, 10)
	b = append(b, '.')
	for unit := int64(1e5); unit > 0; unit /= 10 {
		b = append(b, '0'+byte(us/unit%10))
	}
	return b
}

// appendAddr appends the URL of a, or nothing for the zero Addr.
func appendAddr(b []byte, a *relay.Addr) []byte {
	b, _ = a.AppendText(b)
	return b
}

func appendIP(b []byte, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return b
	}
	return a.Addr().Unmap().AppendTo(b)
}

// appendWhy appends why a faster data path was not taken.
func appendWhy(b []byte, t relay.Transfer) []byte {
	if t.Path != datapath.Copy {
		return b
	}
	return append(b, t.Why.String()...)
}
