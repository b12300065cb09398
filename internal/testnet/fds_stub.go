//go:build !linux

package testnet

func openFds() map[int]string { return nil }
