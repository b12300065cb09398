package hooks

import (
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// proxyHeader returns the PROXY header that tells the upstream who the client is and where it
// connected to: from the header received, or else from the sockets.
func proxyHeader(f *relay.Flow, p *State, to *spec.Dial) []byte {
	header := admit.Header{Version: to.Proxy, Datagrams: p.plan.Spec.Datagrams, TLVs: to.ProxyTLVs}
	if p.header != nil {
		header.Forward(p.header, to)
	}
	switch c := f.Client(); {
	case p.header != nil && !p.header.Local:
		header.Unix, header.Client, header.To = p.header.Unix, p.header.Client, p.header.To
		header.ClientPath, header.ToPath = p.header.ClientPath, p.header.ToPath
	case c.Network == relay.Unix || c.Network == relay.Unixgram:
		header.Unix, header.ClientPath, header.ToPath = true, c.Path, p.localOf(f).Path
	default:
		header.Client, header.To = c.AddrPort, p.localOf(f).AddrPort
	}
	if hello := p.hello.Load(); hello != nil && to.ProxySNI {
		if hello.ServerName != "" {
			header.SNI = hello.ServerName
		}
		switch {
		case hello.terminated:
			header.ALPN = hello.protocol
		case len(hello.SupportedProtos) > 0:
			header.ALPN = hello.SupportedProtos[0]
		}
	}
	if hello := p.hello.Load(); hello != nil && hello.terminated && to.ProxyTLS {
		header.SetTLS(*hello.proxied, to.ProxyCertificate)
	}
	b, err := header.Append(nil)
	if err != nil {
		b, _ = (&admit.Header{Version: to.Proxy, Local: true}).Append(nil) // with its TLVs the header was too long
	}
	return b
}
