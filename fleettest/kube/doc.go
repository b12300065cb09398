// Package kube tests the daemon with a real kube-apiserver and a real etcd, in a network namespace: an API server refuses
// endpoints in 127.0.0.0/8. It is a module of its own because an API server takes 8 minutes of CPU to build, and is run by
//
//	make kube
//
// which needs root, or a kernel that lets users make namespaces; unshare(1); and ip(8).
package kube
