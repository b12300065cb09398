module github.com/penstock/penstock/xnet

go 1.26.0

replace github.com/penstock/penstock => ..

require (
	github.com/penstock/penstock v0.0.0
	github.com/quic-go/quic-go v0.65.0
	golang.org/x/net v0.62.0
)

require (
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
