module github.com/penstock/penstock/cmd/penstock

go 1.26.0

replace github.com/penstock/penstock => ../..

require (
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/penstock/penstock v0.0.0
	golang.org/x/net v0.62.0
)

require github.com/gaissmai/bart v0.30.0

require github.com/pires/go-proxyproto v0.15.0

require (
	github.com/coreos/go-systemd/v22 v22.7.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require golang.org/x/text v0.43.0 // indirect

require (
	github.com/alecthomas/kong v1.17.0
	go.yaml.in/yaml/v4 v4.0.0
	golang.org/x/sys v0.49.0 // indirect
)
