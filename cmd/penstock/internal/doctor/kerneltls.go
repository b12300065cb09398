package doctor

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/penstock/penstock/relay/hold"
)

// tlsFeature is TLS 1.3 in the kernel, with all ciphers that connections have.
var tlsFeature = feature{name: "TLS", since: "5.11", try: hold.CheckKernelTLS, status: Warn,
	cost: "with kernel: auto in tls of listeners and groups, TLS ends with its worker as without it"}

// kernelTLS tries TLS in the kernel, if it is loaded: to try it would load the module, and the doctor changes nothing.
func kernelTLS(root fs.FS, try func(feature) error) Finding {
	f := Finding{Group: "kernel", Name: tlsFeature.name, Status: OK, Found: "AES-128-GCM, AES-256-GCM, ChaCha20-Poly1305"}
	if !slices.Contains(strings.Fields(sysctl(root, "net.ipv4.tcp_available_ulp")), "tls") {
		f.Status, f.Found, f.Cost = tlsFeature.status, "not loaded", tlsFeature.cost
		f.Fix = "modprobe tls, and the line tls in a file of /etc/modules-load.d; without the module, " + upgrade + tlsFeature.since + " or later with CONFIG_TLS"
	} else if err := try(tlsFeature); err != nil {
		f.Status, f.Found, f.Cost, f.Fix = tlsFeature.status, err.Error(), tlsFeature.cost, upgrade+tlsFeature.since+" or later"
	}
	return f
}
