//go:build tools

// Package tools pins the servers that the end-to-end tests and the demo run on:
// a real kube-apiserver, kube-controller-manager and etcd, kubectl, and kwok in place of nodes, built from
// their Go modules.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
