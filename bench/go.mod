module github.com/penstock/penstock/bench

go 1.26.0

replace github.com/penstock/penstock => ..

require (
	github.com/penstock/penstock v0.0.0
	github.com/valyala/bytebufferpool v1.0.0
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0
	google.golang.org/grpc v1.85.0
)
