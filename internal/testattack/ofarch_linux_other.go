//go:build linux && !amd64

package testattack

var ofArch []attempt
