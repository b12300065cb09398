package rules

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// availableULPs is the file with what the kernel can put between TCP and its user, of what is loaded: to try it would load the module.
var availableULPs = "/proc/sys/net/ipv4/tcp_available_ulp"

var errNoKernelTLS = errors.New("the kernel has no TLS at present (net.ipv4.tcp_available_ulp): unless the daemon is started as root, which loads the module if there is one, auto is as off; modprobe tls")

// checkKernelTLS warns where kernel is auto, and the kernel has no TLS.
func checkKernelTLS(c *spec.Config, p *config.Report) {
	text, _ := os.ReadFile(availableULPs)
	if slices.Contains(strings.Fields(string(text)), "tls") {
		return
	}
	for _, l := range c.Listeners {
		if l.TLS != nil && l.TLS.Kernel {
			p.Warn(errNoKernelTLS, &l.TLS.Kernel, &l.TLS, l)
		}
	}
	for _, g := range c.Groups {
		if g.TLS != nil && g.TLS.Kernel {
			p.Warn(errNoKernelTLS, &g.TLS.Kernel, &g.TLS, g)
		}
	}
}
