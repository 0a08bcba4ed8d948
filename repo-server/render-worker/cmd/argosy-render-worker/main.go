// argosy-render-worker renders charts and kustomizations for the repo-server, which
// starts it and speaks to it over stdin and stdout. PROTOCOL.md is the contract.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/helm"
	"argosy/render-worker/internal/kustomize"
	"argosy/render-worker/internal/serve"
	"argosy/render-worker/internal/wire"
)

// stackMax ends a runaway recursion of a template before it takes the machine's memory.
const stackMax = 256 << 20

// gcPercent: a render allocates much and keeps nothing, on a live heap of some 10 MB. At
// Go's 100 an edited overlay cost 17 ms of CPU, at 400 14 ms, for 12 MB more resident.
// GOMEMLIMIT bounds it where memory is short.
const gcPercent = 400

func main() {
	if filepath.Base(os.Args[0]) == "helm" {
		os.Exit(helmCommand())
	}
	log.SetFlags(0)
	log.SetPrefix("render-worker: ")
	os.Exit(run())
}

func run() int {
	concurrency := flag.Int("concurrency", runtime.GOMAXPROCS(0), "calls that run at once")
	allowHelm := flag.Bool("allow-kustomize-helm", false, "let kustomizations inflate charts (`--enable-helm` of their build options)")
	version := flag.Bool("version", false, "print the versions and exit")
	flag.Parse()
	versions := versions()
	if *version {
		fmt.Printf("helm %s kustomize %s kubernetes %s %s protocol %d\n",
			versions.GetHelm(), versions.GetKustomize(), versions.GetKube(), versions.GetGo(), versions.GetProtocol())
		return 0
	}

	out, err := takeStdout()
	if err != nil {
		log.Printf("set up stdout: %v", err)
		return 1
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	confine.Process()
	debug.SetMaxStack(stackMax)
	server := &serve.Server{Concurrency: *concurrency, Versions: versions}
	if *allowHelm {
		command, remove, err := helmLink()
		if err != nil {
			log.Printf("set up helm for kustomize: %v", err)
			return 1
		}
		defer remove()
		server.Kustomize = kustomize.Kustomizer{HelmCommand: command}
	}
	if err := server.Serve(os.Stdin, out); err != nil {
		log.Print(err)
		return 2
	}
	return 0
}

func versions() *wire.Versions {
	return &wire.Versions{
		Helm:      helm.Version,
		Kustomize: kustomize.Version,
		Kube:      helm.DefaultKubeVersion(),
		Go:        runtime.Version(),
		Protocol:  serve.Protocol,
	}
}

// takeStdout keeps the stream to the host private: whatever else prints to descriptor 1
// ends in the log.
func takeStdout() (*os.File, error) {
	private, err := syscall.Dup(syscall.Stdout)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(private)
	if err := syscall.Dup3(syscall.Stderr, syscall.Stdout, 0); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(private), "replies"), nil
}
