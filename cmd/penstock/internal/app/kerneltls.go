package app

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/penstock/penstock/relay/hold"
)

// kernelTLS is whether the kernel has TLS. It is asked when a configuration first wants that, because the first question loads the module where the
// process may do so.
type kernelTLS struct {
	log  journal
	once sync.Once
	err  error
	text atomic.Pointer[string] // of err, for those who only look; nil: it was not asked
}

// kernelTLSWorks is what the status says where the kernel has TLS.
const kernelTLSWorks = "works"

// check returns why connections cannot be given to the kernel. It logs that once.
func (k *kernelTLS) check() error {
	k.once.Do(func() {
		text := kernelTLSWorks
		if k.err = hold.CheckKernelTLS(); k.err != nil {
			text = k.err.Error()
			const help = "kernel: auto is as off: TLS ends with its worker; modprobe tls, and restart the worker (penstock upgrade), or leave kernel out"
			k.log.Warn(help, "error", text)
			k.log.event(slog.LevelWarn, "kernel-tls", "", text+"; "+help)
		}
		k.text.Store(&text)
	})
	return k.err
}

// status returns what is known; empty: nobody has asked.
func (k *kernelTLS) status() string {
	if text := k.text.Load(); text != nil {
		return *text
	}
	return ""
}
