// Command coredns is a CoreDNS that reads PROXY headers and answers with the address of the client. It is a module of its own
// because CoreDNS has many dependencies, and is built by
//
//	make peers
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/proxyproto"
	_ "github.com/coredns/coredns/plugin/whoami"
)

func main() {
	dnsserver.Directives = []string{"bind", "proxyproto", "whoami"}
	coremain.Run()
}
